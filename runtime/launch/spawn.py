"""Processes of this package: a module, started as this one was, that prints to a log."""

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
    """Starts a module of this package in a session of its own; what it prints goes behind what the log has.

    `environment` is what it finds there beside what this one has. Raises OSError.
    """
    command, paths = _started_as(module, arguments)
    found = {**paths, **environment}
    with log.open("ab") as out:
        return subprocess.Popen(command, stdin=stdin, stdout=out, stderr=out, env=found, start_new_session=True)


def become(module: str, arguments: Sequence[str]) -> NoReturn:
    """Makes this process one of a module, with its number, its terminal and its signals. Raises OSError."""
    command, environment = _started_as(module, arguments)
    os.execve(command[0], command, environment)


def _started_as(module: str, arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The command and the environment of a module that finds what this process does."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    return [sys.executable, "-P", "-m", module, *arguments], environment


def last_words(log: Path) -> str:
    """The end of what a process has printed."""
    with contextlib.suppress(OSError):
        return "; ".join(log.read_text(errors="replace").strip().splitlines()[-3:])
    return ""


def why_ended(code: int, log: Path) -> str:
    """Why a process has ended, by its exit code, with its last words."""
    why = f"it was killed by {signal.Signals(-code).name}" if code < 0 else f"it ended with {code}"
    words = last_words(log)
    return f"{why}: {words}" if words else why


def await_end(pid: int, seconds: float | None = None) -> None:
    """Waits until a process has ended, or so many seconds. Raises OSError where there is none."""
    end = os.pidfd_open(pid)
    try:
        select.select([end], [], [], seconds)
    finally:
        os.close(end)
