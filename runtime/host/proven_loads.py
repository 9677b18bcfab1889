"""What a host proves of the plans that it has loaded, to a controller that several clients share."""

from collections import defaultdict
from dataclasses import dataclass, field

from pathways.dialect.diagnostics import PathwaysError
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.errors import BadMessage
from pathways.runtime.wire.ids import client_of
from pathways.runtime.wire.load_proofs import digest_of, prove


@dataclass(eq=False)
class ProvenLoads:
    """Holds the keys of clients, and what each has loaded under which number.

    A number stands for one plan as long as its client is there: the proof of before would do for another plan. A client
    whose connection has ended loads its plans again, under their numbers.
    """

    _keys: dict[int, str] = field(default_factory=dict[int, str])
    _had: dict[int, dict[int, str]] = field(default_factory=lambda: defaultdict(dict[int, str]))
    """By client and number: the digest of a plan, and how it is enqueued."""

    def expect(self, message: m.Expect) -> None:
        """Takes the key of a client from the controller."""
        self._keys[message.client] = message.key

    def check(self, message: m.LoadPlan) -> None:
        """Raises PWC0911 for another plan under a number that its client has used before."""
        client = client_of(message.plan)
        said = _said(message) if client in self._keys else ""
        if self._had[client].get(message.plan, said) != said:
            rule = "a number that no other plan has had"
            raise PathwaysError(BadMessage(have_=f"another plan {message.plan}", rule=rule))

    def prove(self, message: m.LoadPlan) -> bytes:
        """Proves that a plan is loaded; nothing where the controller has no other clients, and given no key."""
        client = client_of(message.plan)
        key = self._keys.get(client)
        if key is None:
            return b""
        self._had[client][message.plan] = _said(message)
        return prove(key, message.plan, digest_of(message.blob), sequential=message.sequential).encode()

    def forget(self, client: int) -> None:
        """Drops what is known of a client that is gone; its number may be used again."""
        self._keys.pop(client, None)
        self._had.pop(client, None)


def _said(message: m.LoadPlan) -> str:
    return f"{digest_of(message.blob)} {message.sequential:d}"
