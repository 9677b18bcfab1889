"""A client in the process of its controller: messages go both ways as they are, and no thread is woken to send one."""

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


def _ignore(island: int, epoch: int, rank: int, said: m.Done | m.Failed) -> None:
    """Does nothing."""


class OwnClient:
    """Both ends of the way between a client and its controller: the controller calls `send` and `pass_on`, the client
    the other methods (`ToController`)."""

    kept = 0
    """No message is kept back to be sent with another: there is nothing to save."""

    def __init__(self, loop: Loop, controller: ClusterController) -> None:
        """Registers the client with the controller."""
        self._loop, self._controller = loop, controller
        self.on_end_of_run: OnEndOfRun = _ignore
        """Called with the end of a run: the numbers of the island, its epoch and the host's rank there."""
        self._receive: Callable[[m.Message], None] | None = None
        self._early: list[m.Message] = []
        """Messages of the controller before `begin`; the first is the `Welcome`."""
        self._is_closed = False
        self._session = controller.come_in_here(self)

    @property
    def welcome(self) -> m.Welcome:
        said = self._early[0]
        assert isinstance(said, m.Welcome)
        return said

    def begin(self, receive: Callable[[m.Message], None]) -> None:
        """Has `receive` called with what the controller says behind the `Welcome`, on the thread of the loop."""
        self._receive = receive
        for message in self._early[1:]:
            self.send(message)

    def send(self, message: m.Message) -> None:
        """Tells the client something, when what the controller does is done."""
        if (receive := self._receive) is None:
            self._early.append(message)
        else:
            self._loop.on_thread(lambda: receive(message))

    def pass_on(self, island: int, epoch: int, rank: int, said: m.Done | m.Failed) -> None:
        """Tells the client of the end of a run, on the thread of the loop: it waits for no lock that this one has."""
        self.on_end_of_run(island, epoch, rank, said)

    @property
    def heard(self) -> float:
        """When the controller last gave a sign of life: it is in this process."""
        return time.monotonic()

    def post(self, *messages: m.Message) -> None:
        """Tells the controller something, in this thread if no other is in the loop. Raises ConnectionEnded."""
        self._check_open()
        self._loop.call(lambda: self._take(messages))

    keep = post

    def submit(self, held: Sequence[m.Message], run: m.Submit, parcels: Iterable[Parcel]) -> None:
        """Submits a run, as `post`, with its parcels as they are: they are not checked."""
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

    def close(self) -> None:
        """Ends it: nothing can be posted any more."""
        self._is_closed = True
