# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Implements the transport for arrays of any size, with JAX's transfer server (`jax.experimental.transfer`). The
receiver pulls an array, which may not be computed yet. `link.py` uses it.

It is the compat module for `jax.experimental.transfer`. It needs the flat forms, which do no work on pytrees, and two
private names. `_poison_connection` ends the pulls of a connection whose other end is frozen: otherwise peer hosts would
wait for a frozen process. `_reset_rendevous_table` frees arrays offered to a lost process: otherwise they would stay
until this process exits. Dropping the server frees nothing while its peer is frozen.

Nothing here checks types: pulled arrays must match the offered arrays, shard by shard (dialect/plan/part.py).
"""

import contextlib
import importlib
import secrets
import threading
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from pathways.dialect.dtypes import ArrayType
from pathways.runtime.host.between.data_plane import ArrayGroup
from pathways.runtime.host.between.eager_server import Outbox
from pathways.runtime.host.between.inbox import EagerMessage
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.devices.waits import wait_up_to
from pathways.runtime.wire.addresses import show_address

CONNECT_S = 5.0
"""Time limit for the address of another host's transfer server to arrive, in seconds; then the pull fails."""
CONNECT_AGAIN_S = 0.2
"""The same limit for later pulls from a host whose address has not arrived within `CONNECT_S`."""
MEETING_S = 2.0
"""Time limit until both ends of a connection are ready, in seconds; then they are assumed to be ready."""
_transfer: Any = importlib.import_module("jax.experimental.transfer")
_TRANSPORTS = 2
"""Number of connections for the data of one pair of processes. Without any, an offer kills the process."""


class TransferServer:
    """Offers arrays to one other host through a transfer server of JAX.

    The server listens at an address of this machine once a plan that offers arrays is loaded. It requires no keys, and
    encrypts nothing. A process that reaches it can end this process, and can read any array whose number it guesses.
    Another host also ends this process if it exits while this one connects to it, at the first pull.
    """

    def __init__(self, device: pjrt.Device, ip: str) -> None:
        self._device, self._ip = device, ip
        self._server: Any = None
        self._greeting = 0
        """The number of a byte that the other host pulls to check that both ends are ready; 0 until it is sent."""
        self._lock = threading.Lock()
        """Guards the fields above: plans are loaded while hosts connect and are lost."""

    @property
    def has_open_port(self) -> bool:
        """Whether JAX's transfer server listens."""
        return self._server is not None

    def begin(self, outbox: Outbox) -> None:
        """Does nothing: arrays are pulled."""

    def open(self) -> None:
        """Starts to listen for pulls. A second call does nothing."""
        with self._lock:
            self._start()

    def _start(self) -> None:
        if self._server is None:
            address = show_address((self._ip, 0))
            self._server = _transfer.start_transfer_server(self._device.client, address, [address] * _TRANSPORTS)

    def where(self) -> str:
        """Offers a byte, which the other host pulls to check that both ends are ready.

        Returns the number of the byte, and the address of the server.

        The call that connects returns before both ends are ready. The rest of the connect ends the calling process if
        the other end is lost meanwhile. No value has this number: theirs have 62 bits. Each offer is pulled once.
        """
        with self._lock:
            self._greeting = 1 << 62 | secrets.randbits(62)
            self._greet()
            return f"{self._greeting} {self._server.address()}"

    def _greet(self) -> None:
        self._server._await_pull_flat(self._greeting, [jax.device_put(np.zeros((1,), np.uint8), self._device)])

    def connect_to(self, address: str, greeting: int) -> tuple[Any, Sequence[pjrt.DeviceArray]]:
        """Connects to the other host's transfer server; returns the connection, and the byte pulled over it."""
        with self._lock:
            self._start()
            connection = self._server.connect(address)
        byte = ArrayGroup([ArrayType((1,), "uint8")], [pjrt.on_device(self._device)])
        return connection, connection._pull_flat(greeting, self._device.client, byte.structs)

    def offer(self, number: int, arrays: Sequence[pjrt.DeviceArray], devices: Sequence[pjrt.Device]) -> None:
        """Offers arrays under a number, as one sequence of their shards in this order."""
        with self._lock:
            self._server._await_pull_flat(number, list(arrays))

    def fail(self, number: int, why: str, values: ArrayGroup) -> None:
        """Offers arrays without values: waiting for one raises one of FAILURES with the text."""
        self.offer(number, [_transfer.make_error_array(struct, why) for struct in values.structs], ())

    def drop(self, *, is_lost: bool) -> None:
        """Drops all offers that were not pulled, and their arrays."""
        with self._lock:
            if is_lost:
                self._greeting = 0
            if self._server is not None:
                self._server._reset_rendevous_table()
                if self._greeting:  # the other host may not have pulled it yet
                    self._greet()


class PulledSource:
    """Pulls arrays from the transfer server of another host."""

    def __init__(self, server: TransferServer, where: EagerMessage) -> None:
        """`where`: the address, which the other host sends when it loads a plan that offers arrays."""
        self._server, self._where = server, where
        self._connection: Any = None
        self._is_closed = False
        self._lock = threading.Lock()
        """Guards both fields above."""
        self._patience_s = CONNECT_S
        """Time limit for the address of the other host's transfer server at the next pull."""

    def fetch(self, number: int, values: ArrayGroup) -> Sequence[pjrt.DeviceArray]:
        client = next(iter(values.shardings[0].device_set)).client
        return self._connected()._pull_flat(number, client, values.structs)

    def _connected(self) -> Any:
        """Returns the connection to the other host's transfer server, which is made at the first pull.

        Waits for the address, and until both ends are ready. Raises RuntimeError if the address does not arrive.
        """
        if self._connection is None:
            wait_up_to([self._where], self._patience_s)
            if not self._where.is_there():
                self._patience_s = CONNECT_AGAIN_S  # each pull delays runs of other clients
                raise RuntimeError("the peer host has not sent the address of its transfer server")
            if self._is_closed:  # connecting to a lost process ends this one
                raise RuntimeError("the connection was closed")
            greeting, _, address = bytes(self._where.read()).decode().partition(" ")
            connection, greeted = self._server.connect_to(address, int(greeting))
            wait_up_to(greeted, MEETING_S)
            with self._lock:
                self._connection = connection
                if self._is_closed:
                    connection._poison_connection()
        return self._connection

    def close(self) -> None:
        """Ends all pulls with an error."""
        with self._lock, contextlib.suppress(*pjrt.FAILURES):
            self._is_closed = True
            if self._connection is not None:
                self._connection._poison_connection()
