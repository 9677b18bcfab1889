# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Arrays from process to process, by JAX's transfer server: offered by number and pulled by it, before they exist.

The compat module for `jax.experimental.transfer`: for its flat forms, which do no work on trees, and for two private
names. `_poison_connection` ends the pulls of a connection whose other end is frozen; without it a frozen process would
keep its neighbors waiting. `_reset_rendevous_table` frees what was offered to a process that is gone; without it that
would stay for as long as this process does (dropping the server frees nothing while its peer is frozen).

Nothing here checks types: what is pulled must be what was offered, piece by piece (dialect/plan/part.py). A number is
pulled once. What is offered must not be donated or deleted before it is pulled: the transfer would fail.
"""

import contextlib
import importlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from pathways.dialect.diagnostics import Diagnostic
from pathways.dialect.dtypes import ArrayType, numpy_dtype
from pathways.runtime.host.devices import pjrt
from pathways.runtime.wire.addresses import show_address

_transfer: Any = importlib.import_module("jax.experimental.transfer")
_TRANSPORTS = 2
"""Connections that the data of one pair of processes is spread over; with none, offering kills the process."""


@dataclass(frozen=True, eq=False)
class Incoming:
    """Arrays to pull, each sharded so. Prepared once: to describe them to JAX takes longer than to ask for them."""

    client: Any
    structs: Sequence[Any]

    @classmethod
    def of(cls, client: Any, types: Sequence[ArrayType], shardings: Sequence[Any]) -> "Incoming":
        with jax.enable_x64(True):  # or 64 bits would be 32
            structs = [
                jax.ShapeDtypeStruct(t.shape, numpy_dtype(t.dtype), sharding=s)
                for t, s in zip(types, shardings, strict=True)
            ]
        return cls(client, structs)


class TransferSource:
    """A connection to the transfer server of another process."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.lost: Diagnostic | None = None
        """Why the process is gone."""

    def pull(self, name: int, wanted: Incoming) -> list[pjrt.DeviceArray]:
        """Asks for arrays: gives futures. Raises one of FAILURES where it is closed."""
        return self._connection._pull_flat(name, wanted.client, wanted.structs)

    def close(self) -> None:
        """Ends all pulls with an error."""
        with contextlib.suppress(*pjrt.FAILURES):
            self._connection._poison_connection()


class TransferServer:
    """What this process offers to one other, at an address of this machine. It asks for no keys, and encrypts nothing:
    on another than the loopback's, who reaches it may read what it guesses the number of."""

    def __init__(self, device: pjrt.Device, ip: str) -> None:
        address = show_address((ip, 0))
        self._server = _transfer.start_transfer_server(device.client, address, [address] * _TRANSPORTS)

    @property
    def address(self) -> str:
        return str(self._server.address())

    def connect(self, address: str) -> TransferSource:
        return TransferSource(self._server.connect(address))

    def forget(self) -> None:
        """Drops all offers that were not pulled, and their arrays: the process that was to pull them is gone."""
        self._server._reset_rendevous_table()

    def offer(self, name: int, arrays: Sequence[pjrt.DeviceArray]) -> None:
        """Offers arrays under a number, in this order; what counts are their shards, one after another."""
        self._server._await_pull_flat(name, list(arrays))


class Greeting:
    """One byte that a process offers to another, which pulls it to see that both ends are ready. Connecting returns
    before that, and the rest of it ends the process where the other is gone meanwhile."""

    def __init__(self, device: pjrt.Device) -> None:
        self._byte = jax.device_put(np.zeros((1,), np.uint8), device)
        self._wanted = Incoming.of(device.client, [ArrayType((1,), "uint8")], [pjrt.on_device(device)])

    def offer(self, server: TransferServer) -> int:
        """Offers it under a number that no value has: theirs are of 62 bits."""
        number = 1 << 62 | secrets.randbits(62)
        server.offer(number, [self._byte])
        return number

    def pull(self, source: TransferSource, number: int) -> list[pjrt.DeviceArray]:
        """Asks for that of another process; nothing where it is gone."""
        try:
            return source.pull(number, self._wanted)
        except pjrt.FAILURES:
            return []


def error_array(type_: ArrayType, sharding: Any, message: str) -> pjrt.DeviceArray:
    """An array whose values never come: to wait for it raises one of FAILURES with the message."""
    with jax.enable_x64(True):
        struct = jax.ShapeDtypeStruct(type_.shape, numpy_dtype(type_.dtype), sharding=sharding)
        return _transfer.make_error_array(struct, message)
