"""Cores of test processes that crash, and their backtraces in the summary of a run.

A worker of pytest-xdist that crashes leaves a core in the folder of the run. The process that prints the summary reads
it with gdb, which `apt-get install gdb` brings. Processes that tests start leave none: some crash on purpose.
"""

import contextlib
import resource
import shutil
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

GDB_TIMEOUT_S = 120


def allow() -> None:
    """Has the kernel write a core when this process crashes."""
    with contextlib.suppress(OSError, ValueError):
        _, most = resource.getrlimit(resource.RLIMIT_CORE)
        resource.setrlimit(resource.RLIMIT_CORE, (most, most))


@contextlib.contextmanager
def none_for_children() -> Generator[None]:
    """Processes that are started within the block leave no cores."""
    limits = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, limits)


def cores_since(moment: float, folder: Path) -> list[Path]:
    """The cores that were written into a folder since a time of `time.time`."""
    found = [p for p in folder.glob("core*") if p.is_file() and p.stat().st_mtime >= moment]
    return [p for p in found if _is_core(p)]


def _is_core(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def print_backtraces(reporter: Any, moment: float, folder: Path) -> None:
    """Prints the stacks of all threads of each core."""
    for core in cores_since(moment, folder):
        reporter.section(f"core of a test process that crashed: {core}")
        reporter.line(backtrace(core))


def backtrace(core: Path) -> str:
    """The stacks of all threads in a core; what is missing where gdb is."""
    if shutil.which("gdb") is None:
        return "no gdb here to read it: apt-get install gdb"
    command = ["gdb", "-batch", "-nx", "-ex", "thread apply all backtrace 40", sys.executable, str(core)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=GDB_TIMEOUT_S, check=False)
    return done.stdout + done.stderr
