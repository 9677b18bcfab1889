"""Tests that `pwc diff` exits with 0 only for equal plans, and `pwc check` only for plans with valid modules."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.fuzz_modules import module_of, text_of
from support.processes import ROOT, pwc_here

from pathways.cli.plan_lines import plan_lines
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.plan.instructions import Copy, Recv, Run, Send
from pathways.dialect.plan.nouns import Buffers, Computation, Plan, Stream
from pathways.dialect.plan.plan_file import load_plan, save_plan
from pathways.dialect.schedule_figures import Schedule

SAMPLE = ROOT / "samples" / "mixture_of_experts.py"


def saved(plan: Plan, path: Path) -> str:
    """Saves a plan and returns its path."""
    save_plan(plan, path)
    return str(path)


def with_other_line(plan: Plan) -> Plan:
    """Moves the first call to another source line; no slice, layout, order or byte differs."""
    first = plan.streams[0]
    at = next(i for i, x in enumerate(first.instructions) if isinstance(x, Run) and x.where is not None)
    run = first.instructions[at]
    assert isinstance(run, Run) and run.where is not None
    moved = replace(run, where=replace(run.where, line=run.where.line + 1))
    instructions = (*first.instructions[:at], moved, *first.instructions[at + 1 :])
    return replace(plan, streams=(replace(first, instructions=instructions), *plan.streams[1:]))


def with_first_computation(plan: Plan, change: Callable[[Computation], Computation]) -> Plan:
    """Changes the first computation of a plan."""
    return replace(plan, computations=(change(plan.computations[0]), *plan.computations[1:]))


REPLACEMENTS = {"add": "subtract", "subtract": "add", "multiply": "divide", "divide": "multiply", "tanh": "sine"}
"""Operations of StableHLO, each with another one of the same types."""


def with_other_module(plan: Plan, field: str = "module") -> Plan:
    """Replaces one operation of a computation; only its module differs."""
    for at, was in enumerate(plan.computations):
        text = text_of(raw) if (raw := getattr(was, field)) else ""
        for operation, other in REPLACEMENTS.items():
            if (now := text.replace(f"= stablehlo.{operation} %", f"= stablehlo.{other} %", 1)) != text:
                found = [*plan.computations]
                found[at] = replace(was, **{field: module_of(now)})
                return replace(plan, computations=tuple(found))
    raise AssertionError("no such operation")


def with_spare_computation(plan: Plan) -> Plan:
    """Adds a computation that no call uses."""
    return replace(plan, computations=(*plan.computations, replace(plan.computations[0], name="spare")))


DIFFERENCES = {
    "only lines": with_other_line,
    "what a computation does": with_other_module,
    "what it does on one device": lambda p: with_other_module(p, "local"),
    "a decision": lambda p: replace(p, decisions=p.decisions[:-1]),
    "a schedule's bubble": lambda p: replace(p, schedule=replace(p.schedule, bubble=0.75)),
    "the placement": lambda p: replace(p, placement=f"{p.placement}, or so"),
    "whether it is reproducible": lambda p: replace(p, reproducible=False),
    "a computation that nothing calls": with_spare_computation,
    "an unused schedule": lambda p: replace(p, schedule=Schedule("program", note="another note")),
}


@pytest.mark.long("the same differences with another option", keep=("option0-*",))
@pytest.mark.parametrize("difference", DIFFERENCES)
@pytest.mark.parametrize("option", [[], ["--summary"]])
def test_any_difference_exits_with_1(difference: str, option: list[str], moe_plan: Path, tmp_path: Path) -> None:
    plan = replace(load_plan(moe_plan), phases={})
    a, b = saved(plan, tmp_path / "a.bin"), saved(DIFFERENCES[difference](plan), tmp_path / "b.bin")
    for pair in ((a, b), (b, a)):
        exit_code, stdout, stderr = pwc_here("diff", *pair, *option)
        assert exit_code == 1 and stdout and "the plans are the same" not in stdout, stderr
    assert pwc_here("diff", b, b, *option) == (0, "the plans are the same\n", "")


def test_diff_reports_that_only_lines_or_operations_differ(moe_plan: Path, tmp_path: Path) -> None:
    plan = replace(load_plan(moe_plan), phases={})
    a, b = saved(plan, tmp_path / "a.bin"), saved(with_other_line(plan), tmp_path / "b.bin")
    exit_code, stdout, _ = pwc_here("diff", a, b)
    assert exit_code == 1 and stdout.startswith("nothing moved, nothing resharded, nothing reordered\n---")
    exit_code, stdout, _ = pwc_here("diff", a, b, "--summary")
    assert (exit_code, stdout) == (1, "nothing moved, nothing resharded, nothing reordered\n")
    exit_code, stdout, _ = pwc_here("diff", a, saved(with_other_module(plan), tmp_path / "c.bin"))
    assert exit_code == 1 and "computes   " in stdout and ": other operations" in stdout


PIPELINE = """
import jax
import pathways as pw

made = pw.make_virtual_device_set()
slices = [made.add_slice(devices=1) for _ in range(4)]


def loss(ws, x):
    for w in ws:
        x = jax.nn.relu(x @ w)
    return (x**2).mean()


staged = pw.pipeline(loss, slices, batch_argnums=(1,), microbatches=8)
rows = jax.ShapeDtypeStruct((16, 16), "float32")


@pw.program(example_args=([rows] * 4, rows))
def step(ws, x):
    return jax.value_and_grad(staged)(ws, x)
"""


@pytest.fixture(scope="module")
def schedules(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The files of one program under two schedules, with and without dumps, and on one island."""
    folder = tmp_path_factory.mktemp("schedules")
    (folder / "model.py").write_text(PIPELINE)
    options = {
        "gpipe": ("--schedule", "gpipe", "--with-phases"),
        "1f1b": ("--schedule", "1f1b", "--with-phases"),
        "one island": ("--schedule", "gpipe", "--topology", "devices=4"),
    }
    for name, chosen in options.items():
        code, _, stderr = pwc_here("compile", str(folder / "model.py"), "-o", str(folder / f"{name}.bin"), *chosen)
        assert code == 0, stderr
    return {name: str(folder / f"{name}.bin") for name in options}


def test_another_schedule_shows_the_calls_that_moved(schedules: dict[str, str]) -> None:
    code, printed, _ = pwc_here("diff", schedules["gpipe"], schedules["1f1b"])
    lines = printed.splitlines()
    assert code == 1 and len(lines) <= 200
    assert any(line.startswith("reordered  s2: ") and " calls moved; call " in line for line in lines)
    shown = [line for line in lines if line.startswith(("-s1: 1F", "+s1: 1F"))]
    assert (
        shown
        and len(shown) % 2 == 0
        and {line[1:] for line in shown if line[0] == "-"} == {line[1:] for line in shown if line[0] == "+"}
    ), "a call that moved is the same line in both plans"


def test_swapped_results_are_shown(schedules: dict[str, str], tmp_path: Path) -> None:
    plan = load_plan(Path(schedules["one island"]))
    first, second, *rest = plan.results
    assert first.name != second.name
    swapped = (replace(second, name=first.name), replace(first, name=second.name), *rest)
    other = saved(replace(plan, results=swapped), tmp_path / "swapped.bin")
    _, printed, _ = pwc_here("diff", schedules["one island"], other)
    assert "\n-result 0 " in printed and "\n+result 0 " in printed


def test_streams_that_wait_for_each_other_are_refused(schedules: dict[str, str]) -> None:
    """A value that comes from itself has no name."""
    plan = load_plan(Path(schedules["gpipe"]))
    kind = plan.streams[0].kinds[0]
    meshes = [next(i for i, m in enumerate(plan.meshes) if m.island == island) for island in ("island0", "island1")]
    group = (Buffers("v", "value", "o", (0,), 0, (-1,)),)
    streams = tuple(
        Stream(
            f"island{here}",
            kind.bytes,
            (replace(kind, layout=replace(kind.layout, mesh=meshes[here])),),
            group,
            (Recv(0, here, 0, f"island{1 - here}", None), Send(1, 1 - here, 0, f"island{1 - here}", None)),
        )
        for here in (0, 1)
    )
    with pytest.raises(PathwaysError) as caught:
        list(plan_lines(replace(plan, streams=streams, inputs=(), results=(), constant_buffers=())))
    assert caught.value.code == "PWC0604"


def test_a_value_that_is_copied_often_has_a_short_name(schedules: dict[str, str]) -> None:
    plan = load_plan(Path(schedules["one island"]))
    stream = plan.streams[0]
    groups = (Buffers("v" * 5_000, "value", "o", (0,), -1, (-1,)),)
    groups += tuple(Buffers("c", "copy", "o", (0,), step, (-1,)) for step in range(300))
    copies = tuple(Copy(step, step, step + 1, None) for step in range(300))
    chain = replace(stream, groups=groups, instructions=copies)
    lines = list(plan_lines(replace(plan, streams=(chain,), inputs=(), results=(), constant_buffers=())))
    assert max(map(len, lines)) < 400 and sum(line.startswith("copy v") for line in lines) == 300


def test_all_lines_are_printed_on_request(schedules: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pathways.cli.diff.MAX_PRINTED_LINES", 20)
    pair = schedules["gpipe"], schedules["1f1b"]
    cut, whole = (pwc_here("diff", *pair, *option)[1].splitlines() for option in ((), ("--all",)))
    assert cut[:20] == whole[:20] and cut[20:] == [f"... and {len(whole) - 20} more lines: --all"]


def test_another_placement_changes_no_call(schedules: dict[str, str]) -> None:
    """Transfers between islands become copies, and calls of one island are interleaved. The calls are the same."""
    _, printed, _ = pwc_here("diff", schedules["gpipe"], schedules["one island"], "--all")
    calls = [line for line in printed.splitlines() if re.match(r".s\d: \d[FB]\d ", line)]
    assert calls and sorted(line[1:] for line in calls if line[0] == "-") == sorted(
        line[1:] for line in calls if line[0] == "+"
    )
    assert "\n-send 0F0" in printed and "\n+copy 0F0" in printed


def test_plans_with_and_without_dumps_or_executables_are_the_same(tmp_path: Path) -> None:
    """Compiles one program plainly, with phase dumps, and with compiled executables."""
    paths: list[str] = []
    for number, options in enumerate(([], ["--with-phases"], ["--with-executables"])):
        paths.append(str(tmp_path / f"{number}.bin"))
        assert pwc_here("compile", str(SAMPLE), "-o", paths[-1], *options)[0] == 0
    for path in paths:
        assert pwc_here("diff", paths[0], path) == (0, "the plans are the same\n", "")
        assert pwc_here("diff", path, paths[0], "--summary")[0] == 0


def test_check_refuses_modules_of_another_computation(moe_plan: Path, tmp_path: Path) -> None:
    """All numbers of the plan agree, but a module is that of another computation, empty, or no module."""
    plan = load_plan(moe_plan)
    for name, change in (
        ("module", lambda c: replace(c, module=next(o for o in plan.computations if o.inputs != c.inputs).module)),
        ("no module", lambda c: replace(c, module=b"")),
        ("local", lambda c: replace(c, local=b"no module")),
    ):
        path = saved(with_first_computation(plan, change), tmp_path / f"{name}.bin")
        for command in ("check", "inspect", "run"):
            exit_code, stdout, stderr = pwc_here(command, path)
            assert exit_code == 3 and "error[PWC06" in stderr, (name, command)
            if command == "check":
                assert "ok  plan" in stdout and "ok  computations" not in stdout
    exit_code, stdout, _ = pwc_here("check", str(moe_plan))
    assert exit_code == 0 and f"{len(plan.computations)} modules have the types" in stdout
