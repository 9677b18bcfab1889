"""Makes buffers in device memory outside of runs: values of this process, arrays of other devices, files. Snapshots and
the proxy call it. The memory of the devices is reserved as for a run.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pathways.dialect.dtypes import ArrayType
from pathways.dialect.sharding import Sharding
from pathways.dialect.user_line import caller
from pathways.runtime.client.arrays import copied_shard
from pathways.runtime.client.buffers import KindOfBuffer, StoredBuffer, interned
from pathways.runtime.client.controller import Controller
from pathways.runtime.client.engine import prepare_move
from pathways.runtime.client.handles import Handle
from pathways.runtime.client.remote.hosts import Hosts
from pathways.runtime.client.remote.remote_moves import put_values
from pathways.runtime.client_state import ClientState
from pathways.runtime.control.scheduling import Request
from pathways.runtime.host.devices.islands import Keeper, Machine
from pathways.runtime.host.devices.layouts import Side
from pathways.runtime.host.devices.saved_arrays import side_on
from pathways.runtime.host.run.poison import Poison


@dataclass(frozen=True)
class BufferPlace:
    """The location of an array: devices of one island in mesh order, and the sharding over them."""

    sharding: Sharding
    devices: tuple[Any, ...]
    _keeper: Keeper = field(default_factory=Keeper, compare=False, repr=False)

    def keep(self, machine: Machine) -> "BufferPlace":
        """Keeps the island bound while this object is alive; returns the object."""
        machine.keep(self.devices, self._keeper)
        return self


@dataclass(frozen=True)
class NewBuffer:
    """A buffer to make: its stored type, the user-visible element type, its name, and the operation that makes it."""

    type: ArrayType
    dtype: str
    name: str
    operation: str


def make_buffer(
    controller: Controller, client: ClientState, new: NewBuffer, place: BufferPlace, make: Callable[[], Any]
) -> Handle:
    """Calls `make` for the array when memory is free; returns a handle for the client.

    Raises PWC0506, PWC0507, PWC0515 as a run does, PWC0910 if the host of the devices is lost.
    """
    controller.check_open(client)
    island = controller.island_of(place.devices[0])
    size = new.type.shard_bytes(place.sharding.shard_shape(new.type.shape))
    wanted = {d: size for d in place.devices if d in controller.ledger.limits}
    number = next(controller.numbers)
    request = Request(number, client.label, new.operation, frozenset((island.key,)), client.weight, bytes=wanted)
    controller.check_room(request)
    ticket = controller.enter(request, client)
    try:
        array = make()
        origin = new.operation, island.name, caller()
        kind = interned(KindOfBuffer(new.type, new.dtype, place.sharding, place.devices, size))
        buffer = StoredBuffer(array, kind, new.name, origin, client, number)
        return controller.store.hold(buffer, array)
    finally:
        controller.run_queue.finished(ticket)


def put_buffer(
    controller: Controller,
    client: ClientState,
    new: NewBuffer,
    place: BufferPlace,
    values: "np.ndarray[Any, Any]",
    *,
    keeps: bool,
) -> Handle:
    """Copies values of this process to devices. If `keeps`, the caller does not use their memory again.

    Raises the errors of `make_buffer`.
    """
    machine = controller.machine
    side = side_of(machine, place.sharding, place.devices)
    return make_buffer(controller, client, new, place, lambda: put_values(machine, values, new.type, side, keeps=keeps))


def move_buffer(
    controller: Controller, client: ClientState, new: NewBuffer, place: BufferPlace, handle: Handle
) -> Handle:
    """Copies a buffer to other devices, or to another sharding, once its array is known.

    Raises the errors of `make_buffer`, and that of a buffer that is never computed.
    """
    machine, buffer = controller.machine, handle.buffer
    side = side_of(machine, place.sharding, place.devices)
    source = side_of(machine, buffer.sharding, buffer.devices)
    return _made_from(handle, controller, client, new, place, prepare_move(controller, new.type, source, side))


def copy_buffer_shard(
    controller: Controller, client: ClientState, new: NewBuffer, place: BufferPlace, handle: Handle, position: int
) -> Handle:
    """Copies the shard of a buffer at a mesh position on its device. Raises the errors of `move_buffer`."""
    return _made_from(handle, controller, client, new, place, lambda array: copied_shard(array, position, new.type))


def _made_from(
    handle: Handle,
    controller: Controller,
    client: ClientState,
    new: NewBuffer,
    place: BufferPlace,
    make: Callable[[Any], Any],
) -> Handle:
    """Calls `make` with the array of a buffer, once it is known."""
    handle.known()
    held, array = handle.share()
    try:
        if isinstance(array, Poison):
            raise array.error()
        return make_buffer(controller, client, new, place, lambda: make(array))
    finally:
        held.drop()


def side_of(machine: Machine, sharding: Sharding, devices: Sequence[Any]) -> Side:
    """Applies a sharding by position to devices of a machine, given in mesh order."""
    if isinstance(machine, Hosts):
        nowhere: Any = None  # JAX has no such devices here
        return Side(sharding, nowhere, tuple(devices))
    return side_on(sharding, devices)
