"""Tests how a process of this package is started, and why one has ended, without starting any."""

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from pathways.runtime.launch import spawn
from pathways.runtime.launch.spawn import why_ended


def test_a_process_becomes_a_module_with_the_same_import_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    became: list[tuple[str, Sequence[str], str]] = []

    def execve(program: str, command: Sequence[str], environment: dict[str, str]) -> None:
        became.append((program, command, environment["PYTHONPATH"]))
        assert environment["ADDED"] == "kept"

    monkeypatch.setattr(os, "execve", execve)
    monkeypatch.setattr(sys, "path", ["", "/first", "/second"])
    monkeypatch.setenv("ADDED", "kept")
    spawn.become("a.module", ["--option", "value"])
    paths = os.pathsep.join(("/first", "/second"))
    command = [sys.executable, "-P", "-m", "a.module", "--option", "value"]
    assert became == [(sys.executable, command, paths)]


@pytest.mark.parametrize(
    ("code", "words", "why"),
    [
        (3, "", "it exited with code 3"),
        (-signal.SIGKILL, "", "it was killed by SIGKILL"),
        (1, "1\n2\n3\n4\n\n", "it exited with code 1: 2; 3; 4"),
    ],
)
def test_the_end_of_a_process_has_its_last_words(tmp_path: Path, code: int, words: str, why: str) -> None:
    log = tmp_path / "log"
    assert why_ended(code, log) == why.partition(":")[0]  # it has no log
    log.write_text(words)
    assert why_ended(code, log) == why
