"""Defines futures for arrays and runs on hosts in other processes. The client knows only their ids, and fetches values
on request. The remote engine creates the arrays, and `Attached` creates the runs.

`client/arrays.py` gives the rest of the client the same interface as for local arrays.
"""

import contextlib
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from pathways.dialect.activities import ELSEWHERE, Activity
from pathways.dialect.diagnostics import Diagnostic, PathwaysError
from pathways.dialect.dtypes import ArrayType, numpy_dtype
from pathways.runtime.monitor import Gate


class RemoteRun:
    """A future of one host's partition of a run."""

    __slots__ = ("_cancel", "_ended", "_first", "_waits", "cancelled", "causes", "everything", "found")

    def __init__(self, cancel: Callable[[Diagnostic], bool] | None = None) -> None:
        """`cancel` cancels the run on all of its hosts. None: nothing in the run waits for values."""
        self._ended = False
        self._waits: list[Gate] = []
        """One gate per waiting thread. Most runs have no waiting thread, and creating an Event takes 5 us."""
        self._first = [True]
        self._cancel = cancel
        self.cancelled: Diagnostic | None = None
        self.causes: dict[int, Diagnostic] = {}
        """Errors of results that are never computed, by result number."""
        self.everything: Diagnostic | None = None
        """The error of all results, if the host is lost."""
        self.found: tuple[int, Diagnostic] | None = None
        """The first step in which a requested check (NaN, infinity) failed, and its diagnostic."""

    def end(
        self,
        causes: dict[int, Diagnostic],
        everything: Diagnostic | None = None,
        found: tuple[int, Diagnostic] | None = None,
    ) -> bool:
        """Records the run's outcome; only the first call has an effect. Returns True: no more messages follow."""
        with contextlib.suppress(IndexError):
            self._first.pop()  # two threads may call it at once
            self.causes, self.everything, self.found = causes, everything, found
            self._ended = True
            while self._waits:
                self._waits.pop().open()
        return True

    def is_ready(self) -> bool:
        return self._ended or self.cancelled is not None

    def block_until_ready(self) -> None:
        """Waits until the run completes or fails."""
        if not self._ended:
            self._waits.append(gate := Gate())
            if not self._ended:  # otherwise `end` may have missed the gate
                with Activity("a run waits in the queue", unit=ELSEWHERE):
                    gate.pass_through()

    def wait_for_results(self) -> None:
        """Waits until the results are computed or have failed."""
        if self.cancelled is None:
            self.block_until_ready()

    def cancel(self, cause: Diagnostic) -> bool:
        """Ends the run's data-dependent loops on all hosts; returns False if it has none or is complete."""
        return self._cancel is not None and self._cancel(cause)

    def cause(self, result: int) -> Diagnostic | None:
        return self.cancelled or self.everything or self.causes.get(result)


class Parts:
    """The futures of one run with data-dependent loops, one per host. The run is cancelled as a whole."""

    def __init__(self, notify: Callable[[Diagnostic], None]) -> None:
        """`tell` ends the run's loops on all hosts. It may be called repeatedly."""
        self._notify = notify
        self._parts: list[RemoteRun] = []

    def add(self) -> RemoteRun:
        """Creates the future of one host's partition of the run."""
        self._parts.append(part := RemoteRun(self._cancel))
        return part

    def _cancel(self, cause: Diagnostic) -> bool:
        running = [part for part in self._parts if not part.is_ready()]
        for part in running:
            part.cancelled = cause
        if running:
            self._notify(cause)
        return bool(running)


class ArrayStore(Protocol):
    """The arrays of an island in another process (client/remote/remote_island.py)."""

    def free(self, number: int) -> None:
        """Frees an array that no run will name again. Any thread and the garbage collector may call it."""
        ...

    def fetch(self, number: int, shard: int) -> "tuple[tuple[int, ...], bytes | memoryview]":
        """Copies an array or one shard to this process; returns its shape and its values."""
        ...

    def copy(self, number: int, shard: int) -> int:
        """Copies an array or one shard on its host; returns the number of the copy."""
        ...

    @property
    def lost(self) -> Diagnostic | None:
        """Returns why the host is lost, None while it is connected."""
        ...


class RemoteArray:
    """A future of one array on a host, like a `jax.Array` in this process. Its deletion frees the array on the host.

    `carried`: the message with the array's values, if the values are sent with the first run that reads the array.
    Until then the host does not know the array, so no other message may name it.
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
        """Returns the error of an array that is never computed, None if no error is known."""
        return self._run.cause(self._result) if self._run is not None and self._run.is_ready() else None

    def block_until_ready(self) -> None:
        """Waits for the run that makes the array. Raises the first cause if the array is never computed."""
        if self._run is not None:
            self._run.wait_for_results()
            if (cause := self._run.cause(self._result)) is not None:
                raise PathwaysError(cause)
        if (lost := self.store.lost) is not None:
            raise PathwaysError(lost)

    def fetch(self, shard: int = -1) -> "np.ndarray[Any, Any]":
        """Waits for the array and copies it, or one of its shards, to this process."""
        self.block_until_ready()
        shape, raw = self.store.fetch(self.number, shard)
        return np.frombuffer(memoryview(raw).toreadonly(), numpy_dtype(self.type.dtype)).reshape(shape)

    def copied(self, shard: int = -1, type_: ArrayType | None = None) -> "RemoteArray":
        """Copies the array, or a shard of this type, on its host, after all runs that were started before."""
        number = self.store.copy(self.number, shard)
        return RemoteArray(self.store, number, type_ or self.type, self._run, self._result)
