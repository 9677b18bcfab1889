"""Writes the arrays of a snapshot to files and reads them back. The processes that have the devices do the work: hosts
in a cluster, or else this process. `pw.save` and `pw.restore` call it.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pathways.dialect.array_files import ArrayFile
from pathways.dialect.sharding import Sharding
from pathways.dialect.user_line import caller
from pathways.runtime.client.controller import Controller
from pathways.runtime.client.remote.hosts import Hosts
from pathways.runtime.client.remote.remote_island import RemoteIsland
from pathways.runtime.client.remote.remote_moves import move_engine
from pathways.runtime.client.remote_array import RemoteArray
from pathways.runtime.client.store import Handle, StoredBuffer
from pathways.runtime.client_state import ClientState
from pathways.runtime.control.scheduling import Request
from pathways.runtime.host.devices.islands import Keeper, Machine
from pathways.runtime.host.devices.layouts import Side
from pathways.runtime.host.devices.saved_arrays import read_shards, side_on, write_shards
from pathways.runtime.host.run.poison import lost_among
from pathways.runtime.wire import messages as m


@dataclass(frozen=True)
class SavedAs:
    """An array to read: its folder, file entry, user-visible name and element type."""

    folder: Path
    file: ArrayFile
    name: str
    dtype: str


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


def place_of_buffer(machine: Machine, buffer: StoredBuffer) -> BufferPlace | None:
    """Returns the location of a buffer, None if the machine lacks one of its devices or has lost one."""
    islands = {island.name if island else "" for island in map(machine.island_of, buffer.devices)}
    if len(islands) != 1 or "" in islands or lost_among(machine.islands, buffer.devices) is not None:
        return None
    return BufferPlace(buffer.sharding, buffer.devices).keep(machine)


def write_array(array: Any, folder: Path, file: ArrayFile) -> None:
    """Writes an array from its devices. Waits for the array and raises the same errors as reading it.

    Raises PWC0606 if the file cannot be written, PWC0910 if its host is lost meanwhile.
    """
    if not isinstance(array, RemoteArray):
        write_shards(array, folder, file)
        return
    array.block_until_ready()
    host = array.store
    assert isinstance(host, RemoteIsland)
    host.ask_each(lambda request: m.WriteArray(request, array.number, os.fsencode(folder), json.dumps(file.as_json())))


def read_buffer(controller: Controller, client: ClientState, saved: SavedAs, place: BufferPlace) -> Handle:
    """Reads an array onto its devices when memory is free; returns a handle for the client.

    Raises PWC0615 if the file is damaged, PWC0506, PWC0507, PWC0515 as a run does, PWC0910 if its host is lost.
    """
    controller.check_open(client)
    type_ = saved.file.type
    island = controller.island_of(place.devices[0])
    size = type_.shard_bytes(place.sharding.shard_shape(type_.shape))
    wanted = {d: size for d in place.devices if d in controller.ledger.limits}
    number = next(controller.numbers)
    request = Request(number, client.label, "pw.restore", frozenset((island.key,)), client.weight, bytes=wanted)
    controller.check_room(request)
    ticket = controller.enter(request, client)
    try:
        array = _read(controller.machine, saved.folder, saved.file, place.sharding, place.devices)
        origin = "pw.restore", island.name, caller()
        buffer = StoredBuffer(
            array, type_, saved.dtype, place.sharding, place.devices, saved.name, origin, client, size, number
        )  # fmt: skip
        return controller.store.hold(buffer, array)
    finally:
        controller.run_queue.finished(ticket)


def _read(machine: Machine, folder: Path, file: ArrayFile, sharding: Sharding, devices: Sequence[Any]) -> Any:
    if isinstance(machine, Hosts):
        nowhere: Any = None  # JAX has no such devices here
        side = Side(sharding, nowhere, tuple(devices))
        engine = move_engine(machine, file.type, side, side)
        return engine.read(0, os.fsencode(folder), json.dumps(file.as_json()), file.type)
    return read_shards(folder, file, side_on(sharding, devices))
