"""Plans with loops and branches on data: waves, files, dumps, and what is refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from branching import SOURCE, X, looping, plain, same
from support import pwc_here

from pathways.api.reference import run_reference
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.plan import Branch, Plan, Run
from pathways.dialect.planfile import read_plan, write_plan
from pathways.runtime.defer import defer
from pathways.runtime.linearize import Joined, linearize
from pathways.runtime.validate import validate


@pytest.fixture(scope="module")
def plan() -> Plan:
    return looping().lower(X, np.int32(0)).compile().plan


def test_the_waves_of_a_plan(plan: Plan) -> None:
    waves = defer(plan, linearize(plan))
    assert waves[0].needs == 0 and "other" in [i.name for _, i in waves[0].steps if isinstance(i, Run)]
    (_, _, loop), *_ = waves[0].awaits
    assert isinstance(loop, Joined) and loop.branch.kind == "while" and len(loop.parts) == 2
    later = [w for w in waves if w.awaits][1]
    assert later.needs == 1 and later.awaits[0][2].branch.kind == "cond"  # type: ignore[union-attr]


def test_through_a_file_and_the_command_line(tmp_path: Path) -> None:
    source, path, out = tmp_path / "model.py", tmp_path / "model.bin", tmp_path / "out.npz"
    source.write_text(SOURCE)
    for more in ([], ["--with-executables", "--with-phases"]):
        code, _, err = pwc_here("compile", f"{source}:work", "-o", str(path), *more)
        assert code == 0, err
    code, shown, _ = pwc_here("inspect", str(path))
    assert code == 0 and "await, then run work_while_body while work_while_cond" in shown and "body work_while" in shown
    assert json.loads(pwc_here("inspect", str(path), "--json")[1])["bodies"][0]["streams"]
    assert pwc_here("check", str(path))[0] == 0
    np.savez(tmp_path / "in.npz", x=X, n=np.int32(3))
    given = ("--inputs", str(tmp_path / "in.npz"), "--outputs", str(out))
    assert pwc_here("run", str(path), *given, "--reference")[0] == 0
    same(np.load(out).values(), plain(X, 3)[:2])
    code, text, _ = pwc_here("diff", str(path), str(path))
    assert code == 0 and text.strip() == "the plans are the same"


def test_every_dump_compiles_on_to_the_same_plan(tmp_path: Path) -> None:
    source, path = tmp_path / "model.py", tmp_path / "model.bin"
    source.write_text(SOURCE)
    assert pwc_here("compile", f"{source}:work", "-o", str(path), "--dump-phases-to", str(tmp_path / "ir"))[0] == 0
    dumps = sorted((tmp_path / "ir").glob("*.mlir"))
    assert len(dumps) == 6
    for dump in dumps:
        again = tmp_path / f"{dump.stem}.bin"
        code, _, err = pwc_here("compile", str(dump), "-o", str(again))
        assert code == 0, err
        assert again.read_bytes() == path.read_bytes(), dump


def test_the_plan_file_gives_back_what_it_was_given(plan: Plan) -> None:
    assert read_plan(write_plan(plan)) == replace(plan, phases={})
    assert run_reference(plan, [X, np.int32(3)])[0] == pytest.approx(plain(X, 3)[0])


def _first_branch(plan: Plan) -> tuple[int, int, Branch]:
    for at, stream in enumerate(plan.streams):
        for i, instruction in enumerate(stream.instructions):
            if isinstance(instruction, Branch):
                return at, i, instruction
    raise AssertionError("no branch")


def _with(plan: Plan, **changes: Any) -> Plan:
    """The plan with its first branch changed."""
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
def test_a_branch_that_does_not_fit_is_refused(plan: Plan, what: str) -> None:
    validate(plan)
    with pytest.raises(PathwaysError) as caught:
        validate(_with(plan, **_BAD[what]))
    assert caught.value.code == "PWC0604"


def test_a_body_never_runs_itself(plan: Plan) -> None:
    """Whatever a hostile file says: bodies run bodies before them only."""
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
