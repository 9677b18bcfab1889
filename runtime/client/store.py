"""Buffers that outlive a run: opaque handles with reference counts on the logical buffer, not on shards.

A handle may be shared by several holders (a value returned twice, an argument returned as it is, a constant). What is
shared is never overwritten: donating such a buffer donates a copy.
"""

import _thread
import sys
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any

from pathways.dialect.diagnostics import PathwaysError, Where
from pathways.dialect.dtypes import ArrayType
from pathways.dialect.sharding import Sharding
from pathways.dialect.user_line import caller
from pathways.runtime.client_state import ClientState, current_client
from pathways.runtime.errors import (
    ClientClosed,
    ClientSuspended,
    Forked,
    NotYours,
    UsedAfterDeletion,
    UsedAfterDonation,
)
from pathways.runtime.host.run.background import Promise
from pathways.runtime.host.run.poison import Origin, Poison
from pathways.runtime.interrupts import uninterrupted
from pathways.runtime.states import BUFFER, Life


@dataclass(frozen=True, eq=False)
class Suspended:
    """Stands in a buffer whose values left device memory because its client was suspended."""

    client: str


DELETED = "delete()"
"""Stands for the taker of an array that its owner deleted; no program has this name."""


@dataclass(eq=False)
class StoredBuffer:
    """One logical buffer: the array (or a promise of it, or poison), where it lies, and how many handles hold it.

    `pinned`: a plan holds it, too (a constant). `dtype` is what the user sees, `key<fry>` for PRNG keys.
    """

    array: Any
    type: ArrayType
    dtype: str
    sharding: Sharding
    devices: tuple[Hashable, ...]
    name: str
    origin: Origin
    client: ClientState
    bytes: int
    """On each of its devices."""
    run: int = -1
    """The number of the run that made it."""
    pinned: bool = False
    holders: int = 0
    counted: bool = False
    """Whether its bytes are counted as held on its devices."""
    life: Life = field(default_factory=lambda: Life(BUFFER))
    """What has become of it (runtime/states.py). Under the store's lock."""

    @property
    def is_shared(self) -> bool:
        return self.pinned or self.holders > 1


@dataclass(eq=False)
class Store:
    """All buffers that clients of this process hold."""

    buffers: dict[int, StoredBuffer] = field(default_factory=dict[int, StoredBuffer])
    changed: Callable[[tuple[Hashable, ...], int, str, int], None] = lambda _devices, _size, _client, _run: None
    """Tells the scheduler that a client holds so many bytes more on each of these devices, in an array of this run;
    negative: fewer."""
    forked: bool = False
    # Reentrant: a handle may die, and release, at any allocation under the lock.
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @uninterrupted
    def hold(self, buffer: StoredBuffer, array: Any = None) -> "Handle":
        """Makes a handle on a buffer. `array` is the run's own, put back if the last handle was dropped meanwhile."""
        with self._lock:
            if buffer.array is None:
                buffer.array = array
            if buffer.life.state in ("new", "freed"):
                buffer.life.turn(_event_of(buffer.array))
            buffer.holders += 1
            fresh = buffer.holders == 1
            self.buffers[id(buffer)] = buffer
            if buffer.client.closed:  # the client was closed while its run was enqueued: this cannot be read
                self._forget(buffer)
                fresh = False
        if fresh and not buffer.pinned and not isinstance(buffer.array, Promise):
            self.count(buffer, True)
        return Handle(self, buffer)

    @uninterrupted
    def count(self, buffer: StoredBuffer, held: bool) -> None:
        """Counts the bytes of a buffer as held on its devices, or ends that; a second call does nothing."""
        with self._lock:
            same, buffer.counted = buffer.counted == held, held
        if not same:
            self.changed(buffer.devices, buffer.bytes if held else -buffer.bytes, buffer.client.label, buffer.run)

    @uninterrupted
    def replace(self, buffer: StoredBuffer, was: Any, now: Any, *, held: bool) -> bool:
        """Replaces what a buffer holds, if that is still `was`; returns whether. `held`: `now` takes device memory."""
        with self._lock:
            if buffer.array is not was:
                return False
            buffer.life.turn(_event_of(now))
            buffer.array = now
            self.count(buffer, held)
            return True

    @uninterrupted
    def share(self, handle: "Handle") -> "tuple[Handle, Any]":
        """Returns a second handle on a handle's buffer, and its array; while it is held, no run overwrites the buffer.

        Raises as `Handle.array` does.
        """
        with self._lock:
            array = handle.array()
            return self.hold(handle.buffer), array

    @uninterrupted
    def claim(self, handle: "Handle", taker: str, claims: "list[Handle]") -> bool:
        """Reserves a buffer for a run to overwrite; returns False where others hold it. No other run can read it then.

        The handle is added to `claims`: given up when the run is enqueued, unclaimed where it was not.
        """
        with self._lock:
            if handle.buffer.is_shared or handle.taken_by is not None:
                return False
            handle.buffer.life.turn("claim")
            claims.append(handle)
            handle.taken_by = taker
            return True

    @uninterrupted
    def unclaim(self, handle: "Handle") -> None:
        """Takes back a claim, since the run that made it was not enqueued: the handle is as it was."""
        with self._lock:
            handle.buffer.life.turn("unclaim")
            handle.taken_by = None

    @uninterrupted
    def keep(self, buffers: Iterable[StoredBuffer], kept: list[StoredBuffer]) -> None:
        """Keeps other runs from overwriting buffers while a run reads them. They are added to `kept`."""
        with self._lock:
            for buffer in buffers:
                buffer.holders += 1
                kept.append(buffer)

    @uninterrupted
    def let_go(self, kept: list[StoredBuffer]) -> None:
        """Ends `keep`: other runs may overwrite these buffers again."""
        while kept:
            self.release(kept.pop())

    @uninterrupted
    def release(self, buffer: StoredBuffer) -> None:
        with self._lock:
            buffer.holders -= 1
            gone = buffer.holders == 0 and self._forget(buffer)
        if gone:
            self.count(buffer, False)

    def _forget(self, buffer: StoredBuffer) -> bool:
        """Frees a buffer that no handle holds any more; returns whether it was held. Under the lock."""
        gone = self.buffers.pop(id(buffer), None) is not None
        if gone:
            buffer.life.turn("free")
        if gone and not buffer.pinned:
            buffer.array = None
        return gone

    def _all(self) -> list[StoredBuffer]:
        """Copies the list of buffers: the garbage collector may drop a handle at any moment. Under the lock."""
        return list(self.buffers.values())

    def in_child(self) -> None:
        """Marks the store of a forked process: nothing can be read, and a thread that held the lock is not here."""
        self.forked = True
        self._lock = threading.RLock()

    def of(self, client: ClientState) -> list[StoredBuffer]:
        with self._lock:
            return [b for b in self._all() if b.client is client]

    def drop(self, client: ClientState) -> None:
        """Frees all buffers of a client; its handles stay, and hold nothing."""
        for buffer in self.of(client):
            with self._lock:
                gone = self._forget(buffer)
            if gone:
                self.count(buffer, False)

    def lose(self, device: Hashable, cause: Poison) -> None:
        """Puts poison into every buffer with a shard on a lost device: its handles raise the cause.

        Arrays that other threads are reading are not deleted: to ask a deleted array whether it is ready ends the
        process (jaxlib 0.10, seen).
        """
        with self._lock:
            for buffer in self._all():
                if device in buffer.devices:
                    buffer.life.turn("fail")
                    buffer.array = cause

    def resolve(self, promise: Promise, cause: Poison) -> None:
        """Puts poison in place of a promise in every buffer that still holds it, and wakes the threads that wait."""
        with self._lock:
            for buffer in self._all():
                if buffer.array is promise:
                    buffer.life.turn("fail")
                    buffer.array = cause
        promise.resolve()

    def owners_on(self, device: Hashable) -> dict[str, int]:
        """Bytes on a device by client."""
        with self._lock:
            owners: Counter[str] = Counter()
            for buffer in self._all():
                if buffer.counted and device in buffer.devices:
                    owners[buffer.client.label] += buffer.bytes
            return dict(owners)

    def devices_in_use(self) -> set[Hashable]:
        """Returns the devices that buffers are on, or return to when their client resumes."""
        with self._lock:
            return {device for buffer in self._all() for device in buffer.devices}

    @property
    def bytes(self) -> int:
        """Bytes of all logical buffers, replicas counted once."""
        with self._lock:
            return sum(b.type.bytes for b in self._all())


class Handle:
    """A client's hold on a buffer; dropping the last one, or giving it up, frees it."""

    __slots__ = ("__weakref__", "_holds", "_store", "buffer", "taken_at", "taken_by")

    def __init__(self, store: Store, buffer: StoredBuffer) -> None:
        self._store = store
        self._holds = True
        self.buffer = buffer
        self.taken_by: str | None = None
        """The program that it was donated to, or is being donated to; `DELETED` where its owner deleted it."""
        self.taken_at: Where | None = None

    @uninterrupted
    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if not self._holds or is_finalizing():  # modules are taken apart, and nothing is counted any more
            return
        try:
            self._store.release(self.buffer)
        except KeyboardInterrupt:  # Python would print it here, and go on
            _thread.interrupt_main()

    @uninterrupted
    def drop(self) -> None:
        """Ends this hold; a second call does nothing."""
        if self._holds:
            self._holds = False
            self._store.release(self.buffer)

    @uninterrupted
    def give_up(self, taker: str, where: Where | None = None) -> None:
        """Ends this hold: the array was donated, at `where`. Other handles keep theirs."""
        if self._holds:
            self._holds, self.taken_by, self.taken_at = False, taker, where
            self._store.release(self.buffer)

    def unclaim(self) -> None:
        """Takes back a claim, since the run that made it was not enqueued: the handle is as it was."""
        if self._holds:
            self._store.unclaim(self)

    def share(self) -> "tuple[Handle, Any]":
        """Returns a second handle on the same buffer, and its array; while it is held, no run overwrites the buffer."""
        return self._store.share(self)

    def array(self) -> Any:
        """Returns the array or its poison. Raises PWC0207 after donation, PWC0217 after deletion, PWC0508 for another
        client than its own, PWC0509 when that client is closed."""
        if self._store.forked:
            raise PathwaysError(Forked(where=caller()))
        array = self.buffer.array  # read before the checks: another thread may donate or delete the array meanwhile
        self.check_owner()
        if self.taken_by is not None:
            raise self._taken(self.taken_by)
        if isinstance(array, Suspended):
            raise PathwaysError(ClientSuspended(client=self.buffer.client.label, where=caller()))
        return array

    def _taken(self, taker: str) -> PathwaysError:
        at = "" if self.taken_at is None else f" at {self.taken_at.file}:{self.taken_at.line}"
        if taker == DELETED:
            return PathwaysError(UsedAfterDeletion(name=self.buffer.name, deleted_at=at, where=caller()))
        return PathwaysError(UsedAfterDonation(name=self.buffer.name, taker=taker, taken_at=at, where=caller()))

    def known(self, timeout: float | None = None) -> Any:
        """Waits for the run to put the array there, then is as `array`. Returns the promise after `timeout` seconds."""
        array = self.array()
        if isinstance(array, Promise) and array.wait(timeout):
            return self.array()
        return array

    @property
    def is_mine(self) -> bool:
        """Whether the client of this context may read it."""
        client = self.buffer.client
        return not client.closed and not client.suspended and client is current_client.get()

    def check_owner(self) -> None:
        owner, client = self.buffer.client, current_client.get()
        if owner.closed:
            raise closed(owner, f"an array that it made, {self.buffer.name}")
        if owner is not client:
            name = self.buffer.name
            raise PathwaysError(NotYours(name=name, owner=owner.label, client=client.label, where=caller()))


def _event_of(array: Any) -> str:
    """What becomes of a buffer that holds this from now on."""
    if isinstance(array, Promise):
        return "promise"
    if isinstance(array, Poison):
        return "fail"
    return "suspend" if isinstance(array, Suspended) else "hold"


def closed(client: ClientState, what: str) -> PathwaysError:
    return PathwaysError(ClientClosed(client=client.label, have_=what, where=caller()))
