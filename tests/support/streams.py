"""Streams of loops for tests: what comes is kept until the test asks for it."""

import queue
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager

from pathways.runtime.wire.connection import Connection
from pathways.runtime.wire.encoding import decode
from pathways.runtime.wire.frames import ConnectionEnded
from pathways.runtime.wire.loop import Loop
from pathways.runtime.wire.messages import Message
from support.clusters import PATIENCE


def started_loop() -> Loop:
    """Starts a loop; `end_loop` ends it."""
    loop = Loop()
    loop.start()
    return loop


def end_loop(loop: Loop) -> None:
    """Ends a loop that runs, and all its streams."""
    loop.call(loop.end)
    assert loop.over.wait(PATIENCE)


@contextmanager
def running_loop() -> Generator[Loop]:
    """Runs a loop in a thread, and ends it."""
    loop = started_loop()
    try:
        yield loop
    finally:
        end_loop(loop)


class Stream:
    """A stream of a loop, with the messages that have come."""

    def __init__(self, loop: Loop, connection: Connection) -> None:
        self.peer = connection.hand_over(loop)
        self._came: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self.ended = threading.Event()
        self.reason = ""
        self.peer.begin(lambda _, kind, payload: self._came.put(decode(kind, payload)), lambda _, why: self._end(why))

    def _end(self, reason: str) -> None:
        self.reason = reason
        self._came.put(None)
        self.ended.set()

    def post(self, *messages: Message) -> None:
        self.peer.post(*messages)

    def receive(self) -> Message:
        """Waits for the next message. Raises ConnectionEnded."""
        message = self._came.get(timeout=PATIENCE)
        if message is None:
            self._came.put(None)
            raise ConnectionEnded(self.reason)
        return message


def stream_pair(loop: Loop) -> tuple[Stream, Connection]:
    """Makes a stream of a loop, and the other end of it."""
    here, there = socket.socketpair()
    return Stream(loop, Connection(here)), Connection(there)
