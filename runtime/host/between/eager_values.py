"""Implements the transport for small arrays: it sends their bytes to another host process as soon as they are computed.
`link.py` uses it below a size limit; larger arrays are pulled by the receiver.
"""

import queue
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pathways.runtime.host.between.data_plane import ArrayGroup
from pathways.runtime.host.between.eager_server import Outbox
from pathways.runtime.host.between.inbox import EagerMessage, Inbox
from pathways.runtime.host.devices import pjrt
from pathways.runtime.threads import started


@dataclass(frozen=True, eq=False, slots=True)
class Parcel:
    """Arrays to push, which may not be computed yet."""

    outbox: Outbox
    anew: int
    """The reconnect count of the two hosts. The arrays are dropped after the next reconnection."""
    number: int
    arrays: Sequence[pjrt.DeviceArray]

    def send(self) -> None:
        """Waits for the arrays, and sends them under their number. Sends their failure instead if they failed."""
        try:
            for array in self.arrays:
                array.block_until_ready()
            found = [np.asarray(shard).tobytes() for array in self.arrays for shard in pjrt.shards_of(array)]
            self.outbox.send(self.number, b"".join(found), anew=self.anew)
        except Exception as error:  # the other end must be notified of any error
            self.outbox.fail(self.number, str(error), anew=self.anew)


class Sender:
    """Pushes the values of one set of devices in order, each when it is computed.

    A set of devices computes its values in that order, too. Each set has its own sender, so that no set waits for
    another.
    """

    def __init__(self) -> None:
        self._given: queue.SimpleQueue[Parcel | None] = queue.SimpleQueue()
        sending = threading.Thread(target=_send_all, args=(self._given,), name="pathways-send", daemon=True)
        self._has_thread = started(sending)
        weakref.finalize(self, self._given.put, None).atexit = False

    def take(self, parcel: Parcel) -> None:
        """Sends arrays when they are computed.

        Sends on the calling thread if they already are, or if no sender thread could be started.
        """
        if self._has_thread and not all(map(_is_there, parcel.arrays)):
            self._given.put(parcel)
        else:
            parcel.send()


def _send_all(given: "queue.SimpleQueue[Parcel | None]") -> None:
    """Sends parcels until the sender is dropped."""
    while (parcel := given.get()) is not None:
        parcel.send()


def _is_there(array: pjrt.DeviceArray) -> bool:
    """Whether an array is computed or deleted. `is_ready` on a deleted array ends the process."""
    return array.is_deleted() or array.is_ready()


class EagerOffer(NamedTuple):
    """Arrays that are not sent yet (`Unsent`)."""

    by: Sender
    parcel: Parcel

    def send(self) -> None:
        """Waits for the arrays, and sends them."""
        self.parcel.send()

    def leave(self) -> None:
        """Has the sender push them when they are computed."""
        self.by.take(self.parcel)


class Sent:
    """One array of a pushed value. Callers wait for it as for an array."""

    __slots__ = ("_landed", "_number")

    def __init__(self, landed: "_Landed", number: int) -> None:
        self._landed, self._number = landed, number

    @property
    def message(self) -> EagerMessage:
        return self._landed.message

    def is_ready(self) -> bool:
        return self._landed.message.is_ready()

    def block_until_ready(self) -> None:
        """Waits for the value. Raises RuntimeError if it failed."""
        self._landed.message.block_until_ready()

    def array(self) -> pjrt.DeviceArray:
        """Returns the array of a received value. Raises RuntimeError if it failed, ValueError for a wrong size."""
        return self._landed.arrays()[self._number]


class _Landed:
    """The arrays of one value, which are put on devices when one of them is first used."""

    __slots__ = ("_arrays", "_values", "message")

    def __init__(self, message: EagerMessage, values: ArrayGroup) -> None:
        self.message, self._values = message, values
        self._arrays: list[pjrt.DeviceArray] | None = None

    def arrays(self) -> list[pjrt.DeviceArray]:
        if self._arrays is None:
            self._arrays = self._values.put(self.message.read())
        return self._arrays


def sent(message: EagerMessage, values: ArrayGroup) -> list[Sent]:
    """Returns the arrays of a value before it is received."""
    landed = _Landed(message, values)
    return [Sent(landed, number) for number in range(len(values.types))]


class EagerPlane:
    """Pushes small arrays to one other host as soon as they are computed."""

    has_open_port = False

    def __init__(self, sender: Callable[[Sequence[pjrt.Device]], Sender]) -> None:
        """`sender` returns the sender for the arrays of given devices."""
        self._sender = sender
        self._outbox: Outbox | None = None

    def begin(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def open(self) -> None:
        """Does nothing: the outbox has the port."""

    def where(self) -> str:
        return ""

    def offer(self, number: int, arrays: Sequence[pjrt.DeviceArray], devices: Sequence[pjrt.Device]) -> EagerOffer:
        outbox = self._outbox
        assert outbox is not None
        return EagerOffer(self._sender(devices), Parcel(outbox, outbox.anew, number, arrays))

    def fail(self, number: int, why: str, values: ArrayGroup) -> None:
        assert self._outbox is not None
        self._outbox.fail(number, why)

    def drop(self, *, is_lost: bool) -> None:
        if is_lost:
            self._outbox = None


class EagerSource:
    """Receives the arrays that another host pushes."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox

    def fetch(self, number: int, values: ArrayGroup) -> list[Sent]:
        return sent(self._inbox.expect(number), values)

    def close(self) -> None:
        self._inbox.close()


def landed(pieces: Sequence[Any]) -> list[pjrt.DeviceArray]:
    """Returns the arrays of received pieces, whether pushed or pulled."""
    return [piece.array() if isinstance(piece, Sent) else piece for piece in pieces]
