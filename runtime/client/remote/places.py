"""What a client of a cluster is told of it when it comes in, and where its hosts are."""

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
    """The way to a controller: a stream (wire/peer.py), or none is needed (control/own_client.py)."""

    @property
    def heard(self) -> float:
        """When anything last came."""
        ...

    @property
    def kept(self) -> int:
        """Counts what `keep` was given and that was not sent."""
        ...

    def post(self, *messages: m.Message) -> None:
        """Sends messages, and never waits. Raises ConnectionEnded."""
        ...

    def keep(self, *messages: m.Message) -> None:
        """Keeps messages until the next are posted, or `flush_kept`. Raises ConnectionEnded."""
        ...

    def flush_kept(self) -> None:
        """Sends what was kept. Raises ConnectionEnded."""
        ...

    def close(self) -> None: ...


class ToIsland:
    """The way to the hosts of an island that goes by the controller: behind all runs of this client there."""

    def __init__(self, control: ToController, number: int, epoch: int) -> None:
        self._control, self._number, self._epoch = control, number, epoch

    def post(self, *messages: m.Message) -> None:
        """Sends messages, and never waits. Raises ConnectionEnded."""
        relayed = [m.Relayed(self._number, self._epoch, 0, frame_bytes(message)) for message in messages]
        self._control.post(*relayed)


Connect: TypeAlias = Callable[[str, str], Connection]
"""Connects to a host by where it listens and its name. Raises OSError where it is gone, PWC0913 if it is another."""


@dataclass(eq=False)
class HostPlace:
    """What the controller says of the hosts of an island."""

    number: int
    epoch: int
    addresses: dict[str, str]
    """By the names of the hosts; nothing while they are not there."""
    cause: Diagnostic | None = None
    """Why the last one is gone."""
    away: bool = False
    """Whether none will come any more."""
    first: int = 0
    """The number of the island's first device."""


def host_place(number: int, said: str) -> HostPlace:
    """Reads what `Welcome` says of an island."""
    epoch, addresses, gone, first = json.loads(said)
    return HostPlace(number, epoch, addresses, read_diagnostic(gone) if gone else None, bool(gone), first)


def come_in(control: Connection, name: str, address: str) -> m.Welcome:
    """Says who this is. Raises PWC0918 where it is not let in."""
    try:
        control.post(m.ComeIn(named(name), os.getpid(), VERSIONS))
        message = control.receive()
    except ConnectionEnded as error:
        raise PathwaysError(NoCluster(address=address, reason=str(error))) from None
    if isinstance(message, m.RunRefused):
        raise PathwaysError(read_diagnostic(message.cause))
    if not isinstance(message, m.Welcome):
        raise PathwaysError(NoCluster(address=address, reason=f"it says {type(message).__name__}"))
    return message
