"""What a client of a cluster is told of it when it comes in, and where its hosts are."""

import json
import os
from dataclasses import dataclass

from pathways.dialect.diagnostic_json import read_diagnostic
from pathways.dialect.diagnostics import Diagnostic, PathwaysError
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.connection import Connection
from pathways.runtime.wire.errors import NoCluster
from pathways.runtime.wire.fields import named
from pathways.runtime.wire.frames import ConnectionEnded
from pathways.runtime.wire.versions import VERSIONS


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


def host_place(number: int, said: str) -> HostPlace:
    """Reads what `Welcome` says of an island."""
    epoch, addresses, gone = json.loads(said)
    return HostPlace(number, epoch, addresses, read_diagnostic(gone) if gone else None, bool(gone))


def come_in(control: Connection, name: str, address: str) -> m.Welcome:
    """Says who this is. Raises PWC0918 where it is not let in."""
    try:
        control.post_soon(m.ComeIn(named(name), os.getpid(), VERSIONS))
        message = control.receive()
    except ConnectionEnded as error:
        raise PathwaysError(NoCluster(address=address, reason=str(error))) from None
    if isinstance(message, m.RunRefused):
        raise PathwaysError(read_diagnostic(message.cause))
    if not isinstance(message, m.Welcome):
        raise PathwaysError(NoCluster(address=address, reason=f"it says {type(message).__name__}"))
    return message
