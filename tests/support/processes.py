"""Runs Python files and `pwc` as users do, in a new process or in this process."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def run_python(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    env = os.environ | {"PYTHONPATH": str(ROOT)} | environment
    return subprocess.run(
        [sys.executable, "-W", "error", *arguments], capture_output=True, text=True, env=env, timeout=600, check=False
    )


def start_python(*arguments: str, **environment: str) -> "subprocess.Popen[str]":
    env = os.environ | {"PYTHONPATH": str(ROOT)} | environment
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, "-W", "error", *arguments], stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=env
    )


def pwc(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return run_python("-c", "from pathways.cli.main import main; main()", *arguments, **environment)


def pwc_here(*arguments: str, stdin: str = "") -> tuple[int, str, str]:
    """Runs `pwc` in this process; returns exit code, stdout and stderr."""
    from click.testing import CliRunner

    from pathways.cli.main import main

    done = CliRunner().invoke(main, list(arguments), input=stdin, prog_name="pwc")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout, done.stderr


def load_file(path: Path) -> Any:
    """Runs a Python file in this process and returns its module."""
    spec = importlib.util.spec_from_file_location(f"sample_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
