"""Shells complete commands and options of `pwc`, by click."""

import subprocess
import sys
from pathlib import Path

import pytest

PWC = str(Path(sys.executable).parent / "pwc")


def completed(shell: str, words: str, number: int) -> list[str]:
    """Returns what is offered in place of the word of this number."""
    env = {"_PWC_COMPLETE": f"{shell}_complete", "COMP_WORDS": words, "COMP_CWORD": str(number), "PATH": ""}
    done = subprocess.run([PWC], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    return [line.partition(",")[2] for line in done.stdout.splitlines()]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(shell: str) -> None:
    env = {"_PWC_COMPLETE": f"{shell}_source", "PATH": "/usr/bin:/bin"}
    done = subprocess.run([PWC], capture_output=True, text=True, env=env, check=False)
    assert "_pwc_completion" in done.stdout


def test_commands_options_and_choices_are_completed() -> None:
    assert completed("bash", "pwc comp", 1) == ["compile"]
    assert "--schedule" in completed("bash", "pwc compile --sch", 2)
    assert completed("bash", "pwc compile --platform cp", 3) == ["cpu"]
