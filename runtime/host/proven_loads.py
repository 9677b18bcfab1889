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
    """The keys of clients, and the numbers of all plans that each has loaded here.

    No number is used again, not even for the same plan: the proof of before would do for another.
    """

    _keys: dict[int, str] = field(default_factory=dict[int, str])
    _had: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set[int]))

    def expect(self, message: m.Expect) -> None:
        """Takes the key of a client from the controller."""
        self._keys[message.client] = message.key

    def check_new(self, plan: int) -> None:
        """Raises PWC0911 for the number of a plan that its client has loaded before."""
        if plan in self._had[client_of(plan)]:
            raise PathwaysError(BadMessage(have_=f"plan {plan} again", rule="a number that no plan has had"))

    def prove(self, message: m.LoadPlan) -> bytes:
        """Proves that a plan is loaded; nothing where the controller has no other clients, and given no key."""
        client = client_of(message.plan)
        self._had[client].add(message.plan)
        key = self._keys.get(client)
        if key is None:
            return b""
        return prove(key, message.plan, digest_of(message.blob), sequential=message.sequential).encode()

    def forget(self, client: int) -> None:
        """Drops what is known of a client that is gone; its number may be used again."""
        self._keys.pop(client, None)
        self._had.pop(client, None)
