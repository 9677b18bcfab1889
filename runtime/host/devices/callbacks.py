"""Wraps the Python functions that computations call (`jax.pure_callback` and similar). While one runs, the watchdog
sees it, and an exception that it raises is kept for the user.

`host/run/fallible.py` creates the wrappers; the watchdog and hang reports read the callbacks that are running.

A module holds only the index of a callback. Only this process knows the functions, by number. So a plan with callbacks
cannot be saved, and every computation with callbacks may fail (see `host/run/progress.py`).
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
    """A callback that has started and not returned."""

    computation: str
    launch: str
    """The name of the computation whose launch called it."""
    thread: int
    native: int = field(default_factory=threading.get_native_id)
    """The operating system's id of the thread."""
    since: float = field(default_factory=time.monotonic)
    progress: Callable[[], object] | None = None
    """Returns a value that changes while the callback makes progress, if another process executes it.

    None: the CPU time of this thread shows the progress.
    """

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.since


_inside: dict[int, Inside] = {}


def inside() -> Iterator[Inside]:
    """Yields all callbacks that are running, oldest first."""
    yield from sorted(list(_inside.values()), key=lambda i: i.since)


def running_here() -> Inside | None:
    """Returns the callback that this thread is running, if any."""
    return _inside.get(threading.get_ident()) if _inside else None


@contextmanager
def running(call: Inside) -> Generator[None]:
    """Registers a callback that this thread runs. Callbacks may be nested."""
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
    """An exception, as text, that a callback raised in another process."""


MAX_REMEMBERED_TYPES = 256
"""Maximum number of exception classes that are kept by their texts."""
_types_raised: OrderedDict[str, type[Exception]] = OrderedDict()
"""Classes of exceptions that callbacks of this process raised, by the text that `describe_exception` returned."""


def describe_exception(raised: BaseException) -> str:
    """Formats an exception of a callback and its source line. `type_raised` finds the class by this text."""
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
    """Records, for one launch, the exceptions of a computation's callbacks and the duration of the longest one."""

    def __init__(self, *, on_one_device: bool = False) -> None:
        """`on_one_device`: the computation runs there alone, so that no other device waits for it."""
        self.on_one_device = on_one_device
        self.errors: list[BaseException] = []
        self.longest_s = 0.0
        self.is_over = True
        """Whether it is known that no device is inside of a callback."""

    def begin(self) -> list[BaseException]:
        """Starts a launch after all earlier ones completed; returns the list that will hold its exceptions."""
        self.errors = []
        self.longest_s = 0.0
        self.is_over = False
        return self.errors

    def end(self, errors: list[BaseException]) -> None:
        """Notes that the launch with these exceptions is over. It may have been followed by another launch.

        Forgets the exceptions: their frames would keep the program, and thus its code, forever.
        """
        if self.errors is errors:
            self.is_over, self.errors = True, []


class Watched:
    """A callback that the watchdog sees while it runs, and whose exceptions are kept.

    `results` are the types that the callback returns. If they are given, the callback returns zeros after an exception.
    The exception must not reach XLA, which would fail one device and leave the others in the next collective forever.
    The run that awaits the callback finds the exception, so the zeros are never seen. After an exception, no other
    callback of the launch is called, since its arguments may depend on the zeros. On a single device, the next callback
    fails the computation: with zeros, a loop might never end.
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
        """The record of the last launch, shared by all callbacks of the computation."""

    def __call__(self, *args: Any) -> Any:
        record, errors, begin = self.record, self.record.errors, time.perf_counter()
        if errors and self.results is not None:
            if record.on_one_device:
                raise RuntimeError(f"an earlier callback raised {type(errors[0]).__name__}")
            return _zeros(self.results)
        progress = getattr(self.function, "progress", None)
        try:
            with running(Inside(self.computation, self.launch, threading.get_ident(), progress=progress)):
                return self.function(*args)
        except BaseException as error:  # also SystemExit: a device must not wait forever
            errors.append(error)
            if self.results is None:
                raise RuntimeError(f"{type(error).__name__}: {error}") from error
            return _zeros(self.results)
        finally:
            record.longest_s = max(record.longest_s, time.perf_counter() - begin)


def _zeros(types: Sequence[ArrayType]) -> tuple[Any, ...]:
    return tuple(np.zeros(t.shape, numpy_dtype(t.dtype)) for t in types)


def result_types(module: bytes) -> dict[int, tuple[ArrayType, ...]]:
    """Returns the result types on one device of each callback of a module, by the callback's index."""
    found: dict[int, tuple[ArrayType, ...]] = {}

    def visit(op: Any) -> None:
        for region in op.regions:
            for block in region.blocks:
                for inner in block.operations:
                    visit(inner.operation)
        if op.name == "stablehlo.custom_call" and calls_back(op.attributes["call_target_name"].value.encode()):
            found[_index_of(op)] = tuple(from_mlir(r.type) for r in op.results)

    parsed = from_portable(module)
    visit(parsed.operation)
    return found


def _index_of(call: Any) -> int:
    """Returns the callback index of a custom call; -1 if it has none, so that it calls no function of this process."""
    for name in ("mhlo.backend_config", "backend_config"):  # JAX writes the first, StableHLO the second
        if name in call.attributes and isinstance(config := call.attributes[name], ir.DictAttr) and "index" in config:
            return int(config["index"].value)
    return -1
