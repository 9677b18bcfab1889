"""Timed devices: a call occupies them for its predicted time, and computes nothing. Arrays have a type, a sharding and
the time at which each shard is ready, and no values.

They stand for devices of `jaxlib`, with the same methods, as far as `pjrt.py` (in this folder) and the host use them.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import numpy as np

from pathways.dialect.dtypes import ArrayType, numpy_dtype
from pathways.dialect.sharding import Sharding
from pathways.runtime.host.timed.figures import Figures
from pathways.runtime.host.timed.moments import Moment, after_all, now

NOW = Moment(0.0)
"""The time of values that are ready from the start."""


@dataclass(eq=False)
class TimedDevice:
    """One device. `client` says which process it belongs to, as in jaxlib; `id` is its position on the island."""

    id: int
    island: str
    device_kind: str
    platform: str
    process_index: int
    client: "TimedClient"
    last: Moment = NOW
    """The end of the last call that it was given."""
    link: Moment = NOW
    """The time at which the last copy to it from another device of the island leaves the link."""

    @property
    def local_hardware_id(self) -> int:
        return self.id


class TimedClient:
    """The devices of one host process, as a PJRT client. `index` is the rank of the host; -1: of no host here."""

    platform_version = "timed"

    def __init__(self, index: int) -> None:
        self.index = index

    def process_index(self) -> int:
        return self.index


@dataclass(frozen=True, eq=False)
class TimedSharding:
    """A sharding over timed devices, in mesh order. Without `where`, each device has the whole array."""

    where: Sharding | None
    devices: tuple[TimedDevice, ...]

    @cached_property
    def mesh(self) -> Any:
        shape = None if self.where is None else self.where.mesh.shape
        return SimpleNamespace(devices=np.array(self.devices, dtype=object).reshape(shape or len(self.devices)))

    @property
    def device_set(self) -> frozenset[TimedDevice]:
        return frozenset(self.devices)

    def shard_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return tuple(shape) if self.where is None else self.where.shard_shape(tuple(shape))

    def devices_indices_map(self, shape: Sequence[int]) -> dict[TimedDevice, tuple[slice, ...]]:
        whole = [tuple((0, length) for length in shape)] * len(self.devices)
        boxes = whole if self.where is None else self.where.boxes(tuple(shape))
        return {d: tuple(slice(p, q) for p, q in box) for d, box in zip(self.devices, boxes, strict=True)}

    @cached_property
    def here(self) -> tuple[TimedDevice, ...]:
        """The devices of this host."""
        return tuple(d for d in self.devices if d.process_index == d.client.process_index())


class TimedArray:
    """An array on timed devices: the shards of this host, each with the time at which it is ready."""

    __slots__ = ("moments", "sharding", "type")

    def __init__(self, type_: ArrayType, sharding: TimedSharding, moments: Sequence[Moment]) -> None:
        self.type, self.sharding, self.moments = type_, sharding, tuple(moments)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def dtype(self) -> "np.dtype[Any]":
        return numpy_dtype(self.type.dtype)

    @property
    def ndim(self) -> int:
        return len(self.type.shape)

    @property
    def shards(self) -> "list[TimedArray]":
        """The shards of this host as arrays of one device each."""
        type_ = ArrayType(self.sharding.shard_shape(self.type.shape), self.type.dtype)
        return [
            TimedArray(type_, TimedSharding(None, (d,)), [m])
            for d, m in zip(self.sharding.here, self.moments, strict=True)
        ]

    def is_ready(self) -> bool:
        return all([moment.is_ready() for moment in self.moments])

    def block_until_ready(self) -> "TimedArray":
        for moment in self.moments:
            moment.block_until_ready()
        return self

    def is_deleted(self) -> bool:
        return False


@dataclass(eq=False)
class GangLaunches:
    """The launches of an island. One that several hosts run together begins when all of them have begun it."""

    _waiting: dict[int, tuple[list[Moment], Moment]] = field(default_factory=dict[int, "tuple[list[Moment], Moment]"])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def join(self, launch: int, begun: Moment, hosts: int, seconds: float) -> Moment:
        """Adds a host's begin of a launch; returns the moment of its end on all hosts."""
        with self._lock:
            begins, end = self._waiting.setdefault(launch, ([], Moment()))
            begins.append(begun)
            if len(begins) < hosts:
                return end
            del self._waiting[launch]
        after_all(begins, lambda latest: end.know(latest + seconds))
        return end


GANG_LAUNCHES = GangLaunches()
"""Matches the launches of all hosts of the island, which are in this process."""


@dataclass(frozen=True, eq=False)
class TimedExecutable:
    """Code for some devices that occupies them for `seconds` at each call.

    Without `seconds` it is one of the small programs that cut and join arrays, which occupy nothing.
    """

    seconds: float | None
    results: tuple[ArrayType, ...]
    """Types of the results of a small program."""
    devices: tuple[TimedDevice, ...]

    @cached_property
    def here(self) -> tuple[TimedDevice, ...]:
        return TimedSharding(None, self.devices).here

    @cached_property
    def hosts(self) -> int:
        return len({device.process_index for device in self.devices})

    def local_devices(self) -> tuple[TimedDevice, ...]:
        return self.here

    def execute_sharded(
        self, operands: Sequence[Any], *, launch_id: int = 0, with_tokens: bool = False
    ) -> "TimedResults":
        """Enqueues a call. It begins when its arguments are there and its devices have done their earlier calls."""
        moments = [m for operand in operands for m in operand.moments]
        if self.seconds is None:
            end = Moment()
            after_all(moments, end.know)
            return TimedResults(self, end)
        begun, called = Moment(), now()
        end = GANG_LAUNCHES.join(launch_id, begun, self.hosts, self.seconds)
        with _ENQUEUING:
            moments += [device.last for device in self.here]
            for device in self.here:
                device.last = end
        after_all(moments, lambda latest: begun.know(max(latest, called)))
        for spans in SESSIONS:
            _note(spans, self, launch_id, end)
        return TimedResults(self, end)


_ENQUEUING = threading.Lock()
"""Guards what a device was last given: the hosts of an island have threads of one process."""
SESSIONS: list[dict[tuple[int, int], tuple[int, int]]] = []
"""Active recordings of when devices worked, by launch id and device."""


def _note(spans: dict[tuple[int, int], tuple[int, int]], code: TimedExecutable, launch: int, end: Moment) -> None:
    def known() -> None:
        last = int((end.time or 0.0) * 1e9)
        for device in code.here:
            spans[launch, device.id] = (last - int((code.seconds or 0.0) * 1e9), last)

    end.then(known)


class TimedResults:
    """The results of a call, as those of `execute_sharded` in jaxlib."""

    def __init__(self, code: TimedExecutable, end: Moment) -> None:
        self._code, self._end = code, end

    def consume_token(self) -> Moment:
        return self._end

    def consume_with_handlers(self, handlers: Sequence[tuple[ArrayType, TimedSharding]]) -> list[TimedArray]:
        moments = [self._end] * len(self._code.here)
        return [TimedArray(type_, sharding, moments) for type_, sharding in handlers]

    def disassemble_into_single_device_arrays(self) -> list[list[TimedArray]]:
        sharding = TimedSharding(None, self._code.devices)
        return [[TimedArray(type_, sharding, [self._end])] for type_ in self._code.results]


def moved_to(shard: TimedArray, to: TimedDevice, figures: Figures) -> TimedArray:
    """Copies an array of one device to a device of the same island, over the link of that device."""
    (source,), (there,) = shard.sharding.here, shard.moments
    if source is to:
        return TimedArray(shard.type, shard.sharding, [there])
    seconds, latency = shard.type.bytes / figures.ici_rate, figures.ici_seconds
    left, end, called = Moment(), Moment(), now()
    with _ENQUEUING:
        before, to.link = to.link, left

    def begin(latest: float) -> None:
        gone = max(latest, called) + seconds
        left.know(gone)
        end.know(gone + latency)

    after_all([there, before], begin)
    return TimedArray(shard.type, TimedSharding(None, (to,)), [end])
