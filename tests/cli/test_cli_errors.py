"""Tests errors of `pwc` that need a case of their own, and which files refused options leave."""

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from support.processes import ROOT, pwc_here

import pathways as pw
from pathways.cli import doctor
from pathways.cli.explain import catalogs
from pathways.dialect.phases import Phase
from pathways.dialect.plan.plan_file import load_plan, write_plan

SAMPLE = str(ROOT / "samples" / "mixture_of_experts.py")
in_own_process = doctor._in_own_process  # pyright: ignore[reportPrivateUsage]
PIPELINE = str(ROOT / "tests" / "golden" / "errors" / "schedule-unsuitable.py")


@pytest.mark.long("more platforms of the same kind", keep=("tpu",))
@pytest.mark.parametrize("platform", ["gpu", "tpu", "abacus"])
def test_running_a_plan_for_another_platform_exits_with_6(platform: str, moe_plan: Path, tmp_path: Path) -> None:
    path = tmp_path / "plan.bin"
    path.write_bytes(write_plan(replace(load_plan(moe_plan), platform=platform)))
    exit_code, _, stderr = pwc_here("run", str(path))
    assert exit_code == 6 and "error[PWC0605]" in stderr
    assert f"the platform {platform}" in stderr and "runs on cpu" in stderr
    with pytest.raises(pw.PathwaysError, match="PWC0605"):
        pw.load(path)
    assert pwc_here("inspect", str(path))[0] == 0  # inspecting needs no device


def test_a_plan_compiled_for_another_platform_is_refused_when_run(tmp_path: Path) -> None:
    path = tmp_path / "plan.bin"
    arguments = ("compile", SAMPLE, "--platform", "tpu", "--topology", "islands=3,devices=2", "-o", str(path))
    exit_code, _, stderr = pwc_here(*arguments)
    assert exit_code == 0, stderr
    exit_code, _, stderr = pwc_here("run", str(path))
    assert exit_code == 6 and "error[PWC0605]" in stderr


@pytest.mark.long("a model is compiled for it: 6 s")
def test_printing_a_phase_that_the_plan_lacks_is_refused(moe_plan: Path, tmp_path: Path) -> None:
    plan = load_plan(moe_plan)
    without = tmp_path / "without.bin"
    without.write_bytes(write_plan(replace(plan, phases={})))
    for phase in Phase:
        exit_code, stdout, stderr = pwc_here("inspect", str(without), "--ir", phase.value)
        assert (exit_code, stdout) == (2, "") and "error[PWC0805]" in stderr and "dumps: none" in stderr
        assert pwc_here("inspect", str(moe_plan), "--ir", phase.value)[0] == 0
    some = tmp_path / "some.bin"
    some.write_bytes(write_plan(replace(plan, phases={k: v for k, v in plan.phases.items() if "trace" in k})))
    exit_code, _, stderr = pwc_here("inspect", str(some), "--ir", "plan")
    assert exit_code == 2 and "dumps: 01.trace.mlir" in stderr and "--with-phases" in stderr
    for pair in ((moe_plan, without), (without, moe_plan)):
        exit_code, _, stderr = pwc_here("diff", *map(str, pair), "--ir", "shard")
        assert exit_code == 2 and "error[PWC0805]" in stderr


def test_doctor_counts_failed_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    well = doctor.Check("python", lambda: ("3.11", ""))
    crashing = doctor.Check("devices", lambda: in_own_process("import os; os._exit(7)", "another driver"))
    killed = doctor.Check("run", lambda: in_own_process("import os; os.kill(os.getpid(), 9)", "file a bug"))
    monkeypatch.setattr(doctor, "CHECKS", (well, crashing, killed))
    exit_code, stdout, stderr = pwc_here("doctor")
    assert exit_code == 3 and "error[PWC0809]: 2 of the checks" in stderr
    lines = stdout.splitlines()
    assert [line[:4] for line in lines] == ["ok  ", "BAD ", "    ", "BAD ", "    "]
    assert "exit code 7" in lines[1] and "another driver" in lines[2]
    assert "killed by signal 9" in lines[3] and "file a bug" in lines[4]
    monkeypatch.setattr(doctor, "CHECKS", (well,))
    assert pwc_here("doctor")[0] == 0


_WITH_FIXED_DEVICES = """
from dataclasses import replace
from pathways.dialect.platforms import PLATFORMS
PLATFORMS["cpu"] = replace(PLATFORMS["cpu"], made_at_will=None, apart=0)
"""


@pytest.mark.long("more counts of devices", keep=("1-*",))
@pytest.mark.parametrize(
    ("devices", "said"),
    [(1, "one slice of the only device"), (2, "two slices of 1, a transfer"), (4, "two slices of 2, a transfer")],
)
def test_doctor_runs_a_program_on_any_number_of_devices(
    devices: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Treats CPU devices like those of a GPU host, whose number is fixed."""
    monkeypatch.setenv("XLA_FLAGS", f"--xla_force_host_platform_device_count={devices}")
    found, advice = in_own_process(_WITH_FIXED_DEVICES + doctor._TWO_SLICES, "file a bug")  # pyright: ignore[reportPrivateUsage]
    assert advice == "" and found.startswith(f"{said}, results correct: "), found


def test_doctor_reports_a_check_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "CHECK_SECONDS", 0.5)
    hanging = doctor.Check(
        "run", lambda: in_own_process("import threading; threading.Event().wait()", "another driver")
    )
    monkeypatch.setattr(doctor, "CHECKS", (hanging,))
    exit_code, stdout, stderr = pwc_here("doctor")
    assert exit_code == 3 and "no answer for 0.5 s" in stdout and "error[PWC0809]: 1 of" in stderr


def test_errors_of_every_layer_are_in_the_catalogs() -> None:
    modules = {cls.__module__ for cls in catalogs()}
    for layer in ("dialect", "compiler", "runtime", "cli", "pathways/api"):
        for file in (ROOT / layer).rglob("errors.py"):
            name = file.relative_to(ROOT).with_suffix("").as_posix().removeprefix("pathways/").replace("/", ".")
            assert f"pathways.{name}" in modules


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder in which `tempfile` creates files."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.mark.parametrize(
    ("source", "options", "code"),
    [
        (SAMPLE, ["--placement", "nothing"], "PWC0307"),
        (SAMPLE, ["--placement", "nothing.py:place"], "PWC0307"),
        (SAMPLE, ["--placement", "pinned"], "PWC0306"),
        (SAMPLE, ["--layout", "route"], "PWC0308"),
        (SAMPLE, ["--schedule", "nothing"], "PWC0405"),
        (SAMPLE, ["--schedule", "nothing.csv"], "PWC0403"),
        (SAMPLE, ["--emit-schedule", "/tmp/nowhere.csv"], "PWC0406"),
        (SAMPLE, ["--topology", "nothing"], "PWC0704"),
        (SAMPLE, ["--pass-pipeline", "nothing"], "PWC0705"),
        (SAMPLE, ["--compile-to", "nothing"], ""),
        (SAMPLE, ["-o", "/nowhere/plan.bin"], "PWC0606"),
        (PIPELINE, ["--schedule", "1f1b"], "PWC0404"),
        (PIPELINE, ["--schedule", "gpipe", "--emit-schedule", "/nowhere/s.csv"], "PWC0606"),
    ],
)
def test_a_refused_option_leaves_no_temporary_files(source: str, options: list[str], code: str, scratch: Path) -> None:
    exit_code, _, stderr = pwc_here("compile", source, *options)
    assert exit_code in (2, 3) and (not code or f"error[{code}]" in stderr), stderr
    assert not list(scratch.iterdir()) and "note:" not in stderr


def test_a_failed_pass_saves_its_input(scratch: Path, tmp_path: Path) -> None:
    """Covers a program that does not fit, a placement that raises, and a user's pass that raises."""
    mine = tmp_path / "mine.py"
    mine.write_text(
        "from pathways.compiler.passes.base import Pass\n"
        "def place(graph, topology):\n    raise KeyError('mine')\n"
        "class Broken(Pass):\n"
        "    name, requires, ensures = 'broken', 'shard', 'shard'\n"
        "    def apply(self, program, session):\n        raise KeyError('mine')\n"
    )
    for count, options in enumerate(
        (
            ["--topology", "devices=1"],
            ["--placement", f"{mine}:place"],
            ["--pass-pipeline", f"propagate-shardings,{mine}:Broken"],
        ),
        1,
    ):
        exit_code, _, stderr = pwc_here("compile", SAMPLE, *options)
        assert exit_code in (3, 5) and "this command reproduces the error: pwc opt" in stderr
        assert len(list(scratch.iterdir())) == count


def test_a_named_reproducer_folder_is_written_even_for_a_refused_option(tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    assert pwc_here("compile", SAMPLE, "--schedule", "nothing", "--crash-reproducer", str(saved))[0] == 2
    assert (saved / "reproduce.sh").is_file()


def test_why_suggests_the_nearest_known_lines(moe_plan: Path) -> None:
    plan = load_plan(moe_plan)
    lines = sorted({d.where.line for d in plan.decisions if d.where is not None})
    file = "mixture_of_experts.py"
    for spelled in (file, f"samples/{file}", str(ROOT / "samples" / file)):
        for line in lines:
            exit_code, stdout, _ = pwc_here("why", str(moe_plan), f"{spelled}:{line}")
            assert exit_code == 0 and f"{file}:{line}" in stdout
    missing = next(n for n in range(lines[0] + 1, lines[-1] + 2) if n not in lines)
    exit_code, _, stderr = pwc_here("why", str(moe_plan), f"{file}:{missing}")
    assert exit_code == 2 and "error[PWC0807]" in stderr
    (offered,) = [line for line in stderr.splitlines() if line.startswith("  try:")]
    found = [int(word.rpartition(":")[2]) for word in offered.removeprefix("  try:").partition(";")[0].split(",")]
    nearest = min(lines, key=lambda n: abs(n - missing))
    assert nearest in found and set(found) <= set(lines) and f"{file}:{nearest}" in offered
    exit_code, _, stderr = pwc_here("why", str(moe_plan), "no_such_file.py:3")
    assert exit_code == 2 and f"{file}:" in stderr


def test_a_reference_run_of_a_program_that_calls_back_is_refused(tmp_path: Path) -> None:
    """`jax.export` has no functions of this process: the reference run would end it."""
    source = tmp_path / "model.py"
    source.write_text(
        "import jax, numpy as np, pathways as pw\n"
        "@pw.program(example_args=(np.ones(4, np.float32),))\n"
        "def step(x):\n"
        "    jax.debug.print('sum {}', x.sum())\n"
        "    return 2 * x\n"
    )
    code, _, stderr = pwc_here("run", str(source), "--reference")
    assert code == 2 and "error[PWC0811]" in stderr and "model.py:4" in stderr
    assert pwc_here("run", str(source))[0] == 0
