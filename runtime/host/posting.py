"""Sends the answers of a host to its controller or to a client. A request is always answered, if need be with an error.
`Host`, `Clients` and `Snapshots` use it.
"""

import contextlib
from collections.abc import Callable
from typing import TypeAlias

from pathways.dialect.diagnostic_json import write_diagnostic
from pathways.runtime.host.run.failures import why_not
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.frames import ConnectionEnded
from pathways.runtime.wire.peer import Peer


class ClientPost:
    """Sends messages to a client. Ignores a lost connection, because the host serves other clients, too."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    def __call__(self, message: m.Message) -> None:
        with contextlib.suppress(ConnectionEnded):
            self._peer.post(message)

    def post_if_taken(self, message: m.Message) -> bool:
        """Sends a message only if the client has read all earlier ones; returns whether it was sent.

        A message that is not sent takes no memory here.
        """
        if not self._peer.is_taken:
            return False
        try:
            self._peer.post(message)
        except ConnectionEnded:
            return False
        return True

    def wait_for_room(self) -> None:
        """Waits while the client has much unread data. Does not wait for a disconnected client."""
        self._peer.wait_for_room()


Post: TypeAlias = ClientPost | Callable[[m.Message], None]
"""Sends a message to the requester."""
MakeAnswer: TypeAlias = Callable[[], str | bytes | tuple[str, bytes]]
"""Returns the value of an answer, its bytes, or both."""


def post_answer(request: int, work: MakeAnswer, post: Post, island: str, what: str) -> None:
    """Answers a request with the result of `work`, or with its error: the requester always waits for an answer."""
    try:
        done = work()
        value, blob = done if isinstance(done, tuple) else (done, b"") if isinstance(done, str) else ("", done)
        answer = m.Answer(request, value=value, blob=blob)
    except Exception as error:
        answer = m.Answer(request, error=write_diagnostic(why_not(what, island, error)))
    post(answer)
