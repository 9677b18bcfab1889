"""Starts a module of this package as a process, with the same Python and paths as this one, and waits for its exit. All
launchers and `pwc` call it.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NoReturn

_NOTHING: Mapping[str, str] = MappingProxyType({})


def spawn(
    module: str,
    arguments: Sequence[str],
    log: Path,
    stdin: int = subprocess.DEVNULL,
    environment: Mapping[str, str] = _NOTHING,
) -> "subprocess.Popen[bytes]":
    """Starts a module of this package in its own session; appends its output to the log.

    `environment` is added to this process's environment. Raises OSError.
    """
    command, paths = _started_as(module, arguments)
    found = {**paths, **environment}
    with log.open("ab") as out:
        return subprocess.Popen(command, stdin=stdin, stdout=out, stderr=out, env=found, start_new_session=True)


def become(module: str, arguments: Sequence[str]) -> NoReturn:
    """Replaces this process by a module; keeps its process id, terminal and signals. Raises OSError."""
    command, environment = _started_as(module, arguments)
    os.execve(command[0], command, environment)


def _started_as(module: str, arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Returns the command and environment of a module that uses the same import paths as this process."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    return [sys.executable, "-P", "-m", module, *arguments], environment


def last_words(log: Path) -> str:
    """Returns the last lines of a process's log."""
    with contextlib.suppress(OSError):
        return "; ".join(log.read_text(errors="replace").strip().splitlines()[-3:])
    return ""


def why_ended(code: int, log: Path) -> str:
    """Returns why a process has exited, from its exit code and the end of its log."""
    why = f"it was killed by {signal.Signals(-code).name}" if code < 0 else f"it exited with code {code}"
    words = last_words(log)
    return f"{why}: {words}" if words else why


def await_end(pid: int, seconds: float | None = None) -> None:
    """Waits until a process has exited, or `seconds` have passed. Raises OSError if there is none."""
    end = os.pidfd_open(pid)
    try:
        select.select([end], [], [], seconds)
    finally:
        os.close(end)
