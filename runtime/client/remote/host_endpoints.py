"""Registers this process as a client with the controller of a cluster, and decodes the addresses of hosts in its
answer. Also sends messages to hosts through the controller, which keeps them in order with the client's runs.
`Attached` and `pw.connect` use it.
"""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from pathways.dialect.diagnostic_json import read_diagnostic
from pathways.dialect.diagnostics import Diagnostic, PathwaysError
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.connection import Connection
from pathways.runtime.wire.encoding import frame_bytes
from pathways.runtime.wire.errors import NoCluster
from pathways.runtime.wire.fields import named
from pathways.runtime.wire.frames import ConnectionEnded
from pathways.runtime.wire.message import VERSIONS


class ToController(Protocol):
    """A connection to a controller: a stream (wire/peer.py), or direct calls in one process (control/own_client.py)."""

    @property
    def last_received(self) -> float:
        """Returns the time of the last message from the controller."""
        ...

    @property
    def kept(self) -> int:
        """Returns the number of messages passed to `keep` that are not sent yet."""
        ...

    def post(self, *messages: m.Message) -> None:
        """Sends messages without blocking. Raises ConnectionEnded."""
        ...

    def keep(self, *messages: m.Message) -> None:
        """Buffers messages until the next `post` or `flush_kept`. Raises ConnectionEnded."""
        ...

    def flush_kept(self) -> None:
        """Sends the buffered messages. Raises ConnectionEnded."""
        ...

    def close(self) -> None: ...


class ToIsland:
    """Sends messages to an island's hosts through the controller, ordered after all runs of this client there."""

    def __init__(self, control: ToController, number: int, epoch: int) -> None:
        self._control, self._number, self._epoch = control, number, epoch

    def post(self, *messages: m.Message) -> None:
        """Sends messages without blocking. Raises ConnectionEnded."""
        relayed = [m.Relayed(self._number, self._epoch, 0, frame_bytes(message)) for message in messages]
        self._control.post(*relayed)


Connect: TypeAlias = Callable[[str, str], Connection]
"""Connects to a host by its address and name. Raises OSError if the host is lost, PWC0913 if it is another host."""


@dataclass(eq=False)
class IslandEndpoints:
    """The endpoints of an island's hosts, as the controller reports them."""

    number: int
    epoch: int
    addresses: dict[str, str]
    """Addresses by host name. Empty while the hosts are not connected."""
    cause: Diagnostic | None = None
    """The reason why the last hosts were lost."""
    ended: bool = False
    """Whether no hosts will be started any more."""
    first: int = 0
    """Number of the island's first device."""


def island_endpoints(number: int, text: str) -> IslandEndpoints:
    """Decodes an island's entry of a `Welcome` message."""
    epoch, addresses, error, first = json.loads(text)
    return IslandEndpoints(number, epoch, addresses, read_diagnostic(error) if error else None, bool(error), first)


def register_client(control: Connection, name: str, address: str) -> m.Welcome:
    """Registers this client with the controller. Raises PWC0918 if the controller refuses it."""
    try:
        control.post(m.ClientHello(named(name), os.getpid(), VERSIONS))
        message = control.receive()
    except ConnectionEnded as error:
        raise PathwaysError(NoCluster(address=address, reason=str(error))) from None
    if isinstance(message, m.RunRefused):
        raise PathwaysError(read_diagnostic(message.cause))
    if not isinstance(message, m.Welcome):
        raise PathwaysError(NoCluster(address=address, reason=f"it answered with {type(message).__name__}"))
    return message
