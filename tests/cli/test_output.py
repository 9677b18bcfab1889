"""Tests output to a full disk or a closed pipe: every command ends with its exit code and reports the reason."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.processes import ROOT, pwc_here

from pathways.cli.main import COMMANDS
from pathways.dialect.plan.plan_file import load_plan

RUN_COMMANDS = """
import json, sys
from pathways.cli.main import COMMANDS, main
codes = []
for arguments in json.loads(sys.argv[2]):
    try:
        main(arguments, prog_name="pwc")
    except SystemExit as end:
        codes.append(end.code)
    else:
        codes.append("no exit")
json.dump(codes, open(sys.argv[1], "w"))
"""
SOURCE = str(ROOT / "samples" / "figure2.py")
LOSS = f"{ROOT / 'tests' / 'support' / 'searched.py'}:loss"


def commands(folder: Path, moe_plan: Path) -> dict[str, tuple[list[str], int]]:
    """Returns every command with the exit code that it has when its output can be written."""
    written, dumps, other = folder / "written.bin", folder / "dumps", folder / "other.bin"
    assert pwc_here("compile", SOURCE, "-o", str(other), "--dump-phases-to", str(dumps))[0] == 0
    return {
        "help": (["--help"], 0),
        "version": (["--version"], 0),
        "compile": (["compile", SOURCE, "-o", str(written)], 0),
        "emit": (["compile", SOURCE, "--emit", "mpmd"], 0),
        "search": (["search", LOSS, "--topology", "devices=2", "--compiled", "0"], 0),
        "simulate": (["simulate", str(moe_plan)], 0),
        "run": (["run", str(moe_plan), "--outputs", str(folder / "out.npz")], 0),
        "check": (["check", str(moe_plan)], 0),
        "check refuses": (["check", str(moe_plan), "--topology", "islands=1,devices=1"], 5),
        "inspect": (["inspect", str(moe_plan), "--all"], 0),
        "viz": (["viz", str(moe_plan)], 0),
        "viz -o": (["viz", str(moe_plan), "--text", "-o", str(folder / "moe.html")], 0),
        "why": (["why", str(moe_plan)], 0),
        "why nothing": (["why", str(moe_plan), "nothing_of_this_name"], 2),
        "diff of equal ones": (["diff", str(moe_plan), str(moe_plan)], 0),
        "diff": (["diff", str(moe_plan), str(other)], 1),
        "opt": (["opt", str(dumps / "04.transfer.mlir"), "--pass-pipeline=order-calls"], 0),
        "passes": (["passes"], 0),
        "explain": (["explain"], 0),
        "a wrong option": (["inspect", str(moe_plan), "--wrong"], 2),
    }


def codes(
    folder: Path, wanted: list[list[str]], stdout: int, stderr: int = subprocess.PIPE
) -> tuple[list[object], str]:
    """Runs each command with these streams; returns the exit codes and the text printed on stderr."""
    result = folder / "codes.json"
    arguments = [sys.executable, "-c", RUN_COMMANDS, str(result), json.dumps(wanted)]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(arguments, env=env, check=False, timeout=600, text=True, stdout=stdout, stderr=stderr)
    assert done.returncode == 0, done.stderr
    return json.loads(result.read_text()), done.stderr or ""


@pytest.fixture
def full() -> Iterator[int]:
    """A file on a full disk."""
    with open("/dev/full", "wb", buffering=0) as file:
        yield file.fileno()


@pytest.fixture
def closed() -> Iterator[int]:
    """The write end of a pipe whose read end is closed."""
    reading, writing = os.pipe()
    os.close(reading)
    yield writing
    os.close(writing)


def test_every_command_without_a_cluster_is_covered(tmp_path: Path, moe_plan: Path) -> None:
    tried = {arguments[0] for arguments, _ in commands(tmp_path, moe_plan).values()}
    untested = {"doctor", "calibrate", "cluster", "proxy", "status", "stack", "top"}  # they need long-running processes
    assert set(COMMANDS) - tried == untested


def test_a_full_disk_is_reported_as_an_error(tmp_path: Path, moe_plan: Path, full: int) -> None:
    wanted = commands(tmp_path, moe_plan)
    got, stderr = codes(tmp_path, [a for a, _ in wanted.values()], stdout=full)
    silent = {"why nothing", "a wrong option"}  # they print only on stderr
    assert dict(zip(wanted, got, strict=True)) == {n: code or 1 for n, (_, code) in wanted.items()}
    assert "Traceback" not in stderr and "Exception ignored" not in stderr
    assert stderr.count("error[PWC0810]") == len(wanted) - len(silent)
    assert "No space left on device" in stderr
    assert load_plan(tmp_path / "written.bin").name == "f" and (tmp_path / "out.npz").is_file()


def test_a_closed_pipe_changes_no_exit_code(tmp_path: Path, moe_plan: Path, closed: int) -> None:
    wanted = commands(tmp_path, moe_plan)
    got, stderr = codes(tmp_path, [a for a, _ in wanted.values()], stdout=closed)
    assert dict(zip(wanted, got, strict=True)) == {n: code for n, (_, code) in wanted.items()}
    assert "Traceback" not in stderr and "Exception ignored" not in stderr and "PWC0810" not in stderr
    assert load_plan(tmp_path / "written.bin").name == "f" and (tmp_path / "out.npz").is_file()


@pytest.mark.parametrize("where", ["full", "closed"])
def test_errors_that_cannot_be_printed_keep_their_exit_code(
    where: str, tmp_path: Path, moe_plan: Path, request: pytest.FixtureRequest
) -> None:
    wanted = [(["explain", "PWC9999"], 2), (["check", str(moe_plan), "--topology", "devices=1"], 5)]
    stream = request.getfixturevalue(where)
    got, _ = codes(tmp_path, [a for a, _ in wanted], stdout=subprocess.DEVNULL, stderr=stream)
    assert got == [code for _, code in wanted]


def test_a_nonblocking_pipe_receives_the_whole_output(moe_plan: Path) -> None:
    """Prints more than a pipe holds, so that writes would block."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    arguments = ["-c", "from pathways.cli.main import main; main()", "inspect", str(moe_plan), "--ir", "plan"]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, *arguments], stdout=writing, env=env) as process:
        os.close(writing)
        with os.fdopen(reading, "rb") as file:
            read = file.read()
        assert process.wait(600) == 0
    assert read.decode() == pwc_here("inspect", str(moe_plan), "--ir", "plan")[1] and len(read) > 1 << 16


def test_json_errors_stay_json_when_the_disk_is_full(tmp_path: Path, full: int) -> None:
    got, stderr = codes(tmp_path, [["explain", "--error-format", "json"]], stdout=full)
    assert got == [1] and json.loads(stderr)["errors"][0]["code"] == "PWC0810"


def test_standard_input_that_is_closed_or_not_text_is_refused(tmp_path: Path) -> None:
    for stdin in (b"\xff\xfe", None):
        arguments = ["-c", "from pathways.cli.main import main; main()", "opt", "-"]
        command = " ".join(["exec", '"$0"', '"$@"', "<&-"]) if stdin is None else 'exec "$0" "$@"'
        env = os.environ | {"PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            ["sh", "-c", command, sys.executable, *arguments], input=stdin, capture_output=True, env=env, check=False
        )
        assert done.returncode == 2 and b"error[PWC0801]" in done.stderr and b"Traceback" not in done.stderr
