"""Arrays as the bytes of small values that hosts send each other (`eager_server.py`), and back."""

import queue
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

import numpy as np

from pathways.dialect.dtypes import ArrayType, numpy_dtype
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.devices.eager_server import EagerWay
from pathways.runtime.host.devices.mailbox import Letter
from pathways.runtime.threads import started


@dataclass(frozen=True, eq=False, slots=True)
class Parcel:
    """Arrays to send, which may not be there yet. They go nowhere where the other host is gone."""

    way: EagerWay | None
    anew: int
    """At which time the two hosts had been told to connect anew: behind the next it goes nowhere."""
    number: int
    arrays: Sequence[pjrt.DeviceArray]

    def send(self) -> None:
        """Waits for the arrays, and sends them under their number, or why they never will be there."""
        if self.way is None:
            return
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


class Unsent(NamedTuple):
    """Arrays that who enqueues sends, where nothing else that it waits for can come before they do; else its sender."""

    bit: int
    """Among those of what its host sends (`Coming.sent`)."""
    by: Sender
    parcel: Parcel


@dataclass(frozen=True, eq=False)
class Landing:
    """Arrays to make of the bytes of one value: types, shardings and the devices of each; prepared once."""

    types: Sequence[ArrayType]
    shardings: Sequence[Any]

    @cached_property
    def _placers(self) -> Sequence[tuple[Callable[[Sequence[Any]], pjrt.DeviceArray], tuple[int, ...], Any, int]]:
        """For each array: what puts its shards on devices, their shape, element type and number."""
        found: list[tuple[Callable[[Sequence[Any]], pjrt.DeviceArray], tuple[int, ...], Any, int]] = []
        for type_, sharding in zip(self.types, self.shardings, strict=True):
            devices = _devices_in_order(sharding)
            shape = sharding.shard_shape(type_.shape)
            found.append((pjrt.placer(type_, sharding, devices), shape, numpy_dtype(type_.dtype), len(devices)))
        return found

    @cached_property
    def bytes(self) -> int:
        """How many bytes the value has: of what lies on several devices, each copy counts."""
        return sum(
            prod(s.shard_shape(t.shape)) * numpy_dtype(t.dtype).itemsize * len(s.device_set)
            for t, s in zip(self.types, self.shardings, strict=True)
        )

    def put(self, data: memoryview) -> list[pjrt.DeviceArray]:
        """Puts them on their devices. Raises ValueError where the bytes are not as many."""
        arrays: list[pjrt.DeviceArray] = []
        begin = 0
        for place, shape, dtype, count in self._placers:
            shards = np.frombuffer(data, dtype, prod(shape) * count, begin).reshape(count, *shape)
            begin += shards.nbytes
            arrays.append(place(list(shards)))
        if begin != len(data):
            raise ValueError(f"{len(data)} bytes came, not {begin}")
        return arrays


def _devices_in_order(sharding: Any) -> list[pjrt.Device]:
    """The devices of a sharding on a mesh, in its order; or of one on a device."""
    mesh: Any = getattr(sharding, "mesh", None)
    return list(sharding.device_set if mesh is None else mesh.devices.flat)


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

    __slots__ = ("_arrays", "_landing", "letter")

    def __init__(self, letter: Letter, landing: Landing) -> None:
        self.letter, self._landing = letter, landing
        self._arrays: list[pjrt.DeviceArray] | None = None

    def arrays(self) -> list[pjrt.DeviceArray]:
        if self._arrays is None:
            self._arrays = self._landing.put(self.letter.read())
        return self._arrays


def sent(letter: Letter, landing: Landing) -> list[Sent]:
    """The arrays that a value will be."""
    landed = _Landed(letter, landing)
    return [Sent(landed, number) for number in range(len(landing.types))]


def landed(pieces: Sequence[Any]) -> list[pjrt.DeviceArray]:
    """The arrays of pieces that are there, whichever way they came."""
    return [piece.array() if isinstance(piece, Sent) else piece for piece in pieces]
