"""Tests leaving out passes of the default pipeline, in Python and on the command line."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from support.processes import pwc_here

import pathways as pw
from pathways.compiler.pass_manager import PASSES, Options, default_passes, leave_out
from pathways.compiler.pass_text import read_passes
from pathways.dialect.jax_api import jit

X = np.ones(4, np.float32)
PHASE_CHANGING = {name: cls.phases() for name, cls in PASSES.items() if cls.phases()[0] is not cls.phases()[1]}
"""Passes that advance a program to the next phase."""


@pytest.fixture
def lowered() -> Any:
    sharding = NamedSharding(pw.make_virtual_device_set().add_slice(devices=2).mesh("x"), P("x"))
    one, two = (jit(f, in_shardings=sharding) for f in (lambda x: x + 1, lambda x: x * 2))
    return pw.program(lambda x: two(one(x))).lower(X)


@pytest.mark.parametrize("name", sorted(PASSES.keys() - PHASE_CHANGING.keys()))
def test_passes_that_change_no_phase_can_be_left_out(lowered: Any, name: str) -> None:
    compiled = lowered.compile(without=name)
    assert name not in compiled.timing.passes
    assert {p.name for p in default_passes()} - set(compiled.timing.passes) <= {name}
    np.testing.assert_array_equal(np.asarray(compiled(X)), [4, 4, 4, 4])


def test_several_passes_can_be_left_out_at_once(lowered: Any) -> None:
    passes = set(lowered.compile(without=("per-device", "merge-calls")).timing.passes)
    assert not passes & {"per-device", "merge-calls"} and "plan-islands" in passes
    plan = lowered.compile(without=["merge-calls"]).plan
    assert len(plan.computations) == 2 and len(lowered.compile().plan.computations) == 1


@pytest.mark.parametrize("name", PHASE_CHANGING)
def test_passes_that_advance_the_phase_cannot_be_left_out(lowered: Any, name: str) -> None:
    requires, ensures = PHASE_CHANGING[name]
    with pytest.raises(pw.PathwaysError) as caught:
        lowered.compile(without=(name,))
    assert caught.value.code == "PWC0711"
    assert f"phase {ensures} is not reached without the pass {name}" in str(caught.value)
    assert f"--compile-to {requires}" in str(caught.value)


def test_leaving_out_an_unknown_pass_is_refused(lowered: Any) -> None:
    with pytest.raises(pw.PathwaysError) as caught:
        lowered.compile(without="merge")
    assert caught.value.code == "PWC0705" and "'merge'" in str(caught.value)
    assert all(name in str(caught.value) for name in PASSES)


def test_zero_bubble_is_refused_without_split_backward() -> None:
    """Otherwise the plan would schedule, and state a bubble for, calls that do not exist."""
    left_out = ("split-backward",)
    with pytest.raises(pw.PathwaysError) as caught:
        default_passes(Options(schedule="zero-bubble", without=left_out))
    assert caught.value.code == "PWC0404" and "split-backward is left out" in str(caught.value)
    assert default_passes(Options(schedule="1f1b", without=left_out)) == default_passes(Options(schedule="1f1b"))


def test_a_user_pass_is_left_out_by_its_file_and_class(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from pathways.compiler.passes.base import Pass\n"
        "class Mine(Pass):\n    name = 'mine'\n    requires = ensures = 'trace'\n"
    )
    passes = read_passes(f"find-pipeline,{file}:Mine,place")
    assert [p.name for p in leave_out(passes, ["find-pipeline"])] == ["mine", "place"]
    assert [p.name for p in leave_out(passes, [f"{file}:Mine"])] == ["find-pipeline", "place"]


@pytest.fixture(scope="module")
def dumps(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dumps")
    sample = str(request.path.parents[2] / "samples" / "figure2.py")
    assert pwc_here("compile", sample, "--dump-phases-to", str(folder))[0] == 0
    return folder


def test_pwc_compile_leaves_out_passes_or_refuses(dumps: Path) -> None:
    trace = str(dumps / "01.trace.mlir")
    exit_code, stdout, stderr = pwc_here("compile", trace, "--timing", "--without", "merge-calls, per-device")
    assert exit_code == 0 and "plan-islands" in stdout + stderr
    assert "merge-calls" not in stdout + stderr and "per-device" not in stdout + stderr
    exit_code, _, stderr = pwc_here("compile", trace, "--without", "place")
    assert exit_code == 2 and "PWC0711" in stderr and "phase place is not reached" in stderr
    exit_code, _, stderr = pwc_here("compile", trace, "--without", "place", "--compare-schedules")
    assert exit_code == 2 and "PWC0711" in stderr
    exit_code, _, stderr = pwc_here("compile", trace, "--without", "places")
    assert exit_code == 2 and "PWC0705" in stderr and "known: find-pipeline, " in stderr


def test_passes_of_phases_that_are_not_compiled_can_be_left_out(dumps: Path) -> None:
    trace, placed = str(dumps / "01.trace.mlir"), str(dumps / "03.place.mlir")
    assert pwc_here("compile", trace, "--without", "place", "--compile-to", "shard")[0] == 0
    assert pwc_here("compile", placed, "--without", "place")[0] == 0


def test_pwc_opt_leaves_out_passes_of_its_pipeline(dumps: Path) -> None:
    placed = str(dumps / "03.place.mlir")
    passes = "--pass-pipeline=insert-transfers,order-calls,merge-calls"
    exit_code, stdout, _ = pwc_here("opt", placed, passes, "--without", "merge-calls,order-calls")
    assert exit_code == 0 and 'pw.phase = "transfer"' in stdout
    exit_code, _, stderr = pwc_here("opt", placed, passes, "--without", "insert-transfers")
    assert exit_code == 3 and "PWC0703" in stderr and "needs IR of phase transfer" in stderr
