"""Runs code as the main module of a forked process, as the interpreter would (fork_server.py)."""

import contextlib
import importlib.util
import io
import os
import subprocess
import sys
import threading
import types
import warnings
from pathlib import Path
from typing import Any

from support import forked_python
from support.forked_python import ROOT, Job

SAVE_TIMEOUT_S = 10.0
SAVE_INTERVAL_S = 1.0
"""How often a measured process writes which lines it has run: a signal can end it at any time."""


def become(job: Job) -> None:
    """Runs a job as the main module of this process, as the interpreter would."""
    if job.new_session:
        os.setsid()
    os.chdir(job.folder)
    for name in set(os.environ) - set(job.environment):
        del os.environ[name]
    os.environ.update(job.environment)
    os.environ[forked_python.ADDRESS_VARIABLE] = forked_python.state.address
    _open_streams()
    if "-W" in job.options:
        sys.warnoptions[:] = ["error"]
        warnings.simplefilter("error")
    given = [p for p in job.environment.get("PYTHONPATH", "").split(os.pathsep) if p]
    first = (
        [] if "-P" in job.options else [os.getcwd() if job.kind == "-m" else "" if job.kind else _folder_of(job.target)]
    )
    base = [p for p in sys.path if p not in (str(ROOT), str(ROOT / "tests"), "", os.getcwd())]
    sys.path[:] = [*first, *(p for p in given if p not in base), *base]
    sys.argv[:] = [job.kind or job.target, *job.arguments]
    subprocess.Popen = forked_python.ForkedProcess
    _keep_lines_measured()
    main = types.ModuleType("__main__")  # stays until the process ends, as the interpreter's own does
    sys.modules["__main__"] = main
    exec(_code_of(job, main), main.__dict__)


def _keep_lines_measured() -> None:
    """Notes the lines that this process runs under the test that has started it, if lines are measured.

    Coverage writes at the interpreter's exit. Hosts and controllers end by `os._exit` or a signal, without that exit.
    """
    coverage = sys.modules.get("coverage")
    measured: Any = None if coverage is None else coverage.Coverage.current()
    if measured is None:
        return
    measured.switch_context(f"process of {os.environ.get('PYTEST_CURRENT_TEST', '').rpartition(' ')[0]}")
    exit_at_once, save_once, saving = os._exit, measured.save, threading.RLock()

    def save() -> None:
        if saving.acquire(timeout=SAVE_TIMEOUT_S):  # a fork may have come while a thread had it
            with contextlib.suppress(Exception):  # another thread may run a new line meanwhile
                save_once()
            saving.release()

    def exit_with_lines(code: int) -> None:
        save()
        exit_at_once(code)

    def save_often() -> None:
        never = threading.Event()
        while not never.wait(SAVE_INTERVAL_S):
            save()

    measured.save = save  # which coverage calls at the interpreter's exit, too
    os._exit = exit_with_lines  # pyright: ignore[reportAttributeAccessIssue]
    threading.Thread(target=save_often, name="coverage", daemon=True).start()


def _code_of(job: Job, main: types.ModuleType) -> types.CodeType:
    """Compiles what a job runs, and gives its main module the attributes that it has in a real start."""
    if job.kind == "-c":
        return compile(job.target, "<string>", "exec")
    if job.kind == "":
        main.__file__ = job.target
        return compile(Path(job.target).read_bytes(), job.target, "exec")
    sys.modules.pop(job.target, None)
    spec = importlib.util.find_spec(job.target)
    loader: Any = None if spec is None else spec.loader
    if spec is None or loader is None:
        raise ImportError(f"No module named {job.target}")
    if spec.submodule_search_locations is not None:
        raise ImportError(f"{job.target} is a package")
    main.__spec__, main.__package__, main.__file__ = spec, spec.parent, spec.origin
    sys.argv[0] = str(spec.origin)
    return loader.get_code(job.target)


def _folder_of(path: str) -> str:
    return str(Path(path).resolve().parent)


def _open_streams() -> None:
    """Opens the standard streams as the interpreter does."""
    stdin: Any = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, "r", closefd=False)), "utf-8")
    sys.stdin = sys.__stdin__ = stdin
    for number, name in ((1, "stdout"), (2, "stderr")):
        raw = io.BufferedWriter(io.FileIO(number, "w", closefd=False))
        errors = "strict" if number == 1 else "backslashreplace"
        lines = number == 2 or os.isatty(number)
        stream = io.TextIOWrapper(raw, "utf-8", errors, newline="\n", line_buffering=lines)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
