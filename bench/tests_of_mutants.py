"""Runs tests in processes forked from one that has imported JAX and this project, each under one mutant."""

import contextlib
import importlib
import io
import os
import pkgutil
import re
import signal
import sys
import time
import traceback
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import pytest
from code_changes import ROOT, Functions, Mutant

_OPTIONS = [
    "--all",
    "-x",
    "-q",
    "-rf",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:xdist",
    "-p",
    "no:unraisableexception",
    "-p",
    "no:cov",
    "--no-header",
    "--tb=short",
    "--may-leave",
    "-W",
    "ignore::pytest.PytestAssertRewriteWarning",
]
_OUTCOMES = {0: "survived", 1: "killed", 2: "killed", 4: "not found", 5: "no test", 7: "no function"}
"""Names each exit code of pytest; a negative code is a crash of the process, which kills the mutant."""
_SLACK_S = 20.0
"""Seconds that tests may take under a mutant beyond four times what they take without one."""


def load_everything() -> None:
    """Imports all of this project and its tests, before any device is made."""
    sys.path[:0] = [str(ROOT / "tests")]
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    import pathways

    for module in pkgutil.walk_packages(pathways.__path__, "pathways."):
        if "ray_trial" not in module.name and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in ("pytest", "hypothesis", "numpy.testing", "jax.numpy", "click.testing", "optax", "flax.linen"):
        importlib.import_module(name)
    not_imported = _NotImported()
    with contextlib.redirect_stdout(io.StringIO()), _without_devices():
        pytest.main([*_OPTIONS, "--collect-only", "--maxfail=0"], plugins=[not_imported])
    for name, module in list(sys.modules.items()):  # pytest keeps what it has imported of these files
        if getattr(module, "__file__", None) in not_imported.files:
            del sys.modules[name]


class _NotImported:
    """Notes the test files that pytest could not import."""

    def __init__(self) -> None:
        self.files: set[str] = set()

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.files.add(str(ROOT / report.nodeid))


@contextlib.contextmanager
def _without_devices() -> Generator[None]:
    """Makes the creation of devices fail, since a process that has devices cannot be forked.

    A test file whose import makes arrays cannot be imported then. The forked processes that need it import it.
    """
    from pathways.runtime.host.devices import pjrt

    def refuse(count: int) -> Any:
        raise RuntimeError("this process makes no devices")

    make_devices, pjrt.make_devices = pjrt.make_devices, refuse
    config: Any = jax.config
    platforms = config.jax_platforms
    config.update("jax_platforms", "none")
    try:
        yield
    finally:
        pjrt.make_devices = make_devices
        config.update("jax_platforms", platforms)


@dataclass
class Runner:
    """Runs tests under mutants, and once without a mutant if it seems to be killed."""

    functions: Functions
    seconds: dict[str, float]
    """Gives the seconds that each test takes without a mutant."""
    log: Path
    """The file of what the last tests printed."""
    _fail_anyway: set[str] = field(default_factory=set[str])
    """Tests that fail here without a mutant, too: a forked process differs from the process of a test command."""
    _checked: set[str] = field(default_factory=set[str])
    _killers: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """The tests that killed mutants of each file, the last first."""

    def judge(self, tests: Sequence[str], mutant: Mutant) -> tuple[str, float]:
        """Runs tests under a mutant; returns its outcome, and the seconds that it took.

        The first few tests run alone: most mutants are killed there, and other files need not be collected.
        """
        begin, came, size = time.monotonic(), "no test", 6
        killers = self._killers.setdefault(mutant.file, [])
        left = [t for t in tests if t not in self._fail_anyway]
        left.sort(key=lambda t: t not in killers[:6])
        while left:
            chunk = left[:size]
            came = self._run(chunk, mutant)
            if came.startswith("killed") and self._fails_anyway(chunk):
                left = [t for t in left if t not in self._fail_anyway]
                came = "no test"
                continue
            if came != "survived":
                killers[:0] = [t for t in self._failed(chunk) if t not in killers]
                break
            left, size = left[size:], 40
        return came, time.monotonic() - begin

    def _fails_anyway(self, chunk: Sequence[str]) -> bool:
        """Whether one of the tests that killed a mutant fails without it, too; records such tests."""
        suspects = [t for t in self._failed(chunk) or chunk if t not in self._checked]
        bad = [t for t in suspects if self._run([t], None) != "survived"]
        for test in bad:
            print("fails without a mutant, too:", test, flush=True)
        self._fail_anyway.update(bad)
        self._checked.update(suspects)
        return bool(bad)

    def _failed(self, chunk: Sequence[str]) -> list[str]:
        """Lists the tests of a chunk that the last run says have failed."""
        said = self.log.read_text(errors="replace")
        return [t for t in re.findall(r"^(?:FAILED|ERROR) (\S+::.+?)(?: - .*)?$", said, re.M) if t in chunk]

    def _run(self, tests: Sequence[str], mutant: Mutant | None) -> str:
        """Runs tests in a forked process."""
        pid = os.fork()
        if pid == 0:
            os.setsid()
            code = 9
            try:
                out = self.log.open("w")
                os.dup2(out.fileno(), 1)
                os.dup2(out.fileno(), 2)
                changed = 1 if mutant is None else self.functions.become(mutant)
                importlib.import_module("support.fork_server").serve_from_a_fork()
                code = int(pytest.main([*_OPTIONS, *tests])) if changed else 7
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                os._exit(code)
        expected = sum(self.seconds.get(test, 1.0) for test in tests)
        return _ended(pid, time.monotonic() + _SLACK_S + 4.0 * expected)


def _ended(pid: int, until: float) -> str:
    """Waits for a process until a deadline, kills its group, and returns the outcome."""
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            _kill_group(pid)
            code = os.waitstatus_to_exitcode(status)
            return _OUTCOMES.get(code, "killed" if code < 0 else "error")
        if time.monotonic() > until:
            _kill_group(pid)
            os.waitpid(pid, 0)
            return "killed by time"
        time.sleep(0.01)


def _kill_group(pid: int) -> None:
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)
