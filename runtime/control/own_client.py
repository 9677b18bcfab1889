"""A client in the process of its controller: messages go both ways as they are, and no thread is woken to send one."""

import queue
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from pathways.dialect.diagnostic_json import write_diagnostic
from pathways.dialect.diagnostics import PathwaysError
from pathways.runtime.control.cluster_controller import ClusterController
from pathways.runtime.control.loop import Loop
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.encoding import Parcel
from pathways.runtime.wire.frames import ConnectionEnded

OnEnd: TypeAlias = Callable[[int, int, int, m.Done | m.Failed], None]


def _ignore(island: int, epoch: int, rank: int, said: m.Done | m.Failed) -> None:
    """Does nothing."""


class OwnClient:
    """Both ends of the way between a client and its controller: the controller calls `send` and `pass_on`, the client
    the other methods.

    The client uses it as a connection (wire/connection.py). What comes to it is taken by a thread of its own, so that
    nothing of the client's is done under the loop's lock.
    """

    kept = 0
    """No message is kept back to be sent with another: there is nothing to save."""

    def __init__(self, loop: Loop, controller: ClusterController) -> None:
        """Comes in: the first message that is received is the `Welcome`."""
        self._loop, self._controller = loop, controller
        self.on_end: OnEnd = _ignore
        """Called with the end of a run: the numbers of the island, its epoch and the host's rank there."""
        self._came: queue.SimpleQueue[m.Message | None] = queue.SimpleQueue()
        self._is_closed = False
        self._session = controller.come_in_here(self)

    def send(self, message: m.Message) -> None:
        """Tells the client something, when it next receives."""
        self._came.put(message)

    def pass_on(self, island: int, epoch: int, rank: int, said: m.Done | m.Failed) -> None:
        """Tells the client of the end of a run, on the thread of the loop: it waits for no lock that this one has."""
        self.on_end(island, epoch, rank, said)

    @property
    def heard(self) -> float:
        """When the controller last gave a sign of life: it is in this process."""
        return time.monotonic()

    def post_soon(self, *messages: m.Message) -> None:
        """Tells the controller something, in this thread if no other is in the loop. Raises ConnectionEnded."""
        self._check_open()
        self._loop.call(lambda: self._take(messages))

    post_later = post_soon

    def submit(self, held: Sequence[m.Message], run: m.Submit, parcels: Iterable[Parcel]) -> None:
        """Submits a run, as `post_soon`, with its parcels as they are: they are not checked."""
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

    def flush(self) -> None:
        """Does nothing: no message is kept."""

    def _check_open(self) -> None:
        if self._is_closed:
            raise ConnectionEnded("the cluster has been closed")

    def _take(self, messages: Iterable[m.Message]) -> None:
        for message in messages:
            try:
                self._controller.hear(self._session, message)
            except PathwaysError as error:  # as what is wrong with a message on a stream, which ends then
                self.send(m.RunRefused(0, write_diagnostic(error.diagnostic)))

    def receive(self) -> m.Message:
        """Waits for what the controller says next. Raises ConnectionEnded when it is closed."""
        message = self._came.get()
        if message is None:
            raise ConnectionEnded("the cluster has been closed")
        return message

    def abandon(self) -> None:
        """Does nothing: a forked process has no thread that reads."""

    def close(self) -> None:
        """Ends it: who receives hears of it."""
        self._is_closed = True
        self._came.put(None)
