"""Host callbacks (`jax.pure_callback` and its like): functions of this process that computations call.

A module holds only their index; the functions are known by number, to this process alone. That is why a plan with
callbacks cannot be saved, and why everything that calls back may fail: see `progress.py`.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
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
        thread = threading.get_ident()
        before = _inside.get(thread)
        _inside[thread] = Inside(self.computation, self.launch, thread)
        try:
            return self.function(*args)
        except BaseException as error:  # SystemExit, too: a device must not stay inside for ever
            self.errors.append(error)
            if self.results is None:
                raise RuntimeError(f"{type(error).__name__}: {error}") from error
            return tuple(np.zeros(t.shape, numpy_dtype(t.dtype)) for t in self.results)
        finally:
            if before is None:
                _inside.pop(thread, None)
            else:
                _inside[thread] = before


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
