"""Lets a separate process read the MLIR modules of a plan that another user wrote, before this process reads them.
MLIR's parser can crash on hostile input. `plan_file.py` calls it when it reads such a plan.

The vetting process costs 0.25 s, and more for large plans (`bench/loading.py`). If it crashes, the plan is refused, and
the error names the item that it was reading.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import jaxlib
import ml_dtypes
import numpy as np

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.errors import CannotVet, UnknownTarget, UnreadableModule, UnsafePlan
from pathways.dialect.plan import modules
from pathways.dialect.plan.modules.custom_calls import allowed_by_user
from pathways.dialect.plan.modules.stated_module import Stated, as_json
from pathways.dialect.plan.nouns import Computation, Plan

VET_SECONDS = 20
"""Limit of processor time; each MiB read adds 1 s. A module of 1 MiB takes about 0.2 s."""
MAX_VET_MEMORY_BYTES = 4 << 30
"""Limit of the address space in bytes; 64 times the bytes read are added. Libraries alone take 1 GiB of it."""
_MAX_ANSWER_BYTES = 1 << 20
_START = """
import sys, types
package = types.ModuleType("pathways")
package.__path__ = [sys.argv[1]]
sys.modules["pathways"] = package
sys.path.extend(sys.argv[2:])
from pathways.dialect.plan.modules.vetting_process import answer
answer()
"""
"""Starts the vetting process with an empty `pathways` package, because importing the real one imports JAX."""
MODULE_RULE = "modules that are safe for XLA: see docs/plan-files.md"


@dataclass(frozen=True)
class _Item:
    """An item to read: a module with its signature, or a dump without one."""

    name: str
    raw: bytes
    stated: Stated | None


@dataclass(frozen=True)
class Limits:
    """The time and memory that the vetting process may use."""

    seconds: int
    memory: int


def vetted(plan: Plan, path: str, limits: Limits | None = None) -> Plan:
    """Has a separate process read all modules and dumps, then returns the plan without its modules for one device.

    No rule can check a module for one device, so it is removed. It is derived again from the whole module, or not used.
    Raises PWC0604 or PWC0611 for a module that breaks a rule, PWC0609 for an unreadable item, and PWC0612 if no process
    can be started.
    """
    items = list(_items(plan))
    if limits is None:
        size = sum(len(i.raw) for i in items)
        limits = Limits(VET_SECONDS + (size >> 20), MAX_VET_MEMORY_BYTES + 64 * size)
    if items:
        _read_apart(items, path, plan.platform, limits)
    return replace(plan, computations=tuple(replace(c, local=b"") for c in plan.computations))


def stated_of(computation: Computation, platform: str) -> Stated:
    """Returns what a plan for `platform` states about the module of one of its computations."""
    return Stated(
        computation.inputs,
        computation.in_layouts,
        computation.outputs,
        computation.out_layouts,
        computation.donated,
        computation.axes,
        platform,
    )


def _items(plan: Plan) -> Iterator[_Item]:
    seen: set[tuple[bytes, Stated]] = set()
    for computation in plan.computations:
        stated = stated_of(computation, plan.platform)
        if (computation.module, stated) not in seen:
            seen.add((computation.module, stated))
            yield _Item(computation.name, computation.module, stated)
    for name, raw in plan.phases.items():
        yield _Item(f"the dump {name}", raw, None)


def _read_apart(items: Sequence[_Item], path: str, platform: str, limits: Limits) -> None:
    rows = [{"size": len(i.raw), "stated": None if i.stated is None else as_json(i.stated)} for i in items]
    order = {"items": rows, "allowed": allowed_by_user(), "seconds": limits.seconds, "memory": limits.memory}
    message = json.dumps(order).encode() + b"\n" + b"".join(i.raw for i in items)
    with tempfile.TemporaryFile() as request, tempfile.TemporaryFile() as answered, tempfile.TemporaryFile() as stderr:
        try:
            request.write(message)
            request.seek(0)
            code = _run(request, answered, stderr, limits)
        except OSError as error:
            raise _cannot(path, error.strerror or str(error)) from None
        answers = list(_answers(_head(answered)))
        if not answers:  # the process did not even announce an item
            last = _head(stderr).decode(errors="replace").strip().splitlines()[-1:]
            raise _cannot(path, f"it stopped with {_ending(code, limits)}: {''.join(last)[:200]}")
    last, reading = answers[-1], [a["reading"] for a in answers if isinstance(a.get("reading"), int)]
    if code == 0 and last.get("done") == len(items):
        return
    number = reading[-1] if reading and 0 <= reading[-1] < len(items) else 0
    raise _refused(items[number], path, platform, last, _ending(code, limits))


def _refused(item: _Item, path: str, platform: str, last: dict[str, Any], ending: str) -> PathwaysError:
    problem, target = last.get("problem"), last.get("target")
    if not isinstance(problem, str) or not isinstance(target, str):
        problem = f"the process that checks it stopped with {ending}"
        return PathwaysError(UnreadableModule(path=path, name=item.name, problem=problem))
    if target:
        return PathwaysError(UnknownTarget(path=path, name=item.name, target=target, platform=platform))
    return PathwaysError(UnsafePlan(path=path, problem=f"{item.name} {problem}", rule=MODULE_RULE))


def _run(request: IO[bytes], answered: IO[bytes], stderr: IO[bytes], limits: Limits) -> int:
    """Runs the vetting process and returns its exit code. Uses files, not pipes, so that neither end blocks the other.

    A process that waits forever is killed. The wait counts single seconds and reads no clock, so that time in which
    this process was stopped does not count. It waits for the end of a pipe that only the vetting process holds:
    `Popen.wait` with a timeout polls, and returns up to 50 ms late.
    """
    folders = dict.fromkeys(str(Path(str(m.__file__)).parent.parent) for m in (jaxlib, np, ml_dtypes))
    package = str(Path(str(modules.__file__)).parents[3])
    # -I: ignores the environment; -S: ignores site-packages' startup files, which may run any code
    command = [sys.executable, "-I", "-S", "-c", _START, package, *folders]
    alive, held = os.pipe()
    with open(alive, "rb") as end:
        pipe = select.poll()
        pipe.register(end, select.POLLIN)
        try:
            process = subprocess.Popen(command, stdin=request, stdout=answered, stderr=stderr, pass_fds=(held,))
        finally:
            os.close(held)
        with process:
            try:
                for _ in range(10 * limits.seconds):  # longer on a busy machine
                    if pipe.poll(1000) or process.poll() is not None:  # a fork of this process holds it
                        with contextlib.suppress(subprocess.TimeoutExpired):
                            return process.wait(timeout=1)
            finally:
                process.kill()  # has no effect if the process has exited
    return process.returncode


def _head(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read(_MAX_ANSWER_BYTES)


def _answers(raw: bytes) -> Iterator[dict[str, Any]]:
    """Yields the answers of the vetting process up to the first invalid one: hostile bytes may control the process."""
    for line in raw.splitlines():
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            return
        if not isinstance(answer, dict):
            return
        yield answer


def _ending(code: int, limits: Limits) -> str:
    if code == -signal.SIGXCPU:
        return f"no result after {limits.seconds} s of CPU time"
    if code == -signal.SIGKILL:
        return "no result, because it was killed"
    if code < 0:
        return f"signal {-code} ({signal.Signals(-code).name})"
    return f"exit code {code}"


def _cannot(path: str, problem: str) -> PathwaysError:
    return PathwaysError(CannotVet(path=path, problem=problem, command=sys.executable))
