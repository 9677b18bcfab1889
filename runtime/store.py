"""Buffers that outlive a run: opaque handles with reference counts on the logical buffer, not on shards.

A handle may be shared by several holders (a value returned twice, an argument returned as it is, a constant). What is
shared is never overwritten: donating such a buffer donates a copy.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

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


@dataclass(eq=False)
class StoredBuffer:
    """One logical buffer: the array (or poison), where it lies, and how many hold it."""

    array: Any
    type: ArrayType
    sharding: Sharding
    devices: tuple[pjrt.Device, ...]
    name: str
    holders: int = 0
    taken_by: str | None = None


@dataclass(eq=False)
class Store:
    """All buffers that clients of this process hold."""

    buffers: dict[int, StoredBuffer] = field(default_factory=dict[int, StoredBuffer])
    _lock: threading.Lock = field(default_factory=threading.Lock)

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

    @property
    def bytes(self) -> int:
        """Bytes of all logical buffers, replicas counted once."""
        return sum(b.type.bytes for b in self.buffers.values() if b.taken_by is None)


class Handle:
    """A client's hold on a buffer; dropping the last one frees it."""

    __slots__ = ("__weakref__", "_store", "buffer")

    def __init__(self, store: Store, buffer: StoredBuffer) -> None:
        self._store = store
        self.buffer = buffer

    def __del__(self) -> None:
        self._store.release(self.buffer)

    def array(self, where: Callable[[], Where | None]) -> Any:
        """The array or its poison. Raises PWC0207, at the line that `where` finds, after it was donated."""
        buffer = self.buffer
        if buffer.taken_by is not None:
            raise PathwaysError(UsedAfterDonation(name=buffer.name, taker=buffer.taken_by, where=where()))
        return buffer.array
