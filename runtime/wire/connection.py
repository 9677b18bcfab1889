"""A stream of messages whose owner waits for each: to connect, to say who one is, or to ask once.

A process that goes on hands it over to its loop (`peer.py`).
"""

import contextlib
import socket

from pathways.runtime.wire.encoding import decode, encode, most_bytes
from pathways.runtime.wire.frames import FrameReader, Transport, frame_of, send_all
from pathways.runtime.wire.loop import Loop
from pathways.runtime.wire.messages import Message
from pathways.runtime.wire.peer import Peer


class Connection:
    """One end of a stream, plain or under TLS, for one thread."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._reader = FrameReader(most_bytes)

    def post(self, *messages: Message) -> None:
        """Sends messages; waits until the stream has taken them. Raises ConnectionEnded."""
        send_all(self._transport, [data for message in messages for data in frame_of(*encode(message))])

    def receive(self) -> Message:
        """Waits for the next message. Raises ConnectionEnded, and PWC0911 for what is none."""
        while True:
            for found in self._reader.frames():
                return decode(*found)
            with contextlib.suppress(BlockingIOError):  # under TLS a part of a record has come
                self._reader.read(self._transport)

    def hand_over(self, loop: Loop) -> Peer:
        """Has a loop go on with the stream, from the first message that `receive` has not given."""
        return Peer(loop, self._transport, self._reader)

    def close(self) -> None:
        """Ends the stream in both directions: the other end sees it at once."""
        with contextlib.suppress(OSError):
            self._transport.shutdown(socket.SHUT_RDWR)
        self._transport.close()
