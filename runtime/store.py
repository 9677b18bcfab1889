"""Buffers that outlive a run: opaque handles with reference counts on the logical buffer, not on shards.

A handle may be shared by several holders (a value returned twice, an argument returned as it is, a constant). What is
shared is never overwritten: donating such a buffer donates a copy.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pathways.dialect.diagnostics import PathwaysError, Where
from pathways.dialect.dtypes import ArrayType
from pathways.dialect.sharding import Sharding
from pathways.runtime import pjrt
from pathways.runtime.errors import ComputationFailed, UsedAfterDonation


@dataclass(frozen=True)
class Poison:
    """What stands in a slot whose computation failed: the first cause, for everybody downstream."""

    cause: ComputationFailed

    def error(self) -> PathwaysError:
        return PathwaysError(self.cause)


Origin: TypeAlias = tuple[str, str, Where | None]
"""The computation that makes a value, its island, and the user's line."""


@dataclass(eq=False)
class StoredBuffer:
    """One logical buffer: the array (or poison), where it lies, and how many handles hold it.

    `pinned`: a plan holds it, too (a constant). `dtype` is what the user sees, `key<fry>` for PRNG keys.
    """

    array: Any
    type: ArrayType
    dtype: str
    sharding: Sharding
    devices: tuple[pjrt.Device, ...]
    name: str
    origin: Origin
    pinned: bool = False
    holders: int = 0

    @property
    def is_shared(self) -> bool:
        return self.pinned or self.holders > 1


@dataclass(eq=False)
class Store:
    """All buffers that clients of this process hold."""

    buffers: dict[int, StoredBuffer] = field(default_factory=dict[int, StoredBuffer])
    # Reentrant: a handle may die, and release, at any allocation under the lock.
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def hold(self, buffer: StoredBuffer) -> "Handle":
        with self._lock:
            buffer.holders += 1
            self.buffers[id(buffer)] = buffer
        return Handle(self, buffer)

    def release(self, buffer: StoredBuffer) -> None:
        with self._lock:
            buffer.holders -= 1
            if buffer.holders == 0:
                del self.buffers[id(buffer)]
                if not buffer.pinned:
                    buffer.array = None

    @property
    def bytes(self) -> int:
        """Bytes of all logical buffers, replicas counted once."""
        with self._lock:
            return sum(b.type.bytes for b in self.buffers.values())


class Handle:
    """A client's hold on a buffer; dropping the last one, or giving it up, frees it."""

    __slots__ = ("__weakref__", "_store", "buffer", "taken_at", "taken_by")

    def __init__(self, store: Store, buffer: StoredBuffer) -> None:
        self._store = store
        self.buffer = buffer
        self.taken_by: str | None = None
        self.taken_at: Where | None = None

    def __del__(self) -> None:
        if self.taken_by is None:
            self._store.release(self.buffer)

    def give_up(self, taker: str, where: Where | None = None) -> None:
        """Ends this hold: the array was donated, at `where`. Other handles keep theirs."""
        if self.taken_by is None:
            self.taken_by, self.taken_at = taker, where
            self._store.release(self.buffer)

    def array(self, where: Callable[[], Where | None]) -> Any:
        """The array or its poison. Raises PWC0207, at the line that `where` finds, after it was donated."""
        if self.taken_by is not None:
            at = "" if self.taken_at is None else f" at {self.taken_at.file}:{self.taken_at.line}"
            name, taker = self.buffer.name, self.taken_by
            raise PathwaysError(UsedAfterDonation(name=name, taker=taker, taken_at=at, where=where()))
        return self.buffer.array
