"""Sends and receives messages on one socket, and blocks while it does. Processes use it to connect and authenticate, or
for a single request. Afterwards the socket may be passed to the event loop (`peer.py`).
"""

import contextlib
import socket

from pathways.runtime.wire.encoding import decode, encode, max_bytes
from pathways.runtime.wire.frames import FrameReader, Transport, frame_of, send_all
from pathways.runtime.wire.loop import Loop
from pathways.runtime.wire.messages import Message
from pathways.runtime.wire.peer import Peer


class Connection:
    """One end of a stream, plain or under TLS. Only one thread may use it."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._reader = FrameReader(max_bytes)

    def post(self, *messages: Message) -> None:
        """Sends messages and blocks until the stream has accepted them. Raises ConnectionEnded."""
        send_all(self._transport, [data for message in messages for data in frame_of(*encode(message))])

    def receive(self) -> Message:
        """Blocks until the next message. Raises ConnectionEnded, or PWC0911 for invalid bytes."""
        while True:
            for found in self._reader.frames():
                return decode(*found)
            with contextlib.suppress(BlockingIOError):  # under TLS: only a part of a record has arrived
                self._reader.read(self._transport)

    def hand_over(self, loop: Loop) -> Peer:
        """Passes the stream to a loop, which continues with the first message that `receive` has not returned."""
        return Peer(loop, self._transport, self._reader)

    def close(self) -> None:
        """Shuts the stream down in both directions, so that the other end notices at once."""
        with contextlib.suppress(OSError):
            self._transport.shutdown(socket.SHUT_RDWR)
        self._transport.close()
