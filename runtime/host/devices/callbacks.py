"""Host callbacks (`jax.pure_callback` and its like): functions of this process that computations call.

A module holds only their index; the functions are known by number, to this process alone. That is why a plan with
callbacks cannot be saved, and why everything that calls back may fail: see `progress.py`.
"""

import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pathways.dialect.dtypes import ArrayType, from_mlir, numpy_dtype
from pathways.dialect.host_callbacks import calls_back
from pathways.dialect.mlir import from_portable, ir


@dataclass(frozen=True)
class Inside:
    """A callback that is running: it has not returned."""

    computation: str
    launch: str
    """The name of the computation in whose launch it is."""
    thread: int
    native: int = field(default_factory=threading.get_native_id)
    """The operating system's number of the thread."""
    since: float = field(default_factory=time.monotonic)
    progress: Callable[[], object] | None = None
    """Says what changes while it gets on, where another process executes it; None: this thread's CPU time shows it."""

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.since


_inside: dict[int, Inside] = {}


def inside() -> Iterator[Inside]:
    """Yields all callbacks that run now, oldest first."""
    yield from sorted(list(_inside.values()), key=lambda i: i.since)


def running_here() -> Inside | None:
    """Returns the callback that this thread is running."""
    return _inside.get(threading.get_ident()) if _inside else None


@contextmanager
def running(call: Inside) -> Generator[None]:
    """Notes that this thread runs a callback, in which there may be another."""
    before = _inside.get(call.thread)
    _inside[call.thread] = call
    try:
        yield
    finally:
        if before is None:
            _inside.pop(call.thread, None)
        else:
            _inside[call.thread] = before


class RaisedElsewhere(Exception):
    """An exception that a callback has raised in another process, as text."""


def said_of(raised: BaseException) -> str:
    """What an exception of a callback was, and where it was raised."""
    if isinstance(raised, RaisedElsewhere):
        return str(raised)
    frames = traceback.extract_tb(raised.__traceback__)
    at = f", raised at {frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name}" if frames else ""
    return f"{type(raised).__name__}: {raised}{at}"


class Watched:
    """A callback that the watchdog sees while it runs, and whose exceptions are kept.

    With `results`, the types that it returns, an exception does not reach XLA, which would fail one device and leave
    the others in the next collective for ever: it returns zeros instead, and the run that awaits it finds the
    exception, so that the zeros are never seen.
    """

    def __init__(
        self, function: Callable[..., Any], computation: str, results: Sequence[ArrayType] | None = None
    ) -> None:
        self.function = function
        self.computation = self.launch = computation
        self.results = results
        self.errors: list[BaseException] = []
        """Exceptions of the last launch."""

    def begin(self) -> list[BaseException]:
        """Starts a launch, when all before are done; returns the list that will hold its exceptions."""
        self.errors = []
        return self.errors

    def __call__(self, *args: Any) -> Any:
        progress = getattr(self.function, "progress", None)
        try:
            with running(Inside(self.computation, self.launch, threading.get_ident(), progress=progress)):
                return self.function(*args)
        except BaseException as error:  # SystemExit, too: a device must not stay inside for ever
            self.errors.append(error)
            if self.results is None:
                raise RuntimeError(f"{type(error).__name__}: {error}") from error
            return tuple(np.zeros(t.shape, numpy_dtype(t.dtype)) for t in self.results)


def result_types(module: bytes) -> dict[int, tuple[ArrayType, ...]]:
    """Returns the result types of each callback of a module, on one device, by its index."""
    found: dict[int, tuple[ArrayType, ...]] = {}

    def look(op: Any) -> None:
        for region in op.regions:
            for block in region.blocks:
                for inner in block.operations:
                    look(inner.operation)
        if op.name == "stablehlo.custom_call" and calls_back(op.attributes["call_target_name"].value.encode()):
            found[_index_of(op)] = tuple(from_mlir(r.type) for r in op.results)

    parsed = from_portable(module)
    look(parsed.operation)
    return found


def _index_of(call: Any) -> int:
    """Returns the index of a custom call's callback; -1: it states none, so it is no callback of this process."""
    for name in ("mhlo.backend_config", "backend_config"):  # the first where JAX wrote it, the second is StableHLO's
        if name in call.attributes and isinstance(config := call.attributes[name], ir.DictAttr) and "index" in config:
            return int(config["index"].value)
    return -1
