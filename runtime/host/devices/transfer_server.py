# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Arrays from process to process, by number: offered and asked for before they exist.

Small ones are sent as soon as they are there (`eager_server.py`), others are pulled, by JAX's transfer server.

The compat module for `jax.experimental.transfer`: for its flat forms, which do no work on trees, and for two private
names. `_poison_connection` ends the pulls of a connection whose other end is frozen; without it a frozen process would
keep its neighbors waiting. `_reset_rendevous_table` frees what was offered to a process that is gone; without it that
would stay for as long as this process does (dropping the server frees nothing while its peer is frozen).

Nothing here checks types: what is pulled must be what was offered, piece by piece (dialect/plan/part.py). A number is
pulled once. What is offered must not be donated or deleted before it is pulled: the transfer would fail.
"""

import contextlib
import importlib
import os
import secrets
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from pathways.dialect.diagnostics import Diagnostic, PathwaysError
from pathways.dialect.dtypes import ArrayType, numpy_dtype
from pathways.dialect.errors import BadSetting
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.devices.eager_server import EagerServer, EagerWay
from pathways.runtime.host.devices.eager_values import Landing, Parcel, Sent, sent
from pathways.runtime.host.devices.mailbox import Entrance, Mailbox
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
EAGER_LIMIT = "PATHWAYS_EAGER_LIMIT"
"""The environment variable for the most bytes of a value that a host sends without being asked."""
_EAGER_LIMIT, MOST_EAGER = "65536", 1 << 20
"""What it is where it is not set; and the most that it may be, since the other end holds what it did not ask for."""


@dataclass(frozen=True)
class Invitation:
    """Tells a process how to take the values that another sends unasked: where it connects, and their most bytes."""

    sends: Entrance
    most: int

    def __str__(self) -> str:
        return f"{self.most} {self.sends}"

    @classmethod
    def read(cls, text: str) -> "Invitation":
        most, sends = text.split(maxsplit=1)
        return cls(Entrance.read(sends), int(most))


@dataclass(frozen=True, eq=False)
class Incoming:
    """Arrays to pull, each sharded so. Prepared once: to describe them to JAX takes longer than to ask for them."""

    client: Any
    structs: Sequence[Any]
    landing: Landing

    @classmethod
    def of(cls, client: Any, types: Sequence[ArrayType], shardings: Sequence[Any]) -> "Incoming":
        with jax.enable_x64(True):  # or 64 bits would be 32
            structs = [
                jax.ShapeDtypeStruct(t.shape, numpy_dtype(t.dtype), sharding=s)
                for t, s in zip(types, shardings, strict=True)
            ]
        return cls(client, structs, Landing(types, shardings))


class TransferSource:
    """Receives the values of another process: those that it sends unasked, and those that are pulled from its transfer
    server."""

    def __init__(self, server: "TransferServer", mailbox: Mailbox) -> None:
        self._server, self._mailbox = server, mailbox
        self._connection: Any = None
        self._is_closed = False
        self._lock = threading.Lock()
        """Guards those."""
        self._patience_s = CONNECT_S
        """How long the next pull waits for the address of the other's transfer server."""
        self.ready = mailbox.ready
        """Whether both ends have begun."""
        self.lost: Diagnostic | None = None
        """Why the process is gone."""

    def pull(self, name: int, wanted: Incoming) -> Sequence[pjrt.DeviceArray | Sent]:
        """Asks for arrays: gives futures. Raises one of FAILURES where it is closed."""
        if wanted.landing.bytes <= self._mailbox.most:
            return sent(self._mailbox.expect(name), wanted.landing)
        return self._connected()._pull_flat(name, wanted.client, wanted.structs)

    def _connected(self) -> Any:
        """Returns the connection with the other's transfer server, which is made at the first pull.

        Waits for its address, which the other says when it loads a plan with a large value, and until both ends are
        ready. Raises RuntimeError where it is not said.
        """
        if self._connection is None:
            wait_at_most([self._mailbox.pulls], self._patience_s)
            if not self._mailbox.pulls.is_there():
                self._patience_s = CONNECT_AGAIN_S  # runs of other clients wait after each pull
                raise RuntimeError("the other host has not said where its values are pulled")
            if self._is_closed:  # to connect with a process that is gone ends this one
                raise RuntimeError("the connection was closed")
            greeting, _, address = bytes(self._mailbox.pulls.read()).decode().partition(" ")
            connection, greeted = self._server.connect_to(address, int(greeting))
            wait_at_most(greeted, MEETING_S)
            with self._lock:
                self._connection = connection
                if self._is_closed:
                    connection._poison_connection()
        return self._connection

    def close(self) -> None:
        """Ends all pulls with an error."""
        self._mailbox.close()
        with self._lock, contextlib.suppress(*pjrt.FAILURES):
            self._is_closed = True
            if self._connection is not None:
                self._connection._poison_connection()


class TransferServer:
    """Offers values to one other process: small ones by the eager way, others by JAX's transfer server.

    That server listens at an address of this machine from the first plan on that has a value for it. It asks for no
    keys, and encrypts nothing: who reaches it may read what it guesses the number of, and can end this process. So can
    another host that ends in the moment in which this one connects with it, at the first pull.
    """

    def __init__(self, device: pjrt.Device, ip: str, sends: EagerServer, most: int) -> None:
        """`most`: the bytes of the largest value that is sent unasked (`eager_limit`)."""
        self._device, self._ip = device, ip
        self._server: Any = None
        self._offers = False
        """Whether a plan offers values to be pulled: then the other is told where."""
        self._greeting = 0
        """The number of a byte that the other pulls to see that both ends are ready; 0 before it is told."""
        self._losses = 0
        """Counts the losses of the other that have not ended: runs sent before them may still be enqueued."""
        self._sends = sends
        self._way: EagerWay | None = None
        self._most = most
        self._lock = threading.Lock()
        """Guards the server and the way: plans are loaded while hosts come and go."""

    @property
    def is_open(self) -> bool:
        """Whether JAX's transfer server listens."""
        return self._server is not None

    def invite(self) -> Invitation:
        """Says what the other must know: the same, until it is lost."""
        with self._lock:
            if self._way is None:
                self._way = self._sends.way()
                if self._offers:
                    self._way.say_where_to_pull(self._where_to_pull)
            return Invitation(self._way.entrance, self._most)

    def open(self) -> None:
        """Begins to listen for pulls, and says where to the other; again it does nothing."""
        with self._lock:
            if not self._offers:
                self._start()
                self._offers = True
                if self._way is not None:
                    self._way.say_where_to_pull(self._where_to_pull)

    def _start(self) -> None:
        """Starts JAX's transfer server, which listens from then on; again it does nothing."""
        if self.is_open:
            return
        address = show_address((self._ip, 0))
        self._server = _transfer.start_transfer_server(self._device.client, address, [address] * _TRANSPORTS)

    def _where_to_pull(self) -> str:
        """Offers a byte, which the other pulls to see that both ends are ready; gives its number, and the address.

        Connecting returns before that, and the rest of it ends the process where the other is gone meanwhile. The
        number is one that no value has: theirs are of 62 bits. What is offered is pulled once.
        """
        self._greeting = 1 << 62 | secrets.randbits(62)
        self._greet()
        return f"{self._greeting} {self._server.address()}"

    def _greet(self) -> None:
        self._server._await_pull_flat(self._greeting, [jax.device_put(np.zeros((1,), np.uint8), self._device)])

    def connect(self, invitation: Invitation, anew: int = 0) -> TransferSource:
        """Connects with the other, as invited by it. `anew`: how often both were told to connect anew."""
        return TransferSource(self, Mailbox(invitation.sends, invitation.most, anew))

    def connect_to(self, address: str, greeting: int) -> tuple[Any, Sequence[pjrt.DeviceArray]]:
        """Connects with the other's transfer server; returns the connection, and the byte that it pulls."""
        with self._lock:
            self._start()
            connection = self._server.connect(address)
        wanted = Incoming.of(self._device.client, [ArrayType((1,), "uint8")], [pjrt.on_device(self._device)])
        return connection, connection._pull_flat(greeting, wanted.client, wanted.structs)

    def lose(self) -> None:
        """Drops what is offered, and ends what is sent: the other is gone.

        Until `end_loss` runs that were sent before the loss send and offer nothing. `end_loss` must not drop offers:
        that would drop the pulls of the process in the other's place, too.
        """
        with self._lock:
            self._losses += 1
            way, self._way, self._greeting = self._way, None, 0
            self._drop_offers()
        if way is not None:
            way.close()

    def end_loss(self) -> None:
        """Ends one loss; after the last, values are offered and sent again."""
        with self._lock:
            assert self._losses
            self._losses -= 1

    def _drop_offers(self) -> None:
        """Drops all offers that were not pulled, and their arrays, for a caller that has the lock."""
        if self.is_open:
            self._server._reset_rendevous_table()
            if self._greeting:  # the other may have to pull it yet
                self._greet()

    def begin_anew(self, anew: int) -> None:
        """Drops what has not come to the other, and goes on when it connects anew."""
        with self._lock:
            self._drop_offers()
            if (way := self._way) is not None:
                way.begin_anew(anew)

    def sends(self, types: Sequence[ArrayType], shardings: Sequence[Any]) -> bool:
        """Whether arrays go unasked."""
        return Landing(types, shardings).bytes <= self._most

    def offer(self, name: int, arrays: Sequence[pjrt.DeviceArray]) -> None:
        """Offers arrays under a number, in this order; what counts are their shards, one after another.

        Does nothing where the process that was to pull them is gone.
        """
        with self._lock:
            if not self._losses:
                self._server._await_pull_flat(name, list(arrays))

    def parcel(self, name: int, arrays: Sequence[pjrt.DeviceArray]) -> Parcel:
        """As `offer`, to be sent unasked."""
        way = self._way_now()
        return Parcel(way, 0 if way is None else way.anew, name, arrays)

    def fail(self, name: int, why: str, types: Sequence[ArrayType], shardings: Sequence[Any]) -> None:
        """Says why there is nothing under a number: who waits for these arrays has one of FAILURES with it."""
        if not self.sends(types, shardings):
            self.offer(name, [_error_array(t, s, why) for t, s in zip(types, shardings, strict=True)])
        elif (way := self._way_now()) is not None:
            way.fail(name, why)

    def _way_now(self) -> EagerWay | None:
        """Returns the way for the values of the run that is enqueued now; None where its process is gone."""
        with self._lock:
            return None if self._losses else self._way


def eager_limit() -> int:
    """The most bytes of a value that this process sends unasked. Raises PWC0707 for a setting that is none."""
    text = os.environ.get(EAGER_LIMIT, _EAGER_LIMIT)
    if text.isdecimal() and int(text) <= MOST_EAGER:
        return int(text)
    rule, example = f"bytes, at most {MOST_EAGER:,}, 0 for none", f"{EAGER_LIMIT}={_EAGER_LIMIT}"
    raise PathwaysError(BadSetting(source=EAGER_LIMIT, value=text, rule=rule, example=example))


def _error_array(type_: ArrayType, sharding: Any, message: str) -> pjrt.DeviceArray:
    """An array whose values never come: to wait for it raises one of FAILURES with the message."""
    with jax.enable_x64(True):
        struct = jax.ShapeDtypeStruct(type_.shape, numpy_dtype(type_.dtype), sharding=sharding)
        return _transfer.make_error_array(struct, message)
