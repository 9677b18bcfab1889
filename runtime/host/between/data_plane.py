"""Defines the interface of a transport, which sends arrays from one host process to another. `link.py` calls it, and
the other files of this folder implement it.

A new transport is a file with this interface, and rows in `link.py`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, Protocol

import jax
import numpy as np

from pathways.dialect.dtypes import ArrayType, numpy_dtype
from pathways.runtime.host.between.eager_server import Outbox
from pathways.runtime.host.devices import pjrt


@dataclass(frozen=True, eq=False)
class ArrayGroup:
    """Arrays that are sent to another host, or received from it, together. Prepared once, when a plan is loaded."""

    types: Sequence[ArrayType]
    shardings: Sequence[Any]

    @cached_property
    def bytes(self) -> int:
        """Counts the bytes of all shards, of each copy on several devices, too."""
        return sum(
            prod(s.shard_shape(t.shape)) * numpy_dtype(t.dtype).itemsize * len(s.device_set)
            for t, s in zip(self.types, self.shardings, strict=True)
        )

    @cached_property
    def structs(self) -> Sequence[Any]:
        """Describes the arrays for JAX. Cached, because making the structs takes longer than requesting the arrays."""
        with jax.enable_x64(True):  # else 64-bit types would become 32-bit types
            return [
                jax.ShapeDtypeStruct(t.shape, numpy_dtype(t.dtype), sharding=s)
                for t, s in zip(self.types, self.shardings, strict=True)
            ]

    @cached_property
    def _placers(self) -> Sequence[tuple[Callable[[Sequence[Any]], pjrt.DeviceArray], tuple[int, ...], Any, int]]:
        """For each array: a function that puts its shards on devices, and their shape, element type and number."""
        found: list[tuple[Callable[[Sequence[Any]], pjrt.DeviceArray], tuple[int, ...], Any, int]] = []
        for type_, sharding in zip(self.types, self.shardings, strict=True):
            devices = _devices_in_order(sharding)
            shape = sharding.shard_shape(type_.shape)
            place = pjrt.placer(type_, sharding, devices, keeps=True)
            found.append((place, shape, numpy_dtype(type_.dtype), len(devices)))
        return found

    def put(self, data: memoryview) -> list[pjrt.DeviceArray]:
        """Puts bytes on the devices, shard by shard. Raises ValueError if the arrays have more or fewer bytes."""
        arrays: list[pjrt.DeviceArray] = []
        begin = 0
        for place, shape, dtype, count in self._placers:
            shards = np.frombuffer(data, dtype, prod(shape) * count, begin).reshape(count, *shape)
            begin += shards.nbytes
            arrays.append(place(list(shards)))
        if begin != len(data):
            raise ValueError(f"{len(data)} bytes were received, not {begin}")
        return arrays


def _devices_in_order(sharding: Any) -> list[pjrt.Device]:
    """Lists the devices of a sharding on a mesh, in mesh order, or the device of a single-device sharding."""
    mesh: Any = getattr(sharding, "mesh", None)
    return list(sharding.device_set if mesh is None else mesh.devices.flat)


class Unsent(Protocol):
    """Arrays that were offered and are not sent yet."""

    def send(self) -> None:
        """Waits for the arrays, and sends them. Only for callers that can receive nothing that they await before."""
        ...

    def leave(self) -> None:
        """Has another thread send the arrays when they are computed."""
        ...


class DataPlane(Protocol):
    """The sending end of a transport to one other host. No method waits for the other host or for an array.

    A number identifies one offer and one fetch. Offered arrays must not be donated before they are fetched.
    """

    @property
    def has_open_port(self) -> bool:
        """Whether it listens at a port without keys. Garbage that is sent to such a port ends this process."""
        ...

    def begin(self, outbox: Outbox) -> None:
        """Takes the outbox for the current process of the other host, until `drop` reports its loss."""
        ...

    def open(self) -> None:
        """Prepares to offer arrays. Called once, when a plan that offers arrays is loaded."""
        ...

    def where(self) -> str:
        """Returns the address that the receiving end needs, at each new connection; empty if it needs none."""
        ...

    def offer(self, number: int, arrays: Sequence[pjrt.DeviceArray], devices: Sequence[pjrt.Device]) -> Unsent | None:
        """Offers arrays, which `devices` compute. The caller must `send` or `leave` what this returns."""
        ...

    def fail(self, number: int, why: str, values: ArrayGroup) -> None:
        """Offers a failure in place of arrays. A fetch of the number then raises one of FAILURES with the text."""
        ...

    def drop(self, *, is_lost: bool) -> None:
        """Drops all offers that were not fetched: the other host `is_lost`, or reconnects."""
        ...


class DataSource(Protocol):
    """The receiving end of a transport from one other host."""

    def fetch(self, number: int, values: ArrayGroup) -> Sequence[Any]:
        """Requests arrays, which may not exist yet; returns them, or objects that are waited for like arrays.

        Raises one of FAILURES if the source is closed.
        """
        ...

    def close(self) -> None:
        """Fails all requested arrays that were not received."""
        ...
