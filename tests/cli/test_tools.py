"""Tests the tools of the compiler: IR printing, timing, reproducers, `check`, `why`, `diff`, and errors as JSON."""

import json
import os
import shlex
import zipfile
from pathlib import Path

import pytest
from support.processes import pwc_here

from pathways.dialect.plan.plan_file import load_plan

MACHINES = ("--topology", "islands=2,devices=4")


@pytest.fixture(scope="module")
def sample(request: pytest.FixtureRequest) -> str:
    return str(request.path.parents[2] / "samples" / "mixture_of_experts.py")


@pytest.fixture(scope="module")
def dumps(sample: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dumps")
    assert pwc_here("compile", sample, *MACHINES, "--dump-phases-to", str(folder))[0] == 0
    return folder


def compiled(sample: str, path: Path, *options: str) -> str:
    """Compiles a source to a plan file and returns the text printed on stdout."""
    exit_code, stdout, stderr = pwc_here("compile", sample, *MACHINES, "-o", str(path), *options)
    assert exit_code == 0, stderr
    return stdout


def test_ir_is_printed_before_and_after_passes_and_on_changes(dumps: Path, tmp_path: Path) -> None:
    pipeline = "--pass-pipeline=propagate-shardings,place,insert-transfers"
    trace = str(dumps / "01.trace.mlir")
    _, _, stderr = pwc_here(
        "opt", trace, pipeline, *MACHINES, "--print-ir-before", "place", "--print-ir-after", "place"
    )
    assert stderr.count("// ----- before place -----") == 1 == stderr.count("// ----- after place -----")
    _, _, stderr = pwc_here("opt", trace, pipeline, *MACHINES, "--print-ir-after-change")
    assert stderr.count("// -----") == 3
    schedule = str(dumps / "04.transfer.mlir")
    _, _, stderr = pwc_here("opt", schedule, "--pass-pipeline=order-calls", "--print-ir-tree-dir", str(tmp_path))
    assert [p.name for p in tmp_path.iterdir()] == ["01.order-calls.mlir"]
    assert pwc_here("opt", str(tmp_path / "01.order-calls.mlir"))[0] == 0


def test_a_pass_that_changes_nothing_is_not_printed(dumps: Path) -> None:
    from pathways.compiler.instruments import Printer
    from pathways.compiler.passes.base import Pass, Session
    from pathways.compiler.passes.order_calls import OrderCalls
    from pathways.dialect.ir.program import ProgramIR
    from pathways.dialect.mlir import make_context, parse

    program = ProgramIR(parse((dumps / "05.schedule.mlir").read_text(), make_context()))
    said: list[str] = []
    printer = Printer(changed=True, echo=said.append)
    step: Pass = OrderCalls()
    printer.before(step, program, Session())
    step.apply(program, Session())
    printer.after(step, program)
    assert not said


def test_timing_and_pass_statistics_are_printed(dumps: Path) -> None:
    _, _, stderr = pwc_here(
        "opt", str(dumps / "03.place.mlir"), "--pass-pipeline=insert-transfers", "--timing", "--pass-statistics"
    )
    assert "insert-transfers" in stderr and "100.0%" in stderr
    (row,) = [line.split() for line in stderr.splitlines() if "pw.transfer" in line]
    assert row[2] == "0" and int(row[3]) > 0 and row[4] == f"+{row[3]}"


def test_a_failure_can_be_reproduced(sample: str, tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text("def place(graph, topology):\n    return 1 / 0\n")
    folder = tmp_path / "saved"
    exit_code, _, stderr = pwc_here(
        "compile", sample, *MACHINES, "--placement", f"{bad}:place", "--crash-reproducer", str(folder)
    )
    assert exit_code == 3 and "this command reproduces the error: pwc opt" in stderr
    command = shlex.split((folder / "reproduce.sh").read_text())
    assert command[0] == "pwc" and str(folder / "02.shard.mlir") in command
    exit_code, _, again = pwc_here(*command[1:])
    assert exit_code == 3 and f"{bad}:2" in again and "ZeroDivisionError" in again
    bad.write_text("from pathways.compiler.placement import POLICIES\nplace = POLICIES['spread']\n")
    assert pwc_here(*command[1:])[0] == 0


def test_a_failure_is_saved_in_a_temporary_folder_by_default(sample: str) -> None:
    _, _, stderr = pwc_here("compile", sample, "--topology", "devices=1")
    (note,) = [line for line in stderr.splitlines() if line.startswith("note: ")]
    saved = next(word for word in shlex.split(note) if word.endswith("02.shard.mlir"))
    assert Path(saved).is_file() and os.path.basename(os.path.dirname(saved)).startswith("pwc-")


def test_opt_splits_input_files_and_verifies_expected_errors(dumps: Path, tmp_path: Path) -> None:
    good = (dumps / "04.transfer.mlir").read_text().rstrip()
    path = tmp_path / "several.mlir"
    path.write_text(f"{good}\n// -----\n{good}\n")
    exit_code, stdout, _ = pwc_here("opt", str(path), "--split-input-file", "--pass-pipeline=order-calls")
    assert exit_code == 0 and stdout.count("// -----\n") == 1 and stdout.count('pw.phase = "schedule"') == 2
    wrong = (
        'module attributes {pw.phase = "trace"} {\n'
        "  // expected-error@+1 {{is not an op of this dialect}}\n"
        '  "pw.wrong"() : () -> ()\n}\n'
    )
    path.write_text(f"{good}\n// -----\n{wrong}")
    verify = ("opt", str(path), "--split-input-file", "--verify-diagnostics")
    assert pwc_here(*verify) == (0, "", "")
    path.write_text(f"{good}\n// -----\n{wrong.replace('@+1', '@+2')}")
    exit_code, _, stderr = pwc_here(*verify)
    assert exit_code == 3 and "was not raised" in stderr and "an unexpected error" in stderr
    path.write_text(f"{good} // expected-error {{{{nothing like it}}}}\n")
    exit_code, _, stderr = pwc_here(*verify)
    assert exit_code == 3 and "PWC0808" in stderr and "no error" in stderr
    path.write_text(f"{wrong}// -----\n{good}\n// -----\n{wrong}")
    exit_code, stdout, stderr = pwc_here("opt", str(path), "--split-input-file")
    assert exit_code == 3 and stderr.count("error[PWC0701]") == 2 and "pw.call" in stdout


def test_check_accepts_sources_dumps_and_plans_that_fit(sample: str, dumps: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.bin"
    compiled(sample, plan)
    for source in (sample, str(dumps / "03.place.mlir"), str(plan)):
        exit_code, stdout, stderr = pwc_here("check", source)
        assert exit_code == 0, stderr
        assert all(line.startswith("ok ") for line in stdout.splitlines()) and "one order" in stdout
    assert pwc_here("check", str(plan), *MACHINES)[0] == 0
    exit_code, _, stderr = pwc_here("check", str(plan), "--topology", "islands=2,devices=2")
    assert exit_code == 5 and "PWC0607" in stderr and "has 2 devices too few" in stderr
    exit_code, _, stderr = pwc_here("check", sample, "--topology", "devices=2")
    assert exit_code == 5 and "PWC0301" in stderr
    plan.write_bytes(plan.read_bytes()[:-30])
    assert pwc_here("check", str(plan))[0] == 3


def test_why_prints_the_reason_of_every_decision(sample: str, tmp_path: Path) -> None:
    plan = tmp_path / "plan.bin"
    said = compiled(sample, plan, "--explain", "--placement", "min-cut")
    decisions = load_plan(plan).decisions
    kinds = {d.kind for d in decisions}
    assert {"slice", "call", "transfer"} <= kinds and all(d.reason for d in decisions)
    assert all(d.runner_up for d in decisions)
    for decision in decisions:
        exit_code, stdout, _ = pwc_here("why", str(plan), decision.name)
        assert exit_code == 0 and f"{decision.kind} {decision.name}: " in stdout
        assert decision.reason in stdout and decision.reason in said
    at = decisions[0].where
    assert at is not None and pwc_here("why", str(plan), f"{Path(at.file).name}:{at.line}")[0] == 0
    row = json.loads(pwc_here("why", str(plan), "s0", "--json")[1])
    assert row["version"] == 2 and row["decisions"][0]["runner_up"] and row["placement"].startswith("min-cut")
    exit_code, _, stderr = pwc_here("why", str(plan), "exprts")
    assert exit_code == 2 and "PWC0807" in stderr and "experts" in stderr


def test_every_reshard_is_listed_with_bytes_and_line(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(
        "import jax, jax.numpy as jnp\n"
        "from jax.sharding import NamedSharding, PartitionSpec as P\n"
        "import pathways as pw\n"
        "mesh = pw.make_virtual_device_set().add_slice(devices=2).mesh('x')\n"
        "rows, columns = (NamedSharding(mesh, s) for s in (P('x', None), P(None, 'x')))\n"
        "f = jax.jit(jnp.sin, in_shardings=rows, out_shardings=rows)\n"
        "g = jax.jit(jnp.cos, in_shardings=columns)\n"
        "@pw.program(example_args=(jax.ShapeDtypeStruct((256, 256), 'float32'),))\n"
        "def step(x):\n"
        "    y = f(x)\n"
        "    return g(y)\n"
    )
    exit_code, stdout, stderr = pwc_here("compile", str(path))
    assert exit_code == 0, stderr
    assert "reshard  1 inside slices, 128.0 KiB a run" in stdout
    (row,) = [line for line in stdout.splitlines() if f"{path}:11" in line]
    assert "s0(x, -) -> s0(-, x) by ici" in row and "128.0 KiB" in row and "cos takes it" in row


def test_diff_prints_moves_and_changed_instructions(sample: str, tmp_path: Path) -> None:
    a, b = tmp_path / "a.bin", tmp_path / "b.bin"
    compiled(sample, a, "--with-phases")
    assert pwc_here("diff", str(a), str(a)) == (0, "the plans are the same\n", "")
    compiled(sample, b, "--with-phases", "--layout", "route | experts experts")
    exit_code, stdout, _ = pwc_here("diff", str(a), str(b))
    lines = stdout.splitlines()
    assert exit_code == 1 and lines[0].startswith("moved      s") and any(line.startswith("bytes ") for line in lines)
    assert any(line.startswith("@@") for line in lines[2:])
    _, stdout, _ = pwc_here("diff", str(a), str(b), "--summary")
    assert "@@" not in stdout
    exit_code, stdout, _ = pwc_here("diff", str(a), str(b), "--ir", "shard")
    assert exit_code == 1 and "@@" not in stdout  # the dumps before placement are the same


def test_errors_are_printed_as_json_on_request(sample: str, tmp_path: Path) -> None:
    for arguments in (("compile", sample, "--topology", "devices=1", "--error-format", "json"),
                      ("--error-format=json", "compile", sample, "--topology", "devices=1")):  # fmt: skip
        exit_code, _, stderr = pwc_here(*arguments)
        row = json.loads(stderr)
        assert exit_code == 5 and row["version"] == 2 and row["errors"][0]["code"] == "PWC0301"
        assert row["errors"][0]["where"]["line"] > 0 and "pwc opt" in row["notes"][0]


def test_a_plan_keeps_its_decisions_in_a_small_file(sample: str, tmp_path: Path) -> None:
    plan = tmp_path / "plan.bin"
    compiled(sample, plan)
    assert load_plan(plan).decisions and load_plan(plan).placement.startswith("spread: about ")
    with zipfile.ZipFile(plan) as archive:
        assert len(archive.read("plan.pb")) < 100_000


USER_PASSES = """
from dataclasses import dataclass

from pathways.compiler.passes.base import Pass
from pathways.dialect.ir import pw
from pathways.dialect.phases import Phase


@dataclass(frozen=True)
class Spaced(Pass):
    name = "spaced"
    requires = Phase.TRANSFER
    ensures = Phase.SCHEDULE
    by: int = 2
    quietly: bool = False

    def apply(self, program, session):
        for step, op in enumerate(program.nodes()):
            op.step = step * self.by
            if isinstance(op, pw.CallOp):
                op.dispatch = "parallel"
        program.phase = Phase.SCHEDULE


@dataclass(frozen=True)
class Wrong(Spaced):
    def apply(self, program, session):
        program.phase = Phase.SCHEDULE


@dataclass(frozen=True)
class Broken(Spaced):
    def apply(self, program, session):
        return program.nothing_of_this_name


@dataclass(frozen=True)
class Renamed(Pass):
    name = "renamed"
    requires = Phase.SHARD
    ensures = Phase.SHARD

    def apply(self, program, session):
        for op in program.slices.values():
            op.prefer = "gpu"
"""
FIRST_PASSES, LAST_PASS = "propagate-shardings,{mine}:Renamed,place,insert-transfers", "plan-islands"


@pytest.mark.long("a model of another library is compiled: 1 to 60 s each")
def test_a_users_pass_replaces_a_built_in_pass(sample: str, tmp_path: Path) -> None:
    mine, plan = tmp_path / "mine.py", tmp_path / "plan.bin"
    mine.write_text(USER_PASSES)
    before = FIRST_PASSES.format(mine=mine)
    said = compiled(sample, plan, "--pass-pipeline", f"{before},{mine}:Spaced{{by=3 quietly=True}},{LAST_PASS}")
    assert "spaced" in said and "renamed" in said
    steps = {i.step for s in load_plan(plan).streams for i in s.instructions}
    assert all(step % 3 == 0 for step in steps) and {s.prefer for s in load_plan(plan).slices} == {"gpu"}
    assert pwc_here("run", str(plan), "--reference")[0] == 0
    for pipeline, code, exit_code in (
        (f"{before},{mine}:Wrong,{LAST_PASS}", "PWC0701", 3),
        (before, "PWC0703", 3),
        (f"{before},{mine}:Missing", "PWC0705", 2),
        (f"{before},{mine}:dataclass", "PWC0705", 2),
        (f"{before},nowhere.py:Pass", "PWC0705", 2),
        (f"{before},{mine}:Spaced{{to=3}}", "PWC0705", 2),
        (f"{before},{mine}:Spaced{{by=three}}", "PWC0705", 2),
        (f"{before},{mine}:Spaced{{quietly=maybe}}", "PWC0705", 2),
        (f"{before},{mine}:Broken,{LAST_PASS}", "PWC0706", 3),
    ):
        got, _, stderr = pwc_here("compile", sample, *MACHINES, "--pass-pipeline", pipeline)
        assert got == exit_code and f"error[{code}]" in stderr, (pipeline, stderr)
        if code == "PWC0706":
            assert f"{mine}:" in stderr and "nothing_of_this_name" in stderr and "Traceback" not in stderr
    assert pwc_here("compile", sample, "--pass-pipeline", before, "--placement", "spread")[0] == 2
    saved = tmp_path / "saved"
    pipeline = f"{before},{mine}:Wrong{{by=5}}"
    _, _, first = pwc_here("compile", sample, *MACHINES, "--pass-pipeline", pipeline, "--crash-reproducer", str(saved))
    command = shlex.split((saved / "reproduce.sh").read_text())
    exit_code, _, again = pwc_here(*command[1:])
    assert exit_code == 3 and first.splitlines()[0] == again.splitlines()[0] and "by=5" in " ".join(command)
