"""Tests plans with loops and branches on data: waves, plan files, phase dumps, constants, memory and validation."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from support.branching import SOURCE, X, double, jit, less, looping, other, placed, plain, same
from support.processes import pwc_here

import pathways as pw
from pathways.api.reference import run_reference
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.plan.check import validate
from pathways.dialect.plan.instructions import Branch, Run, Send
from pathways.dialect.plan.memory import peaks
from pathways.dialect.plan.nouns import Plan
from pathways.dialect.plan.order import Joined, linearize
from pathways.dialect.plan.plan_file import read_plan, write_plan
from pathways.runtime.host.load.waves import defer


@pytest.fixture(scope="module")
def plan() -> Plan:
    return looping().lower(X, np.int32(0)).compile().plan


def test_waves_await_the_loop_and_then_the_cond_of_a_plan(plan: Plan) -> None:
    waves = defer(plan, linearize(plan))
    assert waves[0].needs == 0 and "other" in [i.name for _, i in waves[0].steps if isinstance(i, Run)]
    (_, _, loop), *_ = waves[0].awaits
    assert isinstance(loop, Joined) and loop.branch.kind == "while" and len(loop.parts) == 2
    later = [w for w in waves if w.awaits][1]
    (_, _, choice), *_ = later.awaits
    assert later.needs == 1 and isinstance(choice, Joined) and choice.branch.kind == "cond"


def test_pwc_compiles_inspects_checks_runs_and_diffs_a_plan_with_branches(tmp_path: Path) -> None:
    source, path, out = tmp_path / "model.py", tmp_path / "model.bin", tmp_path / "out.npz"
    source.write_text(SOURCE)
    for more in ([], ["--with-executables", "--with-phases"]):
        code, _, err = pwc_here("compile", f"{source}:work", "-o", str(path), *more)
        assert code == 0, err
    code, shown, _ = pwc_here("inspect", str(path), "--all")
    assert code == 0 and "await, then run work_while_body while work_while_cond" in shown and "body work_while" in shown
    assert json.loads(pwc_here("inspect", str(path), "--json")[1])["bodies"][0]["streams"]
    assert pwc_here("check", str(path))[0] == 0
    np.savez(tmp_path / "in.npz", x=X, n=np.int32(3))
    given = ("--inputs", str(tmp_path / "in.npz"), "--outputs", str(out))
    assert pwc_here("run", str(path), *given, "--reference")[0] == 0
    same(np.load(out).values(), plain(X, 3)[:2])
    code, text, _ = pwc_here("diff", str(path), str(path))
    assert code == 0 and text.strip() == "the plans are the same"


@pytest.mark.long("larger programs of the same kind", keep=("of_nothing", "nested"))
@pytest.mark.parametrize("name", ["work", "nested", "differentiated", "randomized", "of_nothing"])
def test_every_phase_dump_compiles_to_the_same_plan(tmp_path: Path, name: str) -> None:
    source, path = tmp_path / "model.py", tmp_path / "model.bin"
    source.write_text(SOURCE)
    assert pwc_here("compile", f"{source}:{name}", "-o", str(path), "--dump-phases-to", str(tmp_path / "ir"))[0] == 0
    dumps = sorted((tmp_path / "ir").glob("*.mlir"))
    assert len(dumps) == 6
    for dump in dumps:
        again = tmp_path / f"{dump.stem}.bin"
        code, _, err = pwc_here("compile", str(dump), "-o", str(again))
        assert code == 0, err
        assert again.read_bytes() == path.read_bytes(), dump


def test_a_plan_file_reads_back_as_the_plan_that_was_written(plan: Plan) -> None:
    read = read_plan(write_plan(plan))
    assert read == replace(plan, phases={})
    assert run_reference(read, [X, np.int32(3)])[0] == pytest.approx(plain(X, 3)[0])


def test_large_constants_of_bodies_are_stored_once_in_the_program() -> None:
    f, g = placed(double), placed(less)
    large = np.ones(1024, np.float32)

    def body(x: Any, n: Any) -> Any:
        for i in range(3):
            x = lax.cond(n > i, lambda v: f(v) + large, lambda v: g(v), x)
        return x

    plan = pw.program(body).lower(large, np.int32(1)).compile().plan
    assert all(plan.constants[c.member] != large.tobytes() for b in plan.bodies for c in b.constant_buffers)
    held = [c for c in plan.constant_buffers if plan.constants[c.member] == large.tobytes()]
    assert len(held) == 1


def test_planned_peaks_count_all_devices_of_a_slice() -> None:
    devices = pw.make_virtual_device_set().add_slice(devices=4).devices
    halves = (NamedSharding(Mesh(np.array(half), ("x",)), P("x")) for half in (devices[:2], devices[2:]))
    f, g = (jit(double, in_shardings=s, out_shardings=s) for s in halves)
    plan = pw.program(lambda x, n: lax.fori_loop(0, n, lambda i, v: g(f(v)), x)).lower(X, np.int32(1)).compile().plan
    (stream,) = plan.streams
    high = peaks(stream, plan.meshes, frozenset())
    assert sorted(high) == [0, 1, 2, 3] and min(high.values()) >= X.nbytes // 2


def test_the_condition_of_a_loop_sends_no_values_between_islands() -> None:
    """A value that no placed call uses is sent to the loop's island once, not back and forth in every iteration."""
    f, g, other_ = placed(double), placed(less), placed(other)

    def work(x: Any, n: Any) -> Any:
        m = other_(x)[0].astype(np.int32) + n
        return lax.fori_loop(0, m, lambda i, v: g(f(v)) + i, x)

    plan = pw.program(work).lower(X, np.int32(1)).compile().plan
    test = next(b for b in plan.bodies if b.name.endswith("while_cond"))
    assert not any(isinstance(i, Send) for s in test.streams for i in s.instructions)


def _first_branch(plan: Plan) -> tuple[int, int, Branch]:
    for at, stream in enumerate(plan.streams):
        for i, instruction in enumerate(stream.instructions):
            if isinstance(instruction, Branch):
                return at, i, instruction
    raise AssertionError("no branch")


def _with_first_branch(plan: Plan, **changes: Any) -> Plan:
    """Returns the plan with its first branch changed."""
    at, i, branch = _first_branch(plan)
    stream = plan.streams[at]
    instructions = (*stream.instructions[:i], replace(branch, **changes), *stream.instructions[i + 1 :])
    streams = (*plan.streams[:at], replace(stream, instructions=instructions), *plan.streams[at + 1 :])
    return replace(plan, streams=streams)


_BAD: dict[str, dict[str, Any]] = {
    "another kind": {"kind": "until"},
    "a body that is not there": {"bodies": (0, 99)},
    "bodies the wrong way round": {"bodies": (1, 0)},
    "one body": {"bodies": (0,)},
    "an operand twice": {"taken": (0, 0, 1)},
    "an operand too few": {"inputs": (0, 1), "taken": (0, 1)},
    "a slot that is not there": {"inputs": (0, 1, 99)},
    "results elsewhere": {"made": (2, 1, 0)},
    "a mesh of elsewhere": {"meshes": (7,)},
    "only here": {"step": 77},
}


@pytest.mark.parametrize("what", list(_BAD))
def test_a_malformed_branch_is_refused(plan: Plan, what: str) -> None:
    validate(plan)
    with pytest.raises(PathwaysError) as caught:
        validate(_with_first_branch(plan, **_BAD[what]))
    assert caught.value.code == "PWC0604"


def test_only_loop_carried_inputs_of_a_body_may_be_donated(plan: Plan) -> None:
    for number, body in enumerate(plan.bodies):
        inputs = tuple(replace(p, donated=True) for p in body.inputs)
        bodies = tuple(replace(b, inputs=inputs) if i == number else b for i, b in enumerate(plan.bodies))
        if body.name.endswith("while_body"):  # all inputs of this body are loop-carried
            validate(replace(plan, bodies=bodies))
        elif body.inputs:
            with pytest.raises(PathwaysError, match="PWC0604"):
                validate(replace(plan, bodies=bodies))


def test_a_body_that_runs_itself_is_refused(plan: Plan) -> None:
    """A body may run only bodies listed before it, also in a plan from a hostile file."""
    number = next(i for i, b in enumerate(plan.bodies) if b.name.endswith("while_body"))
    at, _, branch = _first_branch(plan)
    body = plan.bodies[number]
    stream = next(s for s in body.streams if s.island == plan.streams[at].island)
    inside = replace(stream, instructions=(*stream.instructions, replace(branch, step=99)))
    streams = tuple(inside if s is stream else s for s in body.streams)
    bodies = tuple(replace(b, streams=streams) if b is body else b for b in plan.bodies)
    with pytest.raises(PathwaysError) as caught:
        validate(replace(plan, bodies=bodies))
    assert caught.value.code == "PWC0604"
