"""Defines handles, the references of clients to buffers: what a handle may read, and how it ends. The store
(`store.py`) makes them; each `pw.Array` has one.
"""

import _thread
import sys
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from pathways.dialect.diagnostics import PathwaysError, Where
from pathways.dialect.user_line import caller
from pathways.runtime.client.buffers import StoredBuffer, Suspended
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
from pathways.runtime.interrupts import uninterrupted

DELETED = "delete()"
"""The `taken_by` value of an array that its owner deleted. No program has this name."""


class HandleStore(Protocol):
    """The store of a handle (store.py)."""

    forked: bool

    def release(self, buffer: StoredBuffer) -> None: ...
    def give_up(self, handles: "Iterable[Handle]", taker: str, where: Where | None = None) -> None: ...
    def unclaim(self, handle: "Handle") -> None: ...
    def share(self, handle: "Handle") -> "tuple[Handle, Any]": ...


class Handle:
    """A client's reference to a buffer. Dropping or giving up the last handle frees the buffer."""

    __slots__ = ("__weakref__", "_store", "buffer", "holds", "taken_at", "taken_by")

    def __init__(self, store: HandleStore, buffer: StoredBuffer) -> None:
        self._store = store
        self.holds = True
        """Whether the handle counts as a holder of its buffer."""
        self.buffer = buffer
        self.taken_by: str | None = None
        """The program to which the buffer was or is being donated; `DELETED` if its owner deleted it."""
        self.taken_at: Where | None = None

    @uninterrupted
    def drop(self) -> None:
        """Releases the handle. A second call has no effect."""
        if self.holds:
            self.holds = False
            self._store.release(self.buffer)

    def give_up(self, taker: str, where: Where | None = None) -> None:
        """Releases the handle as `Store.give_up` does."""
        self._store.give_up((self,), taker, where)

    def unclaim(self) -> None:
        """Cancels a claim because the run that made it was not enqueued. The handle is valid again."""
        if self.holds:
            self._store.unclaim(self)

    def share(self) -> "tuple[Handle, Any]":
        """Returns a second handle on the buffer, and its array. While it exists, no run overwrites the buffer."""
        return self._store.share(self)

    def array(self) -> Any:
        """Returns the array or its poison.

        Raises PWC0207 after donation, PWC0217 after deletion, PWC0508 for another client, PWC0509 if the owner is
        closed.
        """
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
        """Waits for the run to make the array, then acts like `array`. Returns the promise after `timeout` seconds."""
        array = self.array()
        if isinstance(array, Promise) and array.wait(timeout):
            return self.array()
        return array

    @property
    def is_mine(self) -> bool:
        """Whether the client of the current context may read the buffer."""
        client = self.buffer.client
        return not client.closed and not client.suspended and client is current_client.get()

    def check_owner(self) -> None:
        owner, client = self.buffer.client, current_client.get()
        if owner.closed:
            raise closed(owner, f"an array that it made, {self.buffer.name}")
        if owner is not client:
            name = self.buffer.name
            raise PathwaysError(NotYours(name=name, owner=owner.label, client=client.label, where=caller()))


class CountedHandle(Handle):
    """A handle whose end is noticed: it releases its buffer."""

    __slots__ = ()

    @uninterrupted
    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if not self.holds or is_finalizing():  # at shutdown, modules are incomplete and counts unused
            return
        try:
            self._store.release(self.buffer)
        except KeyboardInterrupt:  # Python would print it here and continue
            _thread.interrupt_main()


def closed(client: ClientState, what: str) -> PathwaysError:
    return PathwaysError(ClientClosed(client=client.label, have_=what, where=caller()))
