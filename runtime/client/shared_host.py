"""A host of a cluster that several clients have: what must keep its order among runs goes to it by the controller."""

import threading

from pathways.runtime.client.remote_host import RemoteHost
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.connection import Connection
from pathways.runtime.wire.encoding import encode
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
