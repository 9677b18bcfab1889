"""Defines the arrays of one session. An array is a buffer in the store, or a view of one shard of another array. The
functions that answer requests call it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from pathways.api.array import check_fetch_limit, waited
from pathways.dialect.dtypes import ArrayType
from pathways.dialect.sharding import Box
from pathways.ifrt_proxy.devices import ServedDevices
from pathways.ifrt_proxy.shardings import Location, on_one_device
from pathways.runtime.client import arrays
from pathways.runtime.client.handles import DELETED, Handle
from pathways.runtime.client.new_buffers import NewBuffer, copy_buffer_shard, move_buffer, put_buffer
from pathways.runtime.client_state import ClientState
from pathways.runtime.host.run.background import Promise
from pathways.runtime.host.run.poison import Poison


@dataclass(eq=False)
class StoredArray:
    """An array of a client: a handle on a buffer in the store, and the ids of its devices."""

    handle: Handle
    type: ArrayType
    location: Location

    def fetch(self) -> "np.ndarray[Any, Any]":
        """Waits for the values and copies them to this process. Raises the error of the run that did not make them."""
        check_fetch_limit(self.handle, "an array", self.type.bytes)
        return self._read(arrays.fetched)

    def fetch_shard(self, position: int) -> "np.ndarray[Any, Any]":
        return self._read(lambda array: arrays.fetched_shard(array, position))

    def wait(self) -> None:
        """Waits until the values are computed. Raises like `fetch`."""
        self._read(lambda array: array.block_until_ready())

    def is_ready(self) -> bool:
        """Returns whether `wait` would return at once. Raises the error of `fetch` if the array has failed."""
        return bool(self._read(lambda array: array.is_ready()))

    def _read(self, read: Callable[[Any], Any]) -> Any:
        known = self.handle.known()
        if isinstance(known, Poison):
            raise known.error()
        assert not isinstance(known, Promise)
        held, array = self.handle.share()
        try:
            if isinstance(array, Poison):
                raise array.error()
            return waited(held, lambda: read(array))
        finally:
            held.drop()

    @property
    def is_deleted(self) -> bool:
        return self.handle.taken_by is not None

    def delete(self) -> None:
        if not self.is_deleted:
            self.handle.give_up(DELETED, None)

    def share(self) -> "StoredArray":
        """Returns another array with the same buffer, which lives until both are dropped. Raises if it is deleted."""
        return StoredArray(self.handle.share()[0], self.type, self.location)

    def drop(self) -> None:
        self.handle.drop()


@dataclass(eq=False)
class ShardView:
    """One shard of another array, as an array on one device. It holds the buffer of that array.

    `position` counts in the client's order of devices.
    """

    whole: StoredArray
    position: int

    @cached_property
    def type(self) -> ArrayType:
        whole = self.whole
        return ArrayType(whole.location.sharding.shard_shape(whole.type.shape), whole.type.dtype)

    @property
    def location(self) -> Location:
        return on_one_device(self.whole.location.devices[self.position], len(self.type.shape))

    def fetch(self) -> "np.ndarray[Any, Any]":
        return self.whole.fetch_shard(self.whole.location.mesh_position(self.position))

    def wait(self) -> None:
        self.whole.wait()

    def is_ready(self) -> bool:
        return self.whole.is_ready()

    @property
    def is_deleted(self) -> bool:
        return self.whole.is_deleted

    def delete(self) -> None:
        self.whole.delete()

    def share(self) -> "ShardView":
        return ShardView(self.whole.share(), self.position)

    def drop(self) -> None:
        self.whole.drop()


@dataclass(eq=False)
class FailedArray:
    """An array that is never computed: each use raises its error."""

    error: Exception
    is_deleted: bool = False

    def fetch(self) -> "np.ndarray[Any, Any]":
        raise self.error

    wait = fetch

    def is_ready(self) -> bool:
        return True

    def delete(self) -> None:
        self.is_deleted = True

    def share(self) -> "FailedArray":
        return self

    def drop(self) -> None:
        """Does nothing: no memory is held."""


GoodArray: TypeAlias = StoredArray | ShardView
ClientArray: TypeAlias = GoodArray | FailedArray


def later_wait(arrays: Sequence[ClientArray]) -> Callable[[], None]:
    """Holds arrays from now on. Returns a function that waits for their values, and then drops them."""
    held = [array.share() for array in arrays]

    def wait() -> None:
        try:
            for array in held:
                array.wait()
        finally:
            for array in held:
                array.drop()

    return wait


@dataclass(frozen=True)
class ArrayMaker:
    """Makes the arrays of one client on the served devices."""

    devices: ServedDevices
    client: ClientState

    def put(
        self, values: "np.ndarray[Any, Any]", type_: ArrayType, location: Location, *, keeps: bool = False
    ) -> StoredArray:
        """Copies values to devices. If `keeps`, the caller does not use the memory of `values` again.

        Raises PWC0506 and PWC0507 if memory does not suffice.
        """
        controller, place = self.devices.process.controller, self.devices.place(location)
        handle = put_buffer(controller, self.client, _new(type_, "device_put"), place, values, keeps=keeps)
        return StoredArray(handle, type_, location)

    def put_shards(
        self,
        shards: "Sequence[np.ndarray[Any, Any]]",
        positions: Sequence[Sequence[int]],
        type_: ArrayType,
        to: Location,
        *,
        keeps: bool = False,
    ) -> StoredArray:
        """Joins shards, each for the positions that hold it, and puts the array on devices. `put` explains `keeps`."""
        whole_at = list(range(len(to.devices)))
        if len(shards) == 1 and sorted(positions[0]) == whole_at and shards[0].shape == type_.shape:
            return self.put(shards[0], type_, to, keeps=keeps)
        if 0 in type_.shape:
            return self.put(np.empty(type_.shape, shards[0].dtype), type_, to, keeps=True)
        if sorted(p for held_at in positions for p in held_at) != whole_at:
            raise ValueError(f"shards for the devices {positions} of {len(to.devices)}")
        boxes = to.sharding.boxes(type_.shape)
        whole = np.empty(type_.shape, shards[0].dtype)
        for shard, held_at in zip(shards, positions, strict=True):
            regions = {boxes[to.mesh_position(position)] for position in held_at}
            into = whole[_slices(regions.pop())]
            if regions or into.shape != shard.shape:
                raise ValueError(f"a shard of shape {shard.shape} for the devices {held_at}")
            into[...] = shard
        return self.put(whole, type_, to, keeps=True)

    def move(self, array: GoodArray, location: Location) -> StoredArray:
        """Copies an array to other devices, or to another sharding."""
        if isinstance(array, ShardView):
            copied = self.stored(array)
            try:
                return self.move(copied, location)
            finally:
                copied.drop()
        controller, place = self.devices.process.controller, self.devices.place(location)
        handle = move_buffer(controller, self.client, _new(array.type, "device_put"), place, array.handle)
        return StoredArray(handle, array.type, location)

    def stored(self, array: ClientArray) -> StoredArray:
        """Returns an array with a buffer of its own, as a run takes it. Raises the error of a failed array."""
        if isinstance(array, FailedArray):
            raise array.error
        if isinstance(array, StoredArray):
            return array
        controller, place = self.devices.process.controller, self.devices.place(array.location)
        new, position = _new(array.type, "device_put"), array.whole.location.mesh_position(array.position)
        handle = copy_buffer_shard(controller, self.client, new, place, array.whole.handle, position)
        return StoredArray(handle, array.type, array.location)


def _new(type_: ArrayType, operation: str) -> NewBuffer:
    return NewBuffer(type_, type_.dtype, "an array of a client", operation)


def _slices(box: Box) -> tuple[Any, ...]:
    """Returns an index that gives a view, also of an array without dimensions."""
    return ..., *(slice(start, stop) for start, stop in box)
