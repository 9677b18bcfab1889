"""Sends answers of a host to its controller, or to one of its clients."""

import contextlib
from collections.abc import Callable
from typing import TypeAlias

from pathways.dialect.diagnostic_json import write_diagnostic
from pathways.runtime.host.run.failures import why_not
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.frames import ConnectionEnded
from pathways.runtime.wire.peer import Peer


class ClientPost:
    """Sends messages to a client, if it is still there: the host has other clients to serve."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    def __call__(self, message: m.Message) -> None:
        with contextlib.suppress(ConnectionEnded):
            self._peer.post(message)

    def post_if_taken(self, message: m.Message) -> bool:
        """Sends a message if the client has taken all before it; returns whether it did. Takes no memory for others."""
        if not self._peer.is_taken:
            return False
        try:
            self._peer.post(message)
        except ConnectionEnded:
            return False
        return True

    def wait_for_room(self) -> None:
        """Waits while the client has not read much of what was sent to it; not for one that is gone."""
        self._peer.wait_for_room()


Post: TypeAlias = ClientPost | Callable[[m.Message], None]
"""Sends a message to who has asked."""
MakeAnswer: TypeAlias = Callable[[], str | bytes | tuple[str, bytes]]
"""Gives the value of an answer, its bytes, or both."""


def post_answer(request: int, work: MakeAnswer, post: Post, island: str, what: str) -> None:
    """Answers a request with what `work` gives, or with its error: who has asked waits, whatever happens here."""
    try:
        done = work()
        value, blob = done if isinstance(done, tuple) else (done, b"") if isinstance(done, str) else ("", done)
        said = m.Answer(request, value=value, blob=blob)
    except Exception as error:
        said = m.Answer(request, error=write_diagnostic(why_not(what, island, error)))
    post(said)
