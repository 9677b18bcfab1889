"""Proves to the controller of a shared cluster which plan a client has loaded on this host. The controller must know,
because it schedules the client's runs without reading plans. A proof is an HMAC, with a key that the controller has
sent to this host. `Host` uses it.
"""

from collections import defaultdict
from dataclasses import dataclass, field

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.plan.nouns import Plan
from pathways.dialect.plan.part import shared_branches
from pathways.dialect.ranks import RankTable
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.errors import BadMessage
from pathways.runtime.wire.ids import client_of
from pathways.runtime.wire.load_proofs import loaded_as, prove


@dataclass(eq=False)
class ProvenLoads:
    """Holds the keys of clients, and the plan that each client has loaded under each number.

    A number stands for one plan until this plan is unloaded: otherwise an old proof would be valid for another plan.
    After that the controller accepts no other plan under the number. A client that reconnects loads its plans again.
    """

    _keys: dict[int, str] = field(default_factory=dict[int, str])
    _had: dict[int, dict[int, str]] = field(default_factory=lambda: defaultdict(dict[int, str]))
    """By client and plan number: the text that describes the loaded plan (`loaded_as`)."""

    def expect(self, message: m.Expect) -> None:
        """Stores the key of a client from the controller."""
        self._keys[message.client] = message.key

    def check(self, message: m.LoadPlan, plan: Plan, ranks: RankTable) -> str:
        """Returns the text that a proof of this load will sign; empty if the controller sent no key for the client.

        Raises PWC0911 for another plan under a number that its client has used before.
        """
        client = client_of(message.plan)
        if client not in self._keys:  # the controller has no other clients
            return ""
        branches = shared_branches(plan, lambda island: island, ranks)
        islands, shared = {stream.island for stream in plan.streams}, branches if branches or plan.bodies else None
        loaded = loaded_as(message.blob, islands, shared, sequential=message.sequential)
        if self._had[client].get(message.plan, loaded) != loaded:
            rule = "a number that no other plan has used"
            raise PathwaysError(BadMessage(have_=f"another plan with the number {message.plan}", rule=rule))
        return loaded

    def prove(self, plan: int, loaded: str) -> bytes:
        """Returns the proof of a load, for the text from `check`; empty if the text is, or the client disconnected."""
        client = client_of(plan)
        key = self._keys.get(client)
        if not loaded or key is None:
            return b""
        self._had[client][plan] = loaded
        return prove(key, plan, loaded).encode()

    def unload(self, plan: int) -> None:
        """Drops the entry of a plan that its client has unloaded."""
        self._had.get(client_of(plan), {}).pop(plan, None)

    def forget(self, client: int) -> None:
        """Drops the key and the entries of a disconnected client. Its number may be used again."""
        self._keys.pop(client, None)
        self._had.pop(client, None)
