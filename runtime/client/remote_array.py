"""Arrays that another process has: known here by number, and by the run that makes them."""

import contextlib
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from pathways.dialect.activities import ELSEWHERE, Activity
from pathways.dialect.diagnostics import Diagnostic, PathwaysError
from pathways.dialect.dtypes import ArrayType, numpy_dtype
from pathways.runtime.monitor import Gate


class RemoteRun:
    """A run of a plan, as far as one host executes it: a future."""

    __slots__ = ("_cancel", "_ended", "_first", "_waits", "cancelled", "causes", "everything", "found")

    def __init__(self, cancel: Callable[[Diagnostic], bool] | None = None) -> None:
        """`cancel` tells all hosts of the run that it is; None: nothing of it waits for values."""
        self._ended = False
        self._waits: list[Gate] = []
        """Of who waits for its end, one a wait: most runs are not waited for, and an Event takes 5 us to make."""
        self._first = [True]
        self._cancel = cancel
        self.cancelled: Diagnostic | None = None
        self.causes: dict[int, Diagnostic] = {}
        """Why results will never be there, by number."""
        self.everything: Diagnostic | None = None
        """Why none will, where the host is gone."""
        self.found: tuple[int, Diagnostic] | None = None
        """What was looked for in its steps, and found first: at which step, and what is said of it."""

    def end(
        self,
        causes: dict[int, Diagnostic],
        everything: Diagnostic | None = None,
        found: tuple[int, Diagnostic] | None = None,
    ) -> bool:
        """Says what has become of it; the first call counts. Returns True: nothing more will be said of it."""
        with contextlib.suppress(IndexError):
            self._first.pop()  # two threads may say it at once
            self.causes, self.everything, self.found = causes, everything, found
            self._ended = True
            while self._waits:
                self._waits.pop().open()
        return True

    def is_ready(self) -> bool:
        return self._ended or self.cancelled is not None

    def block_until_ready(self) -> None:
        """Waits for its end, good or bad."""
        if not self._ended:
            self._waits.append(gate := Gate())
            if not self._ended:  # else who has ended it may not have seen the gate
                with Activity("a run waits for its turn", unit=ELSEWHERE):
                    gate.pass_through()

    def wait_for_results(self) -> None:
        """Waits until its results are there, or will never be."""
        if self.cancelled is None:
            self.block_until_ready()

    def cancel(self, cause: Diagnostic) -> bool:
        """Ends its loops on data, on all hosts; returns False where it has none, or has ended on all of them."""
        return self._cancel is not None and self._cancel(cause)

    def cause(self, result: int) -> Diagnostic | None:
        return self.cancelled or self.everything or self.causes.get(result)


class Parts:
    """The futures of one run with loops on data, a part for each of its hosts: it is cancelled as a whole."""

    def __init__(self, tell: Callable[[Diagnostic], None]) -> None:
        """`tell` ends its loops on all hosts; it may be called again."""
        self._tell = tell
        self._parts: list[RemoteRun] = []

    def add(self) -> RemoteRun:
        """Makes the future of what one host executes of the run."""
        self._parts.append(part := RemoteRun(self._cancel))
        return part

    def _cancel(self, cause: Diagnostic) -> bool:
        running = [part for part in self._parts if not part.is_ready()]
        for part in running:
            part.cancelled = cause
        if running:
            self._tell(cause)
        return bool(running)


class ArrayStore(Protocol):
    """The arrays of a host in another process (client/remote/remote_island.py)."""

    def free(self, number: int) -> None:
        """Says that no run will name an array again; may be called anywhere, also by the garbage collector."""
        ...

    def fetch(self, number: int, shard: int) -> "tuple[tuple[int, ...], bytes]":
        """Copies an array, or one of its shards, to this process: its shape and its values."""
        ...

    def copy(self, number: int) -> int:
        """Copies an array on its host; returns the number of the copy."""
        ...

    @property
    def lost(self) -> Diagnostic | None:
        """Why the host is gone; None while it is there."""
        ...


class RemoteArray:
    """One array on a host: a future, as an array on a device of this process is one. Its death frees the array.

    `carried`: the message with the values of an array that is sent with the first run that reads it. Until then the
    host does not know the array, so no other message may name it.
    """

    __slots__ = ("_result", "_run", "carried", "number", "store", "type")

    def __init__(
        self, store: ArrayStore, number: int, type_: ArrayType, run: RemoteRun | None = None, result: int = -1,
        *, carried: Any = None,
    ) -> None:  # fmt: skip
        self.store = store
        self.number = number
        self.type = type_
        self._run = run
        self._result = result
        self.carried = carried

    def __del__(self) -> None:
        self.store.free(self.number)

    def is_ready(self) -> bool:
        return self._run is None or self._run.is_ready()

    def is_deleted(self) -> bool:
        return False

    def failure(self) -> Diagnostic | None:
        """Why it will never be there, where that is known."""
        return self._run.cause(self._result) if self._run is not None and self._run.is_ready() else None

    def block_until_ready(self) -> None:
        """Waits for the run that makes it. Raises the first cause where it will never be there."""
        if self._run is not None:
            self._run.wait_for_results()
            if (cause := self._run.cause(self._result)) is not None:
                raise PathwaysError(cause)
        if (lost := self.store.lost) is not None:
            raise PathwaysError(lost)

    def fetch(self, shard: int = -1) -> "np.ndarray[Any, Any]":
        """Waits for it, and copies it, or one of its shards, to this process."""
        self.block_until_ready()
        shape, raw = self.store.fetch(self.number, shard)
        return np.frombuffer(raw, numpy_dtype(self.type.dtype)).reshape(shape)

    def copied(self) -> "RemoteArray":
        """A copy on its host, made behind all runs that were started before."""
        return RemoteArray(self.store, self.store.copy(self.number), self.type, self._run, self._result)
