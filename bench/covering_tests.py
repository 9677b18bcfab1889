"""Records the tests that run each line of the code and the time of each test; chooses the tests for a line.

`bench/mutants.py` uses it. This file is also a plugin of pytest, which adds up the times.
"""

import collections
import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import coverage
import pytest

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "build" / "mutants"
"""The folder in which `record` writes `coverage` and `seconds.json`."""
BUDGET_S = 20.0
"""Seconds of tests for one line, from `make test`, and as many again from those that only `make test-all` has."""
_NOT_FORKED = "tests/ifrt_proxy/"
"""The folder of tests that start processes of unmodified JAX. These fail if a forked process starts them."""
_PROCESS = "process of "
"""Begins the context of lines that a process of a test runs (tests/support/main_module.py)."""


@dataclass(frozen=True, eq=False)
class Records:
    """Finds the tests that run each line. Holds the seconds of each test, and the tests of `test-all` alone."""

    seconds: dict[str, float]
    long: frozenset[str]
    _of_file: dict[str, list[str]]
    _measured: dict[str, str]
    """The name under which coverage knows each file."""
    _contexts: Callable[[str], dict[int, list[str]]]
    """Returns the contexts of each line of a file. It keeps those of the last file only: a record has gigabytes."""

    @classmethod
    def read(cls) -> "Records":
        known = json.loads((RECORD / "seconds.json").read_text())
        seconds = {test: time for test, time in known["seconds"].items() if not test.startswith(_NOT_FORKED)}
        of_file: dict[str, list[str]] = collections.defaultdict(list)
        for test in seconds:
            of_file[test.partition("::")[0]].append(test)
        data: Any = coverage.CoverageData(str(RECORD / "coverage"))
        data.read()
        measured = {
            os.path.relpath(file, ROOT) if os.path.isabs(file) else file: file for file in data.measured_files()
        }
        contexts = functools.lru_cache(maxsize=1)(data.contexts_by_lineno)
        return cls(seconds, frozenset(known["long"]), of_file, measured, contexts)

    def tests_of(self, file: str, line: int, budget: float, *, long: bool) -> list[str]:
        """Lists the tests that run a line, within a budget in seconds, the cheapest first."""
        found: set[str] = set()
        for context in self._contexts(self._measured[file]).get(line, ()) if file in self._measured else ():
            test = context.removeprefix(_PROCESS).rpartition("|")[0] or context.removeprefix(_PROCESS)
            # A process outlives the test that starts it, so any test of the same file may run the line.
            shared = context.startswith(_PROCESS)
            found.update(self._of_file.get(test.partition("::")[0], ()) if shared else [test])
        chosen: list[str] = []
        for test in sorted(found & self.seconds.keys(), key=lambda t: _price(t, file, self.seconds[t])):
            if (test in self.long) == long:
                budget -= self.seconds[test]
                if budget < 0:
                    break
                chosen.append(test)
        return chosen


def _price(test: str, file: str, seconds: float) -> float:
    """Ranks a test of a line: its seconds, a tenth of them if its folder mirrors that of the source file."""
    return seconds * (0.1 if Path(test).parent == Path("tests") / Path(file).parent else 1.0)


def record(folders: tuple[str, ...], files: tuple[str, ...] = ()) -> None:
    """Runs all tests once, with coverage by test of these folders; or only `files`, which it adds to the record."""
    before: dict[str, float] = json.loads((RECORD / "seconds.json").read_text())["seconds"] if files else {}
    RECORD.mkdir(parents=True, exist_ok=True)
    everything, quick = _collected("--all"), _collected()
    if not files:
        for old in (*RECORD.glob("coverage*"), RECORD / "seconds.json"):
            old.unlink(missing_ok=True)
    settings = RECORD / "coveragerc"
    include = "".join(f"\n  {folder}/*" for folder in folders)
    settings.write_text(
        f"[run]\nbranch = True\nrelative_files = True\nparallel = True\npatch = subprocess, fork\n"
        f"data_file = {RECORD / 'coverage'}\ndisable_warnings = no-data-collected,module-not-measured\n"
        f"include ={include}\n"
    )
    paths = [str(ROOT / "bench"), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    tests = [sys.executable, "-m", "pytest", "-q", "-n", "3", "--dist", "loadfile"]
    measured = ["--cov", f"--cov-config={settings}", "--cov-branch", "--cov-context=test", "--cov-report="]
    measured.append("--cov-append")  # else the worker that replaces a crashed one erases what others have recorded
    subprocess.run([*tests, "--all", "-p", "covering_tests", *measured, *files], cwd=ROOT, env=environment, check=False)
    taken: dict[str, float] = json.loads((RECORD / "seconds.json").read_text())["seconds"]
    seconds = {test: time for test, time in (before | taken).items() if test in everything}
    text = json.dumps({"seconds": seconds, "long": sorted(set(seconds) - quick)})
    (RECORD / "seconds.json").write_text(text)


def _collected(*options: str) -> set[str]:
    """Returns the names of all tests that pytest collects with these options."""
    listed = [sys.executable, "-m", "pytest", "-q", "--collect-only", *options]
    lines = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return {line for line in lines if "::" in line}


_taken: dict[str, float] = collections.defaultdict(float)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Adds up the seconds of each test; one that fails is left out by its budget."""
    _taken[report.nodeid] += report.duration if report.outcome != "failed" else 1e6


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Writes the seconds of all tests."""
    if not hasattr(session.config, "workerinput"):
        (RECORD / "seconds.json").write_text(json.dumps({"seconds": _taken}))
