"""One end of a connection between two processes: messages out, from any thread, and in."""

import contextlib
import socket
import threading
import time

from pathways.runtime.interrupts import uninterrupted
from pathways.runtime.wire.encoding import decode, encode, most_bytes
from pathways.runtime.wire.frames import ByteStream, frame_of, receive_frame, send_frame
from pathways.runtime.wire.messages import Message
from pathways.runtime.wire.outbox import Outbox


class Connection:
    """A stream, plain or under TLS, that carries messages. An end sends all of its messages in one of two ways: a host
    by `post`, so that it makes no more than is taken, its controller by `post_soon`, since it has other hosts, too."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._writing = threading.Lock()
        self._outbox = Outbox(stream)
        self.heard = time.monotonic()
        """When bytes last came."""

    @uninterrupted  # half a message would make what follows it another
    def post(self, message: Message) -> None:
        """Sends a message; messages of one thread arrive in their order. Raises ConnectionEnded."""
        kind, payload, blob = encode(message)
        with self._writing:
            send_frame(self._stream, kind, payload, blob)

    def post_soon(self, message: Message) -> None:
        """As `post`, and never waits for the other end, which may be frozen: what it does not take waits here."""
        self._outbox.post(frame_of(*encode(message)))

    def wait_for_room(self) -> None:
        """Waits while much that was sent by `post_soon` has not been taken."""
        self._outbox.wait_for_room()

    def wait_until_sent(self, seconds: float) -> None:
        """Waits until all that was sent by `post_soon` was taken, for so many seconds at the most."""
        self._outbox.wait_until_sent(seconds)

    def receive(self) -> Message:
        """Waits for the next message. Raises ConnectionEnded, and PWC0911 for what is none."""
        return decode(*receive_frame(self._stream, most_bytes, self._hear))

    def _hear(self) -> None:
        self.heard = time.monotonic()

    def abandon(self) -> None:
        """Gives back this process's copy of the stream, which another, that has forked it, goes on with."""
        self._stream.close()

    def close(self) -> None:
        """Ends the stream in both directions: the other end sees it at once, and so does a thread that reads."""
        with contextlib.suppress(OSError):
            self._stream.shutdown(socket.SHUT_RDWR)
        self._outbox.close()
        self._stream.close()
