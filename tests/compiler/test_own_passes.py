"""Whole passes of one's own: as the guide writes them, phases as text, and what is said of those that are wrong."""

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
HEAD = "from dataclasses import dataclass\nfrom pathways.compiler.passes.base import Pass\n"


@pytest.fixture
def mine(tmp_path: Path) -> Callable[[str], Path]:
    def write(body: str) -> Path:
        path = tmp_path / "mine.py"
        path.write_text(f"{HEAD}\n\n{body}")
        return path

    return write


def guide_pass(folder: Path) -> Path:
    """The code block of the guide that holds the pass, alone in a file of its own."""
    (code,) = [c for c in re.findall(r"```python[^\n]*\n(.*?)```", GUIDE, re.S) if "(Pass)" in c]
    path = folder / "my_order.py"
    path.write_text(code)
    return path


@pytest.mark.parametrize("sample", SAMPLES)
def test_the_pass_of_the_guide(sample: str, tmp_path: Path) -> None:
    (pipeline,) = re.findall(r"'(propagate-shardings,[^']*my_order[^']*)'", GUIDE)
    pipeline = pipeline.replace("my_order.py", str(guide_pass(tmp_path)))
    plan, source = tmp_path / "plan.bin", str(ROOT / "samples" / f"{sample}.py")
    exit_code, stdout, stderr = pwc_here("compile", source, "-o", str(plan), "--pass-pipeline", pipeline)
    assert exit_code == 0 and "senders-first" in stdout, stderr
    exit_code, stdout, stderr = pwc_here("run", str(plan), "--reference")
    assert exit_code == 0 and "reference: equal" in stdout, stderr


TWO = """
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


def test_the_pass_of_the_guide_lets_senders_go_first(tmp_path: Path) -> None:
    source, mine, plan = tmp_path / "two.py", guide_pass(tmp_path), tmp_path / "plan.bin"
    source.write_text(TWO)
    for places, first in ((8, "cos"), (1, "sin")):
        order = f"{mine}:SendersFirst{{places={places}}}"
        pipeline = f"propagate-shardings,place,insert-transfers,{order},plan-islands"
        exit_code, _, stderr = pwc_here("compile", str(source), "-o", str(plan), "--pass-pipeline", pipeline)
        assert exit_code == 0, stderr
        names = [i.name for i in load_plan(plan).stream("island0").instructions if isinstance(i, Run)]
        assert names[0] == first and sorted(names)[:1] == ["add"] and len(names) == 4
        assert pwc_here("run", str(plan), "--reference")[0] == 0


def test_the_phases_of_the_guide_are_those_there_are() -> None:
    for phase in Phase:
        assert re.search(rf"\b{phase}\b", GUIDE)
    for pass_ in PASSES.values():
        assert all(isinstance(p, Phase) for p in pass_.phases())


def test_a_pass_in_one_phase_needs_to_set_nothing(mine: Callable[[str], Path], tmp_path: Path) -> None:
    path = mine(
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


def test_what_a_pass_says_it_ensures_is_verified(mine: Callable[[str], Path]) -> None:
    """It need not set the phase; but then it must have done the work of the phase."""
    path = mine(
        "class Lazy(Pass):\n"
        "    name, requires, ensures = 'lazy', 'transfer', 'schedule'\n"
        "    def apply(self, program, session):\n        assert len(program.flow) == len(list(program.flow)) > 0\n"
    )
    pipeline = f"propagate-shardings,place,insert-transfers,{path}:Lazy,plan-islands"
    source = str(ROOT / "samples" / "mixture_of_experts.py")
    exit_code, _, stderr = pwc_here("compile", source, "--pass-pipeline", pipeline)
    assert exit_code == 3 and "error[PWC0701]" in stderr and "step" in stderr and "this fails again" in stderr


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("class Mine(Pass):\n    requires, ensures = 'shard', 'place'\n", "has no name"),
        ("class Mine(Pass):\n    name, ensures = 'mine', 'place'\n", "no phase that it requires"),
        ("class Mine(Pass):\n    name, requires = 'mine', 'place'\n", "no phase that it ensures"),
        ("class Mine(Pass):\n    name, requires, ensures = 'mine', 'shart', 'place'\n", "requires = 'shart'"),
        ("class Mine(Pass):\n    name, requires, ensures = 'mine', 'shard', 3\n", "ensures = 3"),
        ("class Mine(Pass):\n    name, requires, ensures = 'mine', ['shard'], 'place'\n", "requires = ['shard']"),
        (
            "@dataclass(frozen=True)\nclass Mine(Pass):\n    by: int\n"
            "    name, requires, ensures = 'mine', 'shard', 'place'\n",
            "cannot be made",
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
def test_passes_that_are_none_are_refused(body: str, says: str, mine: Callable[[str], Path]) -> None:
    source = str(ROOT / "samples" / "figure2.py")
    path = mine(body)
    exit_code, _, stderr = pwc_here("compile", source, "--pass-pipeline", f"propagate-shardings,{path}:Mine")
    assert exit_code == 2 and "error[PWC0705]" in stderr and says in stderr and "Traceback" not in stderr
    if "phase" in says:
        assert f"{path}:" in stderr and "known: trace, shard, place, transfer, schedule, plan" in stderr.replace(
            "try:   ", ""
        )


def test_a_pass_that_raises_names_the_command_that_fails_again(mine: Callable[[str], Path], tmp_path: Path) -> None:
    path = mine(
        "class Broken(Pass):\n    name, requires, ensures = 'broken', 'shard', 'place'\n"
        "    def apply(self, program, session):\n        return program.nothing_of_this_name\n"
    )
    source = str(ROOT / "samples" / "figure2.py")
    pipeline = f"propagate-shardings,{path}:Broken"
    exit_code, _, stderr = pwc_here(
        "compile", source, "--pass-pipeline", pipeline, "--crash-reproducer", str(tmp_path / "saved")
    )
    assert exit_code == 3 and "error[PWC0706]" in stderr and f"{path}:8" in stderr
    assert "note: the IR before broken is saved; this fails again: pwc opt" in stderr
    assert (tmp_path / "saved" / "reproduce.sh").is_file()


def test_options_keep_their_types(mine: Callable[[str], Path]) -> None:
    path = mine(
        "@dataclass(frozen=True)\nclass Mine(Pass):\n    name, requires, ensures = 'mine', 'transfer', 'schedule'\n"
        "    by: int = 1\n    share: float = 0.5\n    loud: bool = False\n    of: str | None = None\n"
    )
    (made,) = read_passes(f"{path}:Mine{{by=3 share=0.25 loud=true of=words}}")
    assert [getattr(made, n) for n in ("by", "share", "loud", "of")] == [3, 0.25, True, "words"]
    assert made.phases() == (Phase.TRANSFER, Phase.SCHEDULE)


@dataclass(frozen=True)
class Breaks(Pass):
    """Names a mesh that is not there: a mistake of whoever wrote it."""

    name: ClassVar[str] = "breaks"
    requires: ClassVar[Phase] = Phase.TRACE
    ensures: ClassVar[Phase] = Phase.TRACE

    def apply(self, program: ProgramIR, session: Session) -> None:
        next(program.calls()).mesh = "nowhere"


@pytest.mark.parametrize(("spelled", "code"), [("", "PWC0710"), ("mine.py:Breaks", "PWC0701")])
def test_whose_mistake_it_is(spelled: str, code: str) -> None:
    """A pass of ours that breaks a rule is a bug of ours; one of the user's breaks the rule that it is told of."""
    made = type("Made", (Breaks,), {"spelled": spelled})
    lowered = pw.program(lambda x: x + 1).lower(np.ones(2, np.float32))
    compilation = Compilation(ProgramIR(lowered.module), lowered.constants, Session(parse_topology("devices=1")))
    with pytest.raises(PathwaysError, match="nowhere, which does not exist") as caught:
        compilation.advance(Phase.TRACE, passes=[made()])
    assert caught.value.code == code and ("breaks" in str(caught.value)) == (not spelled)


def test_streams_are_checked_behind_a_users_pass_whatever_it_states(mine: Callable[[str], Path]) -> None:
    path = mine(
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
    assert exit_code == 3 and "error[PWC0701]" in stderr and "which holds nothing" in stderr
