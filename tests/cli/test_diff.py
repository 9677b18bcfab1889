"""Exit codes of `pwc diff` and `pwc check`: 0 only where plans are the same, and where everything was checked."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.fuzz_modules import module_of, text_of
from support.processes import ROOT, pwc_here

from pathways.dialect.plan.instructions import Run
from pathways.dialect.plan.nouns import Computation, Plan
from pathways.dialect.plan.plan_file import load_plan, save_plan
from pathways.dialect.schedule_figures import Schedule

SAMPLE = ROOT / "samples" / "mixture_of_experts.py"


def written(plan: Plan, path: Path) -> str:
    save_plan(plan, path)
    return str(path)


def other_line(plan: Plan) -> Plan:
    """The same calls, the first of them from another line: no slice, layout, order or byte differs."""
    first = plan.streams[0]
    at = next(i for i, x in enumerate(first.instructions) if isinstance(x, Run) and x.where is not None)
    run = first.instructions[at]
    assert isinstance(run, Run) and run.where is not None
    moved = replace(run, where=replace(run.where, line=run.where.line + 1))
    instructions = (*first.instructions[:at], moved, *first.instructions[at + 1 :])
    return replace(plan, streams=(replace(first, instructions=instructions), *plan.streams[1:]))


def computation(plan: Plan, change: Callable[[Computation], Computation]) -> Plan:
    return replace(plan, computations=(change(plan.computations[0]), *plan.computations[1:]))


OTHERS = {"add": "subtract", "subtract": "add", "multiply": "divide", "divide": "multiply", "tanh": "sine"}
"""Operations of StableHLO, each with one of the same types."""


def other_module(plan: Plan, field: str = "module") -> Plan:
    """A computation does another operation than it did: its module alone shows it."""
    for at, was in enumerate(plan.computations):
        text = text_of(raw) if (raw := getattr(was, field)) else ""
        for operation, other in OTHERS.items():
            if (now := text.replace(f"= stablehlo.{operation} %", f"= stablehlo.{other} %", 1)) != text:
                found = [*plan.computations]
                found[at] = replace(was, **{field: module_of(now)})
                return replace(plan, computations=tuple(found))
    raise AssertionError("no such operation")


def spare(plan: Plan) -> Plan:
    return replace(plan, computations=(*plan.computations, replace(plan.computations[0], name="spare")))


UNSEEN = {
    "only lines": other_line,
    "what a computation does": other_module,
    "what it does on one device": lambda p: other_module(p, "local"),
    "a decision": lambda p: replace(p, decisions=p.decisions[:-1]),
    "a schedule's time": lambda p: replace(p, schedule=replace(p.schedule, estimated_seconds=1.0)),
    "the placement": lambda p: replace(p, placement=f"{p.placement}, or so"),
    "whether it is reproducible": lambda p: replace(p, reproducible=False),
    "a computation that nothing calls": spare,
    "an unused schedule": lambda p: replace(p, schedule=Schedule("program", note="another note")),
}


@pytest.mark.parametrize("what", UNSEEN)
@pytest.mark.parametrize("option", [[], ["--summary"]])
def test_whatever_differs_is_exit_1(what: str, option: list[str], moe_plan: Path, tmp_path: Path) -> None:
    plan = replace(load_plan(moe_plan), phases={})
    a, b = written(plan, tmp_path / "a.bin"), written(UNSEEN[what](plan), tmp_path / "b.bin")
    for pair in ((a, b), (b, a)):
        exit_code, stdout, stderr = pwc_here("diff", *pair, *option)
        assert exit_code == 1 and stdout and "the plans are the same" not in stdout, stderr
    assert pwc_here("diff", b, b, *option) == (0, "the plans are the same\n", "")


def test_lines_alone_are_said_to_be_all(moe_plan: Path, tmp_path: Path) -> None:
    plan = replace(load_plan(moe_plan), phases={})
    a, b = written(plan, tmp_path / "a.bin"), written(other_line(plan), tmp_path / "b.bin")
    exit_code, stdout, _ = pwc_here("diff", a, b)
    assert exit_code == 1 and stdout.startswith("nothing moved, nothing resharded, nothing reordered\n---")
    exit_code, stdout, _ = pwc_here("diff", a, b, "--summary")
    assert (exit_code, stdout) == (1, "nothing moved, nothing resharded, nothing reordered\n")
    exit_code, stdout, _ = pwc_here("diff", a, written(other_module(plan), tmp_path / "c.bin"))
    assert exit_code == 1 and "computes   " in stdout and ": other operations" in stdout


def test_plans_that_run_alike_are_the_same(tmp_path: Path) -> None:
    """Compiled twice, with dumps and without, with ready code and without."""
    paths: list[str] = []
    for number, options in enumerate(([], ["--with-phases"], ["--with-executables"])):
        paths.append(str(tmp_path / f"{number}.bin"))
        assert pwc_here("compile", str(SAMPLE), "-o", paths[-1], *options)[0] == 0
    for path in paths:
        assert pwc_here("diff", paths[0], path) == (0, "the plans are the same\n", "")
        assert pwc_here("diff", path, paths[0], "--summary")[0] == 0


def test_check_looks_into_modules(moe_plan: Path, tmp_path: Path) -> None:
    """A plan whose numbers all agree, but one of whose modules is of another computation."""
    plan = load_plan(moe_plan)
    for name, change in (
        ("module", lambda c: replace(c, module=next(o for o in plan.computations if o.inputs != c.inputs).module)),
        ("no module", lambda c: replace(c, module=b"")),
        ("local", lambda c: replace(c, local=b"no module")),
    ):
        path = written(computation(plan, change), tmp_path / f"{name}.bin")
        for command in ("check", "inspect", "run"):
            exit_code, stdout, stderr = pwc_here(command, path)
            assert exit_code == 3 and "error[PWC06" in stderr, (name, command)
            if command == "check":
                assert "ok  plan" in stdout and "ok  computations" not in stdout
    exit_code, stdout, _ = pwc_here("check", str(moe_plan))
    assert exit_code == 0 and f"{len(plan.computations)} modules have the types" in stdout
