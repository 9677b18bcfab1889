"""What a test needs to play a host: its messages, and proofs that plans are loaded (runtime/wire/load_proofs.py)."""

import threading
from dataclasses import dataclass, field

from pathways.runtime.wire import messages as m
from pathways.runtime.wire.connection import Connection
from pathways.runtime.wire.load_proofs import loaded_as, prove
from support.clusters import PATIENCE


@dataclass(eq=False)
class KeysOfHosts:
    """Holds the keys that a controller has given to the hosts of a test, by host and client."""

    _keys: dict[tuple[str, int], str] = field(default_factory=dict[tuple[str, int], str])
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def deliver(self, host: str, message: m.Expect) -> None:
        """Notes the key that a host was given."""
        with self._changed:
            self._keys[host, message.client] = message.key
            self._changed.notify_all()

    def loaded(self, host: str, number: int, client: int, plan: int) -> m.Loaded:
        """Waits until a host knows a client; returns the client's proof that it has loaded a plan of this island."""
        with self._changed:
            assert self._changed.wait_for(lambda: (host, client) in self._keys, PATIENCE)
            key = self._keys[host, client]
        return m.Loaded(plan, number, prove(key, plan, loaded_as(b"", [host], None, sequential=False)))


def next_message(connection: Connection) -> m.Message:
    """Receives the next message that is not a heartbeat."""
    return next(said for said in iter(connection.receive, None) if not isinstance(said, m.Beat))
