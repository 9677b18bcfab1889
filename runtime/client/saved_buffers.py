"""Writes the arrays of a snapshot to files and reads them back. The processes that have the devices do the work: hosts
in a cluster, or else this process. `pw.save` and `pw.restore` call it.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pathways.dialect.array_files import ArrayFile
from pathways.dialect.sharding import Sharding
from pathways.runtime.client.buffers import StoredBuffer
from pathways.runtime.client.controller import Controller
from pathways.runtime.client.handles import Handle
from pathways.runtime.client.new_buffers import BufferPlace, NewBuffer, make_buffer, side_of
from pathways.runtime.client.remote.hosts import Hosts
from pathways.runtime.client.remote.remote_island import RemoteIsland
from pathways.runtime.client.remote.remote_moves import move_engine
from pathways.runtime.client.remote_array import RemoteArray
from pathways.runtime.client_state import ClientState
from pathways.runtime.host.devices.islands import Machine
from pathways.runtime.host.devices.saved_arrays import read_shards, write_shards
from pathways.runtime.host.run.poison import lost_among
from pathways.runtime.wire import messages as m


@dataclass(frozen=True)
class SavedAs:
    """An array to read: its folder, file entry, user-visible name and element type."""

    folder: Path
    file: ArrayFile
    name: str
    dtype: str


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

    def read() -> Any:
        return _read(controller.machine, saved.folder, saved.file, place.sharding, place.devices)

    return make_buffer(
        controller, client, NewBuffer(saved.file.type, saved.dtype, saved.name, "pw.restore"), place, read
    )


def _read(machine: Machine, folder: Path, file: ArrayFile, sharding: Sharding, devices: Sequence[Any]) -> Any:
    side = side_of(machine, sharding, devices)
    if isinstance(machine, Hosts):
        engine = move_engine(machine, file.type, side, side)
        return engine.read(0, os.fsencode(folder), json.dumps(file.as_json()), file.type)
    return read_shards(folder, file, side)
