"""Host callbacks (`jax.pure_callback` and its like): functions of this process that computations call.

A module holds only their index; the functions are known by number, to this process alone. That is why a plan with
callbacks cannot be saved, and why everything that calls back may fail: see `progress.py`.
"""

import threading
import time
import traceback
from collections import OrderedDict
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


MAX_REMEMBERED_TYPES = 256
"""The most classes of exceptions that are remembered by their texts."""
_types_raised: OrderedDict[str, type[Exception]] = OrderedDict()
"""Classes of exceptions that callbacks of this process have raised, by what `said_of` says of them."""


def said_of(raised: BaseException) -> str:
    """Describes an exception of a callback, and where it was raised; `type_raised` finds its class by this text."""
    if isinstance(raised, RaisedElsewhere):
        return str(raised)
    frames = traceback.extract_tb(raised.__traceback__)
    at = f", raised at {frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name}" if frames else ""
    text = f"{type(raised).__name__}: {raised}{at}"
    if isinstance(raised, Exception):
        _types_raised[text] = type(raised)
        while len(_types_raised) > MAX_REMEMBERED_TYPES:
            _types_raised.popitem(last=False)
    return text


def type_raised(text: str) -> type[Exception] | None:
    """Finds the class of an exception that a callback of this process raised, by the text that describes it."""
    return _types_raised.get(text)


class CallbackRecord:
    """Records what the callbacks of a computation do in one launch: their exceptions, and the longest time of one."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []
        self.longest_s = 0.0

    def begin(self) -> list[BaseException]:
        """Starts a launch, when all before are done; returns the list that will hold its exceptions."""
        self.errors = []
        self.longest_s = 0.0
        return self.errors


class Watched:
    """A callback that the watchdog sees while it runs, and whose exceptions are kept.

    With `results`, the types that it returns, an exception does not reach XLA, which would fail one device and leave
    the others in the next collective for ever: it returns zeros instead, and the run that awaits it finds the
    exception, so that the zeros are never seen. No callback of the launch is called after that: its arguments may
    follow from the zeros.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        computation: str,
        results: Sequence[ArrayType] | None = None,
        record: CallbackRecord | None = None,
    ) -> None:
        self.function = function
        self.computation = self.launch = computation
        self.results = results
        self.record = record or CallbackRecord()
        """The record of the last launch, which all callbacks of the computation share."""

    def __call__(self, *args: Any) -> Any:
        record, errors, begin = self.record, self.record.errors, time.perf_counter()
        if errors and self.results is not None:
            return _zeros(self.results)
        progress = getattr(self.function, "progress", None)
        try:
            with running(Inside(self.computation, self.launch, threading.get_ident(), progress=progress)):
                return self.function(*args)
        except BaseException as error:  # SystemExit, too: a device must not stay inside for ever
            errors.append(error)
            if self.results is None:
                raise RuntimeError(f"{type(error).__name__}: {error}") from error
            return _zeros(self.results)
        finally:
            record.longest_s = max(record.longest_s, time.perf_counter() - begin)


def _zeros(types: Sequence[ArrayType]) -> tuple[Any, ...]:
    return tuple(np.zeros(t.shape, numpy_dtype(t.dtype)) for t in types)


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
