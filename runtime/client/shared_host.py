"""Hosts of a cluster that several clients have: what must keep its order among runs goes to them by the controller."""

import contextlib
import threading
from collections.abc import Callable, Mapping

from pathways.dialect.diagnostic_json import read_diagnostic
from pathways.dialect.diagnostics import Diagnostic
from pathways.runtime.client.client_ids import ClientIds
from pathways.runtime.client.ended_arrays import EndedArrays
from pathways.runtime.client.remote_gang import RemoteGang
from pathways.runtime.client.remote_host import RemoteHost
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.connection import Connection
from pathways.runtime.wire.encoding import frame_bytes
from pathways.runtime.wire.errors import BadMessage
from pathways.runtime.wire.frames import ConnectionEnded

WORD = 30.0
"""Seconds in which the controller says why a host is gone whose stream has ended."""


class ToIsland:
    """The way to the hosts of an island that goes by the controller: behind all runs of this client there."""

    def __init__(self, control: Connection, number: int, epoch: int) -> None:
        self._control, self._number, self._epoch = control, number, epoch

    def post_soon(self, *messages: m.Message) -> None:
        relayed = [m.Relayed(self._number, self._epoch, 0, frame_bytes(message)) for message in messages]
        self._control.post_soon(*relayed)


class SharedHost(RemoteHost):
    """A host whose controller says when it is gone, and why."""

    _late: threading.Timer | None = None
    on_ended: Callable[[int], None] | None = None
    """Called with the number of each run that has ended on this host."""

    def receive(self, message: m.Message) -> None:
        super().receive(message)
        if self.on_ended is not None and isinstance(message, m.Done | m.Failed):
            self.on_ended(message.run)

    def _ended_early(self, reason: str) -> None:
        if self.lost is None:
            self._late = threading.Timer(WORD, super().lose, (reason,))
            self._late.daemon = True
            self._late.start()
            if self.lost is not None:  # meanwhile
                self._late.cancel()

    def lose(self, reason: str, cause: Diagnostic | None = None) -> None:
        super().lose(reason, cause)
        if self._late is not None:
            self._late.cancel()


class SharedGang(RemoteGang):
    """The hosts of an island, of which each is a SharedHost: one message to their controller tells all of them."""

    def __init__(
        self,
        island: str,
        connections: Mapping[str, Connection],
        on_lost: Callable[[RemoteGang], None],
        *,
        numbers: ClientIds,
        ordered: ToIsland,
        epoch: int,
    ) -> None:
        self._ordered = ordered
        self._ended_arrays = EndedArrays()
        """What `ordered` has not been told of."""
        super().__init__(island, connections, on_lost, numbers=numbers, epoch=epoch)

    def _member(self, name: str, connection: Connection) -> RemoteHost:
        return SharedHost(
            name, connection, self._member_lost, self._member_losing, self._member_hangs,
            numbers=self._numbers, ordered=self._ordered, epoch=self.epoch,
        )  # fmt: skip

    def order(self, *messages: m.Message) -> None:
        with self._order, contextlib.suppress(ConnectionEnded):  # who has it hears of that itself
            self._ordered.post_soon(*self._ended_arrays.take(), *messages)

    def free(self, number: int) -> None:
        self._ended_arrays.add(number)

    def unload(self, plan: int) -> None:
        self._ended_arrays.add_plan(plan)

    def take_ended(self) -> list[m.Message]:
        return self._ended_arrays.take_with_run()

    def free_now(self) -> None:
        if self.lost is None and (ended := self._ended_arrays.take()):
            with contextlib.suppress(ConnectionEnded):
                self._ordered.post_soon(*ended)


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
