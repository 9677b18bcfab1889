"""Suspends and resumes a client: moves its arrays from device memory to host memory or disk, and back later. Other
clients can use the memory meanwhile. `pw.Client` calls it.
"""

import secrets
import time
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.dtypes import ArrayType, numpy_dtype
from pathways.dialect.files import write_folder, write_private
from pathways.runtime.client.arrays import FAILURES, fetched, is_any_array, sharding_of
from pathways.runtime.client.buffers import StoredBuffer, Suspended
from pathways.runtime.client.controller import Controller
from pathways.runtime.client.remote.remote_moves import put_values
from pathways.runtime.client_state import ClientState
from pathways.runtime.control.scheduling import Request
from pathways.runtime.errors import SnapshotMissing
from pathways.runtime.host.devices.islands import Keeper
from pathways.runtime.host.devices.layouts import Side
from pathways.runtime.host.run.poison import Poison, lost_among


@dataclass(frozen=True, eq=False)
class Kept:
    """The values of one suspended array, and its location on devices."""

    where: Suspended
    real: Any
    """The JAX sharding of the array."""
    host: "np.ndarray[Any, Any] | Path"

    def read(self, type_: ArrayType) -> "np.ndarray[Any, Any]":
        if isinstance(self.host, Path):
            return np.fromfile(self.host, numpy_dtype(type_.dtype)).reshape(type_.shape)
        return self.host

    def forget(self) -> None:
        """Deletes the file of the values, if there is one. The values are on devices again, or no longer needed."""
        if isinstance(self.host, Path):
            self.host.unlink(missing_ok=True)


def suspend(controller: Controller, client: ClientState, folder: Path | None) -> int:
    """Frees all device memory of a client after its runs; returns the bytes freed. A second call has no effect.

    Arrays on hosts in other processes are copied to this process. Raises PWC0606 if `folder` cannot be written.
    """
    if folder is not None:
        write_folder(folder, {})
        _write(folder, b"").unlink()
    client.suspended = True
    controller.background.drain(client)
    while any(f.client == client.label for f in controller.flights.all()):
        controller.flights.hurry()
        time.sleep(0.001)
    freed = 0
    for buffer in controller.store.of(client):
        array = buffer.array
        if buffer.pinned or not is_any_array(array):
            continue
        try:
            host: np.ndarray[Any, Any] | Path = fetched(array)
        except (PathwaysError, *FAILURES):  # a failed array stays as it is
            continue
        if folder is not None:
            host = _write(folder, np.ascontiguousarray(host).tobytes())
        kept = Kept(Suspended(client.label), sharding_of(array), host)
        client.kept[buffer] = kept
        if controller.store.replace(buffer, array, kept.where, held=False):
            freed += buffer.bytes * len(buffer.devices)
    return freed


def _write(folder: Path, raw: bytes) -> Path:
    """Writes a file under an unpredictable name."""
    path = folder / f"pathways-{secrets.token_hex(8)}.bin"
    write_private(path, raw)
    return path


def resume(controller: Controller, client: ClientState) -> None:
    """Moves all arrays back to their devices when memory is free. Raises PWC0506 and PWC0507 as a run does."""
    kept = {b: k for b, k in client.kept.items() if b.array is k.where}
    keeper = Keeper()  # islands stay bound while the arrays wait for memory
    controller.machine.keep({d for b in kept for d in b.devices}, keeper)
    wanted: dict[Hashable, int] = {}
    limits = controller.ledger.limits
    for buffer in kept:
        for device in buffer.devices:
            if device in limits:
                wanted[device] = wanted.get(device, 0) + buffer.bytes
    islands = {controller.island_of(d).key for b in kept for d in b.devices}
    number = next(controller.numbers)
    request = Request(number, client.label, "client.resume", frozenset(islands), client.weight, bytes=wanted)
    controller.check_room(request)
    ticket = controller.enter(request, client)
    try:
        for buffer, one in kept.items():
            if buffer.array is one.where:
                back = _back(controller, buffer, one)
                # No effect if its last handle was dropped meanwhile, or if another thread was faster.
                controller.store.replace(buffer, one.where, back, held=is_any_array(back))
        client.forget_kept()
        client.suspended = False
    finally:
        controller.run_queue.finished(ticket)


def _back(controller: Controller, buffer: StoredBuffer, kept: Kept) -> Any:
    """Copies the values to their devices; returns the array, or poison with the cause of a failure."""
    lost = lost_among(controller.machine.islands, buffer.devices)
    if lost is not None:
        return lost
    try:
        host = kept.read(buffer.type)
    except (OSError, ValueError) as error:  # its file is missing or truncated
        return Poison(SnapshotMissing(name=buffer.name, problem=str(error)))
    try:
        return put_values(controller.machine, host, buffer.type, Side(buffer.sharding, kept.real, buffer.devices))
    except PathwaysError as error:  # its host is lost and cannot be restarted
        return Poison(error.diagnostic)
