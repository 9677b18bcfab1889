"""Connects a client with the controller of its cluster if both are in one process (`pw.cluster`). Messages are passed
as Python objects, without a socket or another thread.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from pathways.dialect.diagnostic_json import write_diagnostic
from pathways.dialect.diagnostics import PathwaysError
from pathways.runtime.control.cluster_controller import ClusterController
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.encoding import Parcel
from pathways.runtime.wire.frames import ConnectionEnded
from pathways.runtime.wire.loop import Loop

OnEndOfRun: TypeAlias = Callable[[int, int, int, m.Done | m.Failed], None]


def _ignore(island: int, epoch: int, rank: int, outcome: m.Done | m.Failed) -> None:
    """Does nothing."""


class OwnClient:
    """Both ends of the connection between a client and its controller. The controller calls `send` and `pass_on`; the
    client calls the other methods (`ToController`)."""

    kept = 0
    """No message is buffered, since that would save nothing."""

    def __init__(self, loop: Loop, controller: ClusterController) -> None:
        """Registers the client with the controller."""
        self._loop, self._controller = loop, controller
        self.on_end_of_run: OnEndOfRun = _ignore
        """Called when a run completes on a host, with the island's number, its epoch, and the host's rank there."""
        self._receive: Callable[[m.Message], None] | None = None
        self._early: list[m.Message] = []
        """Messages of the controller before `begin`. The first is `Welcome`."""
        self._is_closed = False
        self._session = controller.register_own_client(self)

    @property
    def welcome(self) -> m.Welcome:
        welcome = self._early[0]
        assert isinstance(welcome, m.Welcome)
        return welcome

    def begin(self, receive: Callable[[m.Message], None]) -> None:
        """Makes the loop's thread call `receive` with the controller's messages after `Welcome`."""
        self._receive = receive
        for message in self._early[1:]:
            self.send(message)

    def send(self, message: m.Message) -> None:
        """Sends a message to the client after the controller has finished its current event."""
        if (receive := self._receive) is None:
            self._early.append(message)
        else:
            self._loop.on_thread(lambda: receive(message))

    def pass_on(self, island: int, epoch: int, rank: int, outcome: m.Done | m.Failed) -> None:
        """Notifies the client of a run's completion, on the loop's thread. It needs no lock that this thread holds."""
        self.on_end_of_run(island, epoch, rank, outcome)

    @property
    def last_received(self) -> float:
        """Returns the current time as the controller's last heartbeat, since it is in this process."""
        return time.monotonic()

    def post(self, *messages: m.Message) -> None:
        """Sends messages to the controller, on this thread if the loop is free. Raises ConnectionEnded."""
        self._check_open()
        self._loop.call(lambda: self._take(messages))

    keep = post

    def submit(self, held: Sequence[m.Message], run: m.Submit, parcels: Iterable[Parcel]) -> None:
        """Submits a run like `post`, with its parcels as objects, which are not checked."""
        self._check_open()

        def work() -> None:
            self._take(held)
            self._submit(run, parcels)

        self._loop.call(work)

    def _submit(self, run: m.Submit, parcels: Iterable[Parcel]) -> None:
        try:
            self._controller.dispatcher.submit_own(self._session, run, parcels)
        except PathwaysError as error:
            self.send(m.RunRefused(run.run, write_diagnostic(error.diagnostic)))
        except Exception as error:
            self._controller.failed_at(run, error)

    def flush_kept(self) -> None:
        """Does nothing: no message is buffered."""

    def _check_open(self) -> None:
        if self._is_closed:
            raise ConnectionEnded("the cluster has been closed")

    def _take(self, messages: Iterable[m.Message]) -> None:
        for message in messages:
            try:
                self._controller.deliver(self._session, message)
            except PathwaysError as error:  # reported like an invalid message on a stream, which is closed then
                self.send(m.RunRefused(0, write_diagnostic(error.diagnostic)))

    def close(self) -> None:
        """Closes the connection. Later posts raise."""
        self._is_closed = True
