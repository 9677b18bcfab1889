"""Tests compiler passes of users: the guide's pass, phases given as text, and errors for invalid passes."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from support.processes import ROOT, pwc_here

import pathways as pw
from pathways.compiler.driver import Compilation
from pathways.compiler.pass_manager import PASSES
from pathways.compiler.pass_text import read_passes
from pathways.compiler.passes.base import Pass, Session
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.phases import Phase
from pathways.dialect.plan.instructions import Run
from pathways.dialect.plan.plan_file import load_plan
from pathways.dialect.topology import parse_topology

GUIDE = (ROOT / "docs" / "writing-a-placement-pass.md").read_text()
SAMPLES = ["mixture_of_experts", "speculative_decoding"]
PASS_IMPORTS = "from dataclasses import dataclass\nfrom pathways.compiler.passes.base import Pass\n"


@pytest.fixture
def write_pass(tmp_path: Path) -> Callable[[str], Path]:
    def write(body: str) -> Path:
        path = tmp_path / "mine.py"
        path.write_text(f"{PASS_IMPORTS}\n\n{body}")
        return path

    return write


def guide_pass(folder: Path) -> Path:
    """Writes the guide's code block that defines the pass into a file of its own."""
    (code,) = [c for c in re.findall(r"```python[^\n]*\n(.*?)```", GUIDE, re.S) if "(Pass)" in c]
    path = folder / "my_order.py"
    path.write_text(code)
    return path


@pytest.mark.parametrize("sample", SAMPLES)
def test_the_pass_of_the_guide_compiles_samples_that_run(sample: str, tmp_path: Path) -> None:
    (pipeline,) = re.findall(r"'(propagate-shardings,[^']*my_order[^']*)'", GUIDE)
    pipeline = pipeline.replace("my_order.py", str(guide_pass(tmp_path)))
    plan, source = tmp_path / "plan.bin", str(ROOT / "samples" / f"{sample}.py")
    exit_code, stdout, stderr = pwc_here("compile", source, "-o", str(plan), "--pass-pipeline", pipeline)
    assert exit_code == 0 and "senders-first" in stdout, stderr
    exit_code, stdout, stderr = pwc_here("run", str(plan), "--reference")
    assert exit_code == 0 and "reference: equal" in stdout, stderr


TWO_SLICES = """
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
import pathways as pw

made = pw.make_virtual_device_set()
here, there = (NamedSharding(made.add_slice(devices=1).mesh("x"), P()) for _ in range(2))
kept, sent, taken = jax.jit(jnp.sin, in_shardings=here), jax.jit(jnp.cos, in_shardings=here), jax.jit(
    jnp.tanh, in_shardings=there
)


@pw.program(example_args=(jnp.ones(3),))
def step(x):
    return kept(x), kept(x + 1), taken(sent(x))
"""


def test_the_pass_of_the_guide_schedules_sending_calls_first(tmp_path: Path) -> None:
    source, order_pass, plan = tmp_path / "two.py", guide_pass(tmp_path), tmp_path / "plan.bin"
    source.write_text(TWO_SLICES)
    for places, first in ((8, "cos"), (1, "sin")):
        order = f"{order_pass}:SendersFirst{{places={places}}}"
        pipeline = f"propagate-shardings,place,insert-transfers,{order},plan-islands"
        exit_code, _, stderr = pwc_here("compile", str(source), "-o", str(plan), "--pass-pipeline", pipeline)
        assert exit_code == 0, stderr
        names = [i.name for i in load_plan(plan).stream("island0").instructions if isinstance(i, Run)]
        assert names[0] == first and sorted(names)[:1] == ["add"] and len(names) == 4
        assert pwc_here("run", str(plan), "--reference")[0] == 0


def test_the_guide_names_every_phase() -> None:
    for phase in Phase:
        assert re.search(rf"\b{phase}\b", GUIDE)
    for pass_ in PASSES.values():
        assert all(isinstance(p, Phase) for p in pass_.phases())


def test_a_pass_within_one_phase_need_not_set_the_phase(write_pass: Callable[[str], Path], tmp_path: Path) -> None:
    path = write_pass(
        "class Prefers(Pass):\n"
        "    name, requires, ensures = 'prefers', 'shard', 'shard'\n"
        "    def apply(self, program, session):\n"
        "        for slice_ in program.slices.values():\n            slice_.prefer = 'gpu'\n"
    )
    plan = tmp_path / "plan.bin"
    pipeline = f"propagate-shardings,{path}:Prefers,place,insert-transfers,order-calls,plan-islands"
    source = str(ROOT / "samples" / "mixture_of_experts.py")
    exit_code, _, stderr = pwc_here("compile", source, "-o", str(plan), "--pass-pipeline", pipeline)
    assert exit_code == 0 and {s.prefer for s in load_plan(plan).slices} == {"gpu"}, stderr


def test_the_phase_that_a_pass_ensures_is_verified(write_pass: Callable[[str], Path]) -> None:
    """A pass need not set the phase that it ensures, but must do the work of that phase."""
    path = write_pass(
        "class Lazy(Pass):\n"
        "    name, requires, ensures = 'lazy', 'transfer', 'schedule'\n"
        "    def apply(self, program, session):\n        assert len(program.flow) == len(list(program.flow)) > 0\n"
    )
    pipeline = f"propagate-shardings,place,insert-transfers,{path}:Lazy,plan-islands"
    source = str(ROOT / "samples" / "mixture_of_experts.py")
    exit_code, _, stderr = pwc_here("compile", source, "--pass-pipeline", pipeline)
    assert exit_code == 3 and "error[PWC0701]" in stderr and "step" in stderr and "reproduces the error" in stderr


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("class Mine(Pass):\n    requires, ensures = 'shard', 'place'\n", "has no name"),
        ("class Mine(Pass):\n    name, ensures = 'mine', 'place'\n", "does not set `requires` to a phase"),
        ("class Mine(Pass):\n    name, requires = 'mine', 'place'\n", "does not set `ensures` to a phase"),
        ("class Mine(Pass):\n    name, requires, ensures = 'mine', 'shart', 'place'\n", "requires = 'shart'"),
        ("class Mine(Pass):\n    name, requires, ensures = 'mine', 'shard', 3\n", "ensures = 3"),
        ("class Mine(Pass):\n    name, requires, ensures = 'mine', ['shard'], 'place'\n", "requires = ['shard']"),
        (
            "@dataclass(frozen=True)\nclass Mine(Pass):\n    by: int\n"
            "    name, requires, ensures = 'mine', 'shard', 'place'\n",
            "cannot be created",
        ),
        (
            "@dataclass(frozen=True)\nclass Mine(Pass):\n    name, requires, ensures = 'mine', 'shard', 'place'\n"
            "    def __post_init__(self):\n        raise KeyError('mine')\n",
            "KeyError",
        ),
        ("class Mine:\n    pass\n", "is not a pass"),
        ("raise SystemExit(3)\n", "SystemExit"),
    ],
)
def test_invalid_passes_are_refused(body: str, message: str, write_pass: Callable[[str], Path]) -> None:
    source = str(ROOT / "samples" / "figure2.py")
    path = write_pass(body)
    exit_code, _, stderr = pwc_here("compile", source, "--pass-pipeline", f"propagate-shardings,{path}:Mine")
    assert exit_code == 2 and "error[PWC0705]" in stderr and message in stderr and "Traceback" not in stderr
    if "phase" in message:
        assert f"{path}:" in stderr and "known: trace, shard, place, transfer, schedule, plan" in stderr.replace(
            "try:   ", ""
        )


def test_the_error_of_a_raising_pass_shows_a_command_that_reproduces_it(
    write_pass: Callable[[str], Path], tmp_path: Path
) -> None:
    path = write_pass(
        "class Broken(Pass):\n    name, requires, ensures = 'broken', 'shard', 'place'\n"
        "    def apply(self, program, session):\n        return program.nothing_of_this_name\n"
    )
    source = str(ROOT / "samples" / "figure2.py")
    pipeline = f"propagate-shardings,{path}:Broken"
    exit_code, _, stderr = pwc_here(
        "compile", source, "--pass-pipeline", pipeline, "--crash-reproducer", str(tmp_path / "saved")
    )
    assert exit_code == 3 and "error[PWC0706]" in stderr and f"{path}:8" in stderr
    assert "note: the IR before broken is saved; this command reproduces the error: pwc opt" in stderr
    assert (tmp_path / "saved" / "reproduce.sh").is_file()


def test_pass_options_have_the_types_of_their_fields(write_pass: Callable[[str], Path]) -> None:
    path = write_pass(
        "@dataclass(frozen=True)\nclass Mine(Pass):\n    name, requires, ensures = 'mine', 'transfer', 'schedule'\n"
        "    by: int = 1\n    share: float = 0.5\n    loud: bool = False\n    of: str | None = None\n"
    )
    (made,) = read_passes(f"{path}:Mine{{by=3 share=0.25 loud=true of=words}}")
    assert [getattr(made, n) for n in ("by", "share", "loud", "of")] == [3, 0.25, True, "words"]
    assert made.phases() == (Phase.TRANSFER, Phase.SCHEDULE)


@dataclass(frozen=True)
class Breaks(Pass):
    """A faulty pass: it moves a call to a mesh that does not exist."""

    name: ClassVar[str] = "breaks"
    requires: ClassVar[Phase] = Phase.TRACE
    ensures: ClassVar[Phase] = Phase.TRACE

    def apply(self, program: ProgramIR, session: Session) -> None:
        next(program.calls()).mesh = "nowhere"


@pytest.mark.parametrize(("spelled", "code"), [("", "PWC0710"), ("mine.py:Breaks", "PWC0701")])
def test_built_in_and_user_passes_that_break_a_rule_raise_different_codes(spelled: str, code: str) -> None:
    """A built-in pass raises PWC0710, a bug of this compiler. A user's pass raises PWC0701, which names the rule."""
    made = type("Made", (Breaks,), {"spelled": spelled})
    lowered = pw.program(lambda x: x + 1).lower(np.ones(2, np.float32))
    compilation = Compilation(ProgramIR(lowered.module), lowered.constants, Session(parse_topology("devices=1")))
    with pytest.raises(PathwaysError, match="nowhere, which does not exist") as caught:
        compilation.advance(Phase.TRACE, passes=[made()])
    assert caught.value.code == code and ("breaks" in str(caught.value)) == (not spelled)


def test_streams_are_verified_after_a_user_pass_that_declares_no_writes(write_pass: Callable[[str], Path]) -> None:
    path = write_pass(
        "class Breaks(Pass):\n"
        "    name, requires, ensures, writes = 'breaks', 'plan', 'plan', frozenset()\n"
        "    def apply(self, program, session):\n"
        "        for plan in program.plans.values():\n"
        "            for op in plan.operation.regions[0].blocks[0].operations:\n"
        "                if op.operation.name == 'pw.run':\n"
        "                    op.inputs = tuple(i + 10**6 for i in op.inputs)\n"
    )
    pipeline = f"propagate-shardings,place,insert-transfers,order-calls,plan-islands,{path}:Breaks"
    source = str(ROOT / "samples" / "mixture_of_experts.py")
    exit_code, _, stderr = pwc_here("compile", source, "--pass-pipeline", pipeline)
    assert exit_code == 3 and "error[PWC0701]" in stderr and "which is empty" in stderr
