"""Interface of a transport, which moves arrays between two hosts. A new one is a file, and rows in `link.py`."""

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
    """Describes arrays that go to another host together, or come from one; prepared once, when a plan is loaded."""

    types: Sequence[ArrayType]
    shardings: Sequence[Any]

    @cached_property
    def bytes(self) -> int:
        """Counts the bytes of all shards; copies on several devices count each."""
        return sum(
            prod(s.shard_shape(t.shape)) * numpy_dtype(t.dtype).itemsize * len(s.device_set)
            for t, s in zip(self.types, self.shardings, strict=True)
        )

    @cached_property
    def structs(self) -> Sequence[Any]:
        """Describes the arrays for JAX. Making these takes longer than asking for the arrays."""
        with jax.enable_x64(True):  # or 64 bits would be 32
            return [
                jax.ShapeDtypeStruct(t.shape, numpy_dtype(t.dtype), sharding=s)
                for t, s in zip(self.types, self.shardings, strict=True)
            ]

    @cached_property
    def _placers(self) -> Sequence[tuple[Callable[[Sequence[Any]], pjrt.DeviceArray], tuple[int, ...], Any, int]]:
        """For each array: what puts its shards on devices, their shape, element type and number."""
        found: list[tuple[Callable[[Sequence[Any]], pjrt.DeviceArray], tuple[int, ...], Any, int]] = []
        for type_, sharding in zip(self.types, self.shardings, strict=True):
            devices = _devices_in_order(sharding)
            shape = sharding.shard_shape(type_.shape)
            found.append((pjrt.placer(type_, sharding, devices), shape, numpy_dtype(type_.dtype), len(devices)))
        return found

    def put(self, data: memoryview) -> list[pjrt.DeviceArray]:
        """Puts bytes, shard by shard, on the devices. Raises ValueError where the arrays have more or fewer."""
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
    """Lists the devices of a sharding on a mesh, in its order; or of one on a device."""
    mesh: Any = getattr(sharding, "mesh", None)
    return list(sharding.device_set if mesh is None else mesh.devices.flat)


class Unsent(Protocol):
    """Arrays that were offered and are not sent yet."""

    def send(self) -> None:
        """Waits for the arrays, and sends them: where nothing else that the caller waits for can come before."""
        ...

    def leave(self) -> None:
        """Has another thread send them when they are there."""
        ...


class DataPlane(Protocol):
    """The sending end of a transport to one other host. Nothing here waits, for the other host or for an array.

    A number is that of one offer and of one fetch. What is offered must not be donated before it was fetched.
    """

    @property
    def has_open_port(self) -> bool:
        """Whether it listens at a port without keys, which ends this process if it is sent garbage."""
        ...

    def begin(self, outbox: Outbox) -> None:
        """Takes the outbox for the host that is there now, until `drop` says that it is lost."""
        ...

    def open(self) -> None:
        """Gets ready to offer: called when a plan is loaded that will, once."""
        ...

    def where(self) -> str:
        """Tells the receiving end how to fetch, at each connection anew; empty: it need not be told."""
        ...

    def offer(self, number: int, arrays: Sequence[pjrt.DeviceArray], devices: Sequence[pjrt.Device]) -> Unsent | None:
        """Offers arrays, which `devices` make. Returns what is not sent yet, which the caller must see to."""
        ...

    def fail(self, number: int, why: str, values: ArrayGroup) -> None:
        """Says why nothing will be offered under a number: to fetch that raises one of FAILURES with the text."""
        ...

    def drop(self, *, is_lost: bool) -> None:
        """Drops what was offered and not fetched: the other host `is_lost`, or connects anew."""
        ...


class DataSource(Protocol):
    """The receiving end of a transport from one other host."""

    def fetch(self, number: int, values: ArrayGroup) -> Sequence[Any]:
        """Asks for arrays, which may not exist yet; gives them, or what is waited for as they are.

        Raises one of FAILURES where it is closed.
        """
        ...

    def close(self) -> None:
        """Ends all that was not fetched with an error."""
        ...
