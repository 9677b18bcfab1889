"""A host of a cluster that several clients have: what must keep its order among runs goes to it by the controller."""

import threading

from pathways.dialect.diagnostic_json import read_diagnostic
from pathways.dialect.diagnostics import Diagnostic
from pathways.runtime.client.remote_host import RemoteHost
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.connection import Connection
from pathways.runtime.wire.encoding import encode
from pathways.runtime.wire.errors import BadMessage
from pathways.runtime.wire.frames import frame_of

WORD = 30.0
"""Seconds in which the controller says why a host is gone whose stream has ended."""


class ToIsland:
    """The way to the hosts of an island that goes by the controller: behind all runs of this client there."""

    def __init__(self, control: Connection, number: int, epoch: int) -> None:
        self._control, self._number, self._epoch = control, number, epoch

    def post_soon(self, message: m.Message) -> None:
        blob = b"".join(frame_of(*encode(message)))
        self._control.post_soon(m.Relayed(self._number, self._epoch, 0, blob))


class SharedHost(RemoteHost):
    """A host whose controller says when it is gone, and why."""

    def _ended_early(self, reason: str) -> None:
        if self.lost is not None:
            return
        timer = threading.Timer(WORD, self.lose, (reason,))
        timer.daemon = True
        timer.start()


def show_ticket(connection: Connection, ticket: m.Attach) -> Diagnostic | None:
    """Says to a host whose connection this is; gives why it is refused, and closes it then. Raises ConnectionEnded."""
    try:
        connection.post_soon(ticket)
        answer = connection.receive()
    except BaseException:
        connection.close()
        raise
    if isinstance(answer, m.Answer) and not answer.error:
        return None
    connection.close()
    if isinstance(answer, m.Answer):
        return read_diagnostic(answer.error)
    return BadMessage(have_=f"a {type(answer).__name__}", rule="the answer of a host")
