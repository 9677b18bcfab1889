"""Processes of this package: a module, started as this one was, that prints to a log."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

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
    paths = {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    found = {**os.environ, **paths, **environment}
    command = [sys.executable, "-P", "-m", module, *arguments]
    with log.open("ab") as out:
        return subprocess.Popen(command, stdin=stdin, stdout=out, stderr=out, env=found, start_new_session=True)


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
