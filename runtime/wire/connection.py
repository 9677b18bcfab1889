"""One end of a connection between two processes: messages out, from any thread, and in."""

import contextlib
import socket
import threading
from collections.abc import Sequence

from pathways.runtime.interrupts import uninterrupted
from pathways.runtime.wire.encoding import decode, encode, most_bytes
from pathways.runtime.wire.frames import FrameReader, TimedStream, frame_of, in_one, send_all
from pathways.runtime.wire.messages import Message
from pathways.runtime.wire.outbox import Outbox


class Connection:
    """A stream, plain or under TLS, that carries messages. An end sends all of its messages in one of two ways: a host
    by `post`, so that it makes no more than is taken, its controller by `post_soon`, since it has other hosts, too."""

    def __init__(self, stream: TimedStream) -> None:
        self._stream = stream
        self._writing = threading.Lock()
        self._outbox = Outbox(stream)
        self._reader = FrameReader(stream, most_bytes)

    @property
    def heard(self) -> float:
        """When bytes last came."""
        return self._reader.heard

    @uninterrupted  # half a message would make what follows it another
    def post(self, *messages: Message) -> None:
        """Sends messages; those of one thread arrive in their order. Raises ConnectionEnded."""
        pieces = _written(messages)
        with self._writing:
            for data in pieces:
                send_all(self._stream, data)

    def post_soon(self, *messages: Message) -> None:
        """As `post`, and never waits for the other end, which may be frozen: what it does not take waits here.

        Several small messages are one write, which wakes the other end once.
        """
        self._outbox.post(_written(messages))

    def post_later(self, *messages: Message) -> None:
        """As `post_soon`, with the next that is sent so, or by `flush`, which its caller must see to."""
        self._outbox.keep(_written(messages))

    @property
    def kept(self) -> int:
        """How much `post_later` was given that has not been sent."""
        return self._outbox.kept

    @property
    def is_taken(self) -> bool:
        """Whether the other end has taken all that was sent by `post_soon`, and the stream has not ended."""
        return self._outbox.is_empty

    def flush(self) -> None:
        """Sends what `post_later` was given. Raises ConnectionEnded."""
        self._outbox.flush()

    def wait_for_room(self) -> None:
        """Waits while much that was sent by `post_soon` has not been taken."""
        self._outbox.wait_for_room()

    def wait_until_sent(self, seconds: float) -> None:
        """Waits until all that was sent by `post_soon` was taken, for so many seconds at the most."""
        self._outbox.wait_until_sent(seconds)

    def receive(self) -> Message:
        """Waits for the next message. Raises ConnectionEnded, and PWC0911 for what is none."""
        return decode(*self._reader.receive())

    def receive_within(self, seconds: float) -> Message:
        """As `receive`; the stream ends where the first bytes take longer. Raises ConnectionEnded, and PWC0911."""
        self._stream.settimeout(seconds)
        message = self.receive()
        self._stream.settimeout(None)
        return message

    def abandon(self) -> None:
        """Gives back this process's copy of the stream, which another, that has forked it, goes on with."""
        self._stream.close()

    def close(self) -> None:
        """Ends the stream in both directions: the other end sees it at once, and so does a thread that reads."""
        with contextlib.suppress(OSError):
            self._stream.shutdown(socket.SHUT_RDWR)
        self._outbox.close()
        self._stream.close()


def _written(messages: Sequence[Message]) -> Sequence[bytes | memoryview]:
    return in_one([data for message in messages for data in frame_of(*encode(message))])
