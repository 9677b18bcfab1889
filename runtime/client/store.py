"""Stores the arrays that clients hold between runs. It counts references to a logical array, not to its shards, and
frees the memory with the last one. Loaded plans and the API use it.

Several handles may share a buffer: a value returned twice, an argument returned unchanged, or a constant. A shared
buffer is never overwritten: donating it donates a copy.

Most arrays are results of small calls that are dropped soon. Such an array has one plain `Handle`, which has no
destructor. Before the store lists all buffers, or shares one, the plain handle becomes a `CountedHandle`.
"""

import threading
import weakref
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pathways.dialect.diagnostics import Where
from pathways.runtime.client.buffers import StoredBuffer, Suspended
from pathways.runtime.client.handles import CountedHandle, Handle
from pathways.runtime.client_state import ClientState
from pathways.runtime.host.run.background import Promise
from pathways.runtime.host.run.poison import Poison
from pathways.runtime.interrupts import uninterrupted

MAX_PLAIN_RESULTS = 16
"""Maximum number of results of a run whose handles are plain."""


@dataclass(eq=False)
class Store:
    """The buffers that clients of this process hold."""

    changed: Callable[[tuple[Hashable, ...], int, str, int], None] = lambda _devices, _size, _client, _run: None
    """Notifies the scheduler that a client holds more bytes on each device (negative: fewer), in an array of a run."""
    limits: Mapping[Hashable, int] | None = None
    forked: bool = False
    _buffers: dict[int, StoredBuffer] = field(default_factory=dict[int, StoredBuffer])
    """The buffers of counted handles, by id."""
    _plain: "set[weakref.ref[Handle]]" = field(default_factory=set["weakref.ref[Handle]"])
    """The plain handles that exist."""
    # Reentrant: garbage collection may delete and release a handle at any allocation under the lock.
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def notify(self, changed: Callable[..., None], limits: Mapping[Hashable, int] | None = None) -> None:
        """Calls `changed` from now on whenever held bytes change; if `limits` are given, only while there are any."""
        self.changed, self.limits = changed, limits

    @uninterrupted
    def hold(self, buffer: StoredBuffer, array: Any = None) -> "Handle":
        """Creates a handle on a buffer. Restores the run's own `array` if the last handle was dropped meanwhile."""
        with self._lock:
            self._count_handle_of(buffer)
            if buffer.array is None:
                buffer.array = array
            if buffer.state in ("new", "freed"):
                buffer.transition(_event_of(buffer.array))
            buffer.holders += 1
            self._buffers[id(buffer)] = buffer
            is_held = not buffer.client.closed
            if not is_held:  # the client was closed during enqueuing, so the buffer cannot be read
                self._forget(buffer)
        if is_held and not buffer.pinned and not isinstance(buffer.array, Promise):
            self.count(buffer, True)
        return CountedHandle(self, buffer)

    @uninterrupted
    def hold_results(self, buffers: Sequence[StoredBuffer]) -> "list[Handle]":
        """Creates the first handle on each buffer of one client, with the array, or poison, that a run has just made.

        Few arrays get plain handles, without a lock. Of many, each would be one object more for the garbage collector.
        """
        for buffer in buffers:
            if buffer.state == "new":
                buffer.transition("fail" if type(buffer.array) is Poison else "hold")
            buffer.holders, buffer.counted = 1, True
        if self.counts_bytes or len(buffers) > MAX_PLAIN_RESULTS:
            handles: list[Handle] = [CountedHandle(self, buffer) for buffer in buffers]
        else:
            handles, plain = [], self._plain
            for buffer in buffers:
                handle = Handle(self, buffer)
                buffer.plain = ref = weakref.ref(handle, plain.discard)
                plain.add(ref)
                handles.append(handle)
            if not self.limits and not (buffers and buffers[0].client.closed):
                return handles
        self._count_results(buffers)
        return handles

    def _count_results(self, buffers: Sequence[StoredBuffer]) -> None:
        """Counts results of a run, and notifies the scheduler. If their client is closed, frees them, as in `hold`."""
        with self._lock:
            counts_bytes = self.counts_bytes
            # Another thread may have listed, and so counted, all buffers meanwhile; or it has closed the client.
            new = [b for b in buffers if id(b) not in self._buffers and b.state != "freed"]
            for buffer in new:
                self._count_handle_of(buffer)
                self._buffers[id(buffer)] = buffer
            if buffers and buffers[0].client.closed:
                counts_bytes = False
                for buffer in new:
                    self._forget(buffer)
        for buffer in new if counts_bytes else ():
            self._tell(buffer, buffer.bytes)

    @uninterrupted
    def count(self, buffer: StoredBuffer, held: bool) -> None:
        """Counts a buffer's bytes as held on its devices, or as no longer held. A second call has no effect."""
        with self._lock:
            same, buffer.counted = buffer.counted == held, held
        if not same:
            self._tell(buffer, buffer.bytes if held else -buffer.bytes)

    @uninterrupted
    def replace(self, buffer: StoredBuffer, was: Any, now: Any, *, held: bool) -> bool:
        """Replaces a buffer's content if it is `was`; otherwise returns False. `held`: `now` uses device memory."""
        with self._lock:
            if buffer.array is not was:
                return False
            buffer.transition(_event_of(now))
            buffer.array = now
            self.count(buffer, held)
            return True

    @uninterrupted
    def share(self, handle: "Handle") -> "tuple[Handle, Any]":
        """Returns a second handle on a buffer, and its array. No run overwrites the buffer while the handle exists.

        Raises as `Handle.array` does.
        """
        with self._lock:
            array = handle.array()
            return self.hold(handle.buffer), array

    @uninterrupted
    def claim(self, handles: "Iterable[Handle]", taker: str, claims: "list[Handle]") -> "list[Handle]":
        """Reserves buffers for a run to overwrite, which blocks reads of other runs. Returns the handles that cannot be
        reserved: their buffer is shared, or they are reserved, donated or deleted already.

        Adds the others to `claims`. The caller gives them up when the run is enqueued; otherwise it unclaims them.
        """
        refused: list[Handle] = []
        with self._lock:
            for handle in handles:
                if handle.buffer.is_shared or handle.taken_by is not None:
                    refused.append(handle)
                    continue
                handle.buffer.transition("claim")
                claims.append(handle)
                handle.taken_by = taker
        return refused

    @uninterrupted
    def unclaim(self, handle: "Handle") -> None:
        """Cancels a claim because the run that made it was not enqueued. The handle is valid again."""
        with self._lock:
            handle.buffer.transition("unclaim")
            handle.taken_by = None

    @uninterrupted
    def keep(self, buffers: Iterable[StoredBuffer], kept: list[StoredBuffer]) -> None:
        """Prevents other runs from overwriting buffers while a run reads them. Adds the buffers to `kept`."""
        with self._lock:
            for buffer in buffers:
                buffer.holders += 1
                kept.append(buffer)

    @uninterrupted
    def let_go(self, kept: list[StoredBuffer]) -> None:
        """Reverts `keep`: other runs may overwrite these buffers again."""
        while kept:
            self.release(kept.pop())

    @uninterrupted
    def release(self, buffer: StoredBuffer) -> None:
        with self._lock:
            is_freed = self._release(buffer)
        if is_freed:
            self._tell(buffer, -buffer.bytes)

    def _release(self, buffer: StoredBuffer) -> bool:
        """Subtracts a holder; returns whether this frees a buffer whose bytes were counted. The caller has the lock."""
        self._count_handle_of(buffer)
        buffer.holders -= 1
        if buffer.holders or not self._forget(buffer):
            return False
        counted, buffer.counted = buffer.counted, False
        return counted

    @uninterrupted
    def give_up(self, handles: "Iterable[Handle]", taker: str, where: Where | None = None) -> None:
        """Releases handles because their arrays were donated, at `where`. Other handles of the buffers stay valid."""
        freed: list[StoredBuffer] = []
        with self._lock:
            for handle in handles:
                if not handle.holds:
                    continue
                handle.holds, handle.taken_by, handle.taken_at = False, taker, where
                if self._release(handle.buffer):
                    freed.append(handle.buffer)
        for buffer in freed if self.counts_bytes else ():
            self._tell(buffer, -buffer.bytes)

    def _forget(self, buffer: StoredBuffer) -> bool:
        """Frees a buffer that no handle holds; returns whether it was held. The caller has the lock."""
        is_freed = self._buffers.pop(id(buffer), None) is not None
        if is_freed:
            buffer.transition("free")
        if is_freed and not buffer.pinned:
            buffer.array = None
        return is_freed

    @property
    def counts_bytes(self) -> bool:
        """Whether the scheduler counts held bytes: not while no device has a limit."""
        return self.limits is None or bool(self.limits)

    def _tell(self, buffer: StoredBuffer, size: int) -> None:
        """Notifies the scheduler of bytes that are held on each device of a buffer (negative: no longer)."""
        if self.counts_bytes:
            self.changed(buffer.devices, size, buffer.client.label, buffer.run)

    @property
    def buffers(self) -> list[StoredBuffer]:
        """Returns a copy of all buffers: garbage collection may drop handles at any time."""
        with self._lock:
            for ref in list(self._plain):
                if (handle := ref()) is not None:
                    self._count_handle_of(handle.buffer)
            return list(self._buffers.values())

    def _count_handle_of(self, buffer: StoredBuffer) -> None:
        """Counts the plain handle of a buffer from now on, if it has one. The caller has the lock."""
        if (ref := buffer.plain) is None:
            return
        self._plain.discard(ref)
        buffer.plain = None
        if (handle := ref()) is not None:
            handle.__class__ = CountedHandle
            self._buffers[id(buffer)] = buffer
        else:  # it has ended, and runs hold the buffer
            buffer.holders -= 1
            buffer.counted = False

    def in_child(self) -> None:
        """Marks the store of a forked process as unreadable, and replaces a lock that a missing thread may hold."""
        self.forked = True
        self._lock = threading.RLock()

    def of(self, client: ClientState) -> list[StoredBuffer]:
        with self._lock:
            return [b for b in self.buffers if b.client is client]

    def drop(self, client: ClientState) -> None:
        """Frees all buffers of a client. Its handles remain, but hold nothing."""
        for buffer in self.of(client):
            with self._lock:
                is_freed = self._forget(buffer)
            if is_freed:
                self.count(buffer, False)

    def lose(self, device: Hashable, cause: Poison) -> None:
        """Replaces the content of every buffer with a shard on a lost device by poison, so that its handles raise the
        cause.

        Arrays that other threads are reading are not deleted. Asking a deleted array whether it is ready ends the
        process (seen with jaxlib 0.10).
        """
        with self._lock:
            for buffer in self.buffers:
                if device in buffer.devices:
                    buffer.transition("fail")
                    buffer.array = cause

    def resolve(self, promise: Promise, cause: Poison) -> None:
        """Replaces a promise by poison in every buffer that still holds it, and wakes the threads that wait for it."""
        with self._lock:
            for buffer in self.buffers:
                if buffer.array is promise:
                    buffer.transition("fail")
                    buffer.array = cause
        promise.resolve()

    def owners_on(self, device: Hashable) -> dict[str, int]:
        """Returns the bytes on a device, by client."""
        with self._lock:
            owners: Counter[str] = Counter()
            for buffer in self.buffers:
                if buffer.counted and device in buffer.devices:
                    owners[buffer.client.label] += buffer.bytes
            return dict(owners)

    def devices_in_use(self) -> set[Hashable]:
        """Returns the devices of all buffers, including those of suspended clients."""
        with self._lock:
            return {device for buffer in self.buffers for device in buffer.devices}

    @property
    def bytes(self) -> int:
        """Returns the bytes of all logical buffers; replicas count once."""
        with self._lock:
            return sum(b.type.bytes for b in self.buffers)


def _event_of(array: Any) -> str:
    """Returns the state machine event of a buffer that receives this content."""
    if isinstance(array, Promise):
        return "promise"
    if isinstance(array, Poison):
        return "fail"
    return "suspend" if isinstance(array, Suspended) else "hold"
