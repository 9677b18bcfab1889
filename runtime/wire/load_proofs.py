"""Makes and checks proofs that a host has loaded a certain plan. The host makes a proof, the client passes it on, and
the controller of a shared cluster checks it. Without it, a wrong run could block other clients.

A run on only some islands of its plan would wait for values that no host sends. So would a run whose hosts have loaded
different plans. Runs of other clients would wait after it. A branch whose decision the controller does not forward
would wait forever. The controller therefore schedules a run only if three conditions hold. Each host of the run has
proven that it loaded the same plan. The run names exactly the islands of this plan. The client has named exactly its
branches. The controller sends the keys of the proofs to the hosts; clients never see them.
"""

import hashlib
import hmac
import json
from collections.abc import Collection, Mapping
from typing import TypeAlias

Branches: TypeAlias = Mapping[int, tuple[str, frozenset[str]]]
"""Branches of a plan that several hosts share, by number: the kind and the hosts of each."""


def new_key(of_host: bytes, ticket: str) -> str:
    """Derives the key of a host for one client, from the host's own key and the ticket of the client."""
    return hmac.digest(of_host, ticket.encode(), "sha256").hex()


def digest_of(plan: bytes) -> str:
    """Computes a digest of the bytes of a plan, the same for all clients that have the same plan."""
    return hashlib.blake2b(plan, digest_size=16).hexdigest()


def loaded_as(plan: bytes, islands: Collection[str], branches: Branches | None, *, sequential: bool) -> str:
    """Names what a host loads: a plan, its islands and branches, and whether it is enqueued sequentially.

    `branches` is None for a plan without branches, whose runs complete by themselves.
    """
    return f"{digest_of(plan)}/{sequential:d}/{_digest_of_shape(islands, branches)}"


def has_shape(loaded: str, islands: Collection[str], branches: Branches | None) -> bool:
    """Whether what a host has loaded (`loaded_as`) is a plan of exactly these islands and branches."""
    return loaded.rpartition("/")[2] == _digest_of_shape(islands, branches)


def _digest_of_shape(islands: Collection[str], branches: Branches | None) -> str:
    listed = None if branches is None else sorted((n, kind, sorted(hosts)) for n, (kind, hosts) in branches.items())
    return digest_of(json.dumps([sorted(islands), listed]).encode())


def prove(key: str, plan: int, loaded: str) -> str:
    """Creates the proof that the host of a key has loaded `loaded` (`loaded_as`) under the number of a plan."""
    return f"{loaded}:{hmac.digest(bytes.fromhex(key), f'{plan} {loaded}'.encode(), 'sha256').hex()}"


def proven(key: str, plan: int, proof: str) -> str:
    """Returns what a valid proof of this host shows as loaded, or an empty string for an invalid proof."""
    loaded = proof.rpartition(":")[0]
    return loaded if hmac.compare_digest(prove(key, plan, loaded).encode(), proof.encode()) else ""
