# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""The transport for arrays of any size, which are pulled from JAX's transfer server, also before they exist.

The compat module for `jax.experimental.transfer`: for its flat forms, which do no work on trees, and for two private
names. `_poison_connection` ends the pulls of a connection whose other end is frozen; without it a frozen process would
keep its neighbors waiting. `_reset_rendevous_table` frees what was offered to a process that is gone; without it that
would stay for as long as this process does (dropping the server frees nothing while its peer is frozen).

Nothing here checks types: what is pulled must be what was offered, piece by piece (dialect/plan/part.py).
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
from pathways.runtime.host.devices.waits import wait_at_most
from pathways.runtime.wire.addresses import show_address

CONNECT_S = 5.0
"""Limits the wait for the address of another host's transfer server, in seconds; then the pull fails."""
CONNECT_AGAIN_S = 0.2
"""Limits that wait for the later pulls from a host that has not said its address in `CONNECT_S`."""
MEETING_S = 2.0
"""Limits the wait until both ends of a connection are ready, in seconds; then they are taken to be."""
_transfer: Any = importlib.import_module("jax.experimental.transfer")
_TRANSPORTS = 2
"""Connections that the data of one pair of processes is spread over; with none, offering kills the process."""


class TransferServer:
    """Offers arrays to one other host, by a transfer server of JAX.

    It listens at an address of this machine from the first plan on that has arrays for it. It asks for no keys, and
    encrypts nothing: a process that reaches it may read what it guesses the number of, and can end this one. So can
    another host that ends in the moment in which this one connects with it, at the first pull.
    """

    def __init__(self, device: pjrt.Device, ip: str) -> None:
        self._device, self._ip = device, ip
        self._server: Any = None
        self._greeting = 0
        """The number of a byte that the other pulls to see that both ends are ready; 0 before it is told."""
        self._lock = threading.Lock()
        """Guards those: plans are loaded while hosts come and go."""

    @property
    def has_open_port(self) -> bool:
        """Whether JAX's transfer server listens."""
        return self._server is not None

    def begin(self, outbox: Outbox) -> None:
        """Does nothing: arrays are pulled."""

    def open(self) -> None:
        """Begins to listen for pulls; again it does nothing."""
        with self._lock:
            self._start()

    def _start(self) -> None:
        if self._server is None:
            address = show_address((self._ip, 0))
            self._server = _transfer.start_transfer_server(self._device.client, address, [address] * _TRANSPORTS)

    def where(self) -> str:
        """Offers a byte, which the other pulls to see that both ends are ready; gives its number, and the address.

        Connecting returns before that, and the rest of it ends the process where the other is gone meanwhile. The
        number is one that no value has: theirs are of 62 bits. What is offered is pulled once.
        """
        with self._lock:
            self._greeting = 1 << 62 | secrets.randbits(62)
            self._greet()
            return f"{self._greeting} {self._server.address()}"

    def _greet(self) -> None:
        self._server._await_pull_flat(self._greeting, [jax.device_put(np.zeros((1,), np.uint8), self._device)])

    def connect_to(self, address: str, greeting: int) -> tuple[Any, Sequence[pjrt.DeviceArray]]:
        """Connects with the other's transfer server; returns the connection, and the byte that it pulls."""
        with self._lock:
            self._start()
            connection = self._server.connect(address)
        byte = ArrayGroup([ArrayType((1,), "uint8")], [pjrt.on_device(self._device)])
        return connection, connection._pull_flat(greeting, self._device.client, byte.structs)

    def offer(self, number: int, arrays: Sequence[pjrt.DeviceArray], devices: Sequence[pjrt.Device]) -> None:
        """Offers arrays under a number, in this order; what counts are their shards, one after another."""
        with self._lock:
            self._server._await_pull_flat(number, list(arrays))

    def fail(self, number: int, why: str, values: ArrayGroup) -> None:
        """Offers arrays whose values never come: to wait for one raises one of FAILURES with the text."""
        self.offer(number, [_transfer.make_error_array(struct, why) for struct in values.structs], ())

    def drop(self, *, is_lost: bool) -> None:
        """Drops all offers that were not pulled, and their arrays."""
        with self._lock:
            if is_lost:
                self._greeting = 0
            if self._server is not None:
                self._server._reset_rendevous_table()
                if self._greeting:  # the other may have to pull it yet
                    self._greet()


class PulledSource:
    """Pulls arrays from the transfer server of another host."""

    def __init__(self, server: TransferServer, where: EagerMessage) -> None:
        """`where` comes from the other host, which says it when it loads a plan that offers arrays."""
        self._server, self._where = server, where
        self._connection: Any = None
        self._is_closed = False
        self._lock = threading.Lock()
        """Guards those."""
        self._patience_s = CONNECT_S
        """How long the next pull waits for the address of the other's transfer server."""

    def fetch(self, number: int, values: ArrayGroup) -> Sequence[pjrt.DeviceArray]:
        client = next(iter(values.shardings[0].device_set)).client
        return self._connected()._pull_flat(number, client, values.structs)

    def _connected(self) -> Any:
        """Returns the connection with the other's transfer server, which is made at the first pull.

        Waits for its address, and until both ends are ready. Raises RuntimeError where it is not said.
        """
        if self._connection is None:
            wait_at_most([self._where], self._patience_s)
            if not self._where.is_there():
                self._patience_s = CONNECT_AGAIN_S  # runs of other clients wait after each pull
                raise RuntimeError("the other host has not said where its values are pulled")
            if self._is_closed:  # to connect with a process that is gone ends this one
                raise RuntimeError("the connection was closed")
            greeting, _, address = bytes(self._where.read()).decode().partition(" ")
            connection, greeted = self._server.connect_to(address, int(greeting))
            wait_at_most(greeted, MEETING_S)
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
