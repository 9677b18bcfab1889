"""The eager transport: small arrays are sent, as bytes, as soon as they are there (`eager_server.py`, `mailbox.py`)."""

import queue
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pathways.runtime.host.between.data_plane import ArrayGroup
from pathways.runtime.host.between.eager_server import EagerWay
from pathways.runtime.host.between.mailbox import Letter, Mailbox
from pathways.runtime.host.devices import pjrt
from pathways.runtime.threads import started


@dataclass(frozen=True, eq=False, slots=True)
class Parcel:
    """Arrays to send, which may not be there yet."""

    way: EagerWay
    anew: int
    """At which time the two hosts had been told to connect anew: behind the next it goes nowhere."""
    number: int
    arrays: Sequence[pjrt.DeviceArray]

    def send(self) -> None:
        """Waits for the arrays, and sends them under their number, or why they never will be there."""
        try:
            for array in self.arrays:
                array.block_until_ready()
            found = [np.asarray(shard).tobytes() for array in self.arrays for shard in pjrt.shards_of(array)]
            self.way.send(self.number, b"".join(found), anew=self.anew)
        except Exception as error:  # whatever it is, the other end must hear of it
            self.way.fail(self.number, str(error), anew=self.anew)


class Sender:
    """Sends values when they are there, in the order in which they were given: those of one set of devices, whose
    computations are done in that order. Another set has another, and waits for none of these."""

    def __init__(self) -> None:
        self._given: queue.SimpleQueue[Parcel | None] = queue.SimpleQueue()
        sending = threading.Thread(target=_send_all, args=(self._given,), name="pathways-send", daemon=True)
        self._has_thread = started(sending)
        weakref.finalize(self, self._given.put, None).atexit = False

    def take(self, parcel: Parcel) -> None:
        """Sends arrays when they are there; at once, by who calls, where they are, or where there is no thread."""
        if self._has_thread and not all(map(_is_there, parcel.arrays)):
            self._given.put(parcel)
        else:
            parcel.send()


def _send_all(given: "queue.SimpleQueue[Parcel | None]") -> None:
    """Sends parcels until the sender is dropped."""
    while (parcel := given.get()) is not None:
        parcel.send()


def _is_there(array: pjrt.DeviceArray) -> bool:
    """Whether it need not be waited for. To ask a deleted array whether it is ready ends the process."""
    return array.is_deleted() or array.is_ready()


class EagerOffer(NamedTuple):
    """Arrays that are not sent yet (`Unsent`)."""

    by: Sender
    parcel: Parcel

    def send(self) -> None:
        """Waits for the arrays, and sends them."""
        self.parcel.send()

    def leave(self) -> None:
        """Has them sent when they are there."""
        self.by.take(self.parcel)


class Sent:
    """An array of a value that another host sends: waited for as an array is."""

    __slots__ = ("_landed", "_number")

    def __init__(self, landed: "_Landed", number: int) -> None:
        self._landed, self._number = landed, number

    @property
    def letter(self) -> Letter:
        return self._landed.letter

    def is_ready(self) -> bool:
        return self._landed.letter.is_ready()

    def block_until_ready(self) -> None:
        """Raises RuntimeError where the value has failed."""
        self._landed.letter.block_until_ready()

    def array(self) -> pjrt.DeviceArray:
        """The array, of a value that is there. Raises RuntimeError, or ValueError where it is another's bytes."""
        return self._landed.arrays()[self._number]


class _Landed:
    """The arrays of one value, put on devices when one of them is first asked for."""

    __slots__ = ("_arrays", "_values", "letter")

    def __init__(self, letter: Letter, values: ArrayGroup) -> None:
        self.letter, self._values = letter, values
        self._arrays: list[pjrt.DeviceArray] | None = None

    def arrays(self) -> list[pjrt.DeviceArray]:
        if self._arrays is None:
            self._arrays = self._values.put(self.letter.read())
        return self._arrays


def sent(letter: Letter, values: ArrayGroup) -> list[Sent]:
    """The arrays that a value will be."""
    landed = _Landed(letter, values)
    return [Sent(landed, number) for number in range(len(values.types))]


class EagerPlane:
    """Sends small arrays as soon as they are there, by the stream that the other host has come with."""

    has_open_port = False

    def __init__(self, way: Callable[[], EagerWay], sender: Callable[[Sequence[pjrt.Device]], Sender]) -> None:
        """`way` finds the way to the host that is there now, `sender` what sends the arrays that some devices make."""
        self._way, self._sender = way, sender

    def open(self) -> None:
        """Does nothing: its port is that of the way."""

    def where(self) -> str:
        return ""

    def offer(self, number: int, arrays: Sequence[pjrt.DeviceArray], devices: Sequence[pjrt.Device]) -> EagerOffer:
        way = self._way()
        return EagerOffer(self._sender(devices), Parcel(way, way.anew, number, arrays))

    def fail(self, number: int, why: str, values: ArrayGroup) -> None:
        self._way().fail(number, why)

    def drop(self, *, is_lost: bool) -> None:
        """Does nothing: what waits goes with the way."""


class EagerSource:
    """Receives what another host sends unasked."""

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox

    def fetch(self, number: int, values: ArrayGroup) -> list[Sent]:
        return sent(self._mailbox.expect(number), values)

    def close(self) -> None:
        self._mailbox.close()


def landed(pieces: Sequence[Any]) -> list[pjrt.DeviceArray]:
    """The arrays of pieces that are there, whichever way they came."""
    return [piece.array() if isinstance(piece, Sent) else piece for piece in pieces]
