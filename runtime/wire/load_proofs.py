"""Proofs that a host has loaded a plan: made by the host, shown by the client, checked by the controller.

A run whose hosts have loaded different plans, or none, would wait on one host for a value that no other sends, and the
runs of other clients would wait behind it; so would they behind a run that names some of the islands of its plan. The
controller gives each host a key for each client, which clients never see. It schedules a run if all of its hosts have
proven that they loaded the same plan, and that this plan is one of just the run's islands.
"""

import hashlib
import hmac
import json
from functools import lru_cache


def new_key(of_host: bytes, ticket: str) -> str:
    """Derives the key of a host for one client, from the host's own key and the ticket of the client."""
    return hmac.digest(of_host, ticket.encode(), "sha256").hex()


def digest_of(plan: bytes) -> str:
    """Computes a digest of the bytes of a plan, the same for all clients that have the same plan."""
    return hashlib.blake2b(plan, digest_size=16).hexdigest()


def loaded_as(plan: bytes, islands: frozenset[str], *, sequential: bool) -> str:
    """Names what a host loads: the digests of a plan and of its islands, and whether it is enqueued sequentially."""
    return f"{digest_of(plan)}/{sequential:d}/{_digest_of_islands(islands)}"


def is_of_islands(loaded: str, islands: frozenset[str]) -> bool:
    """Whether what a host has loaded (`loaded_as`) is a plan of just these islands."""
    return loaded.rpartition("/")[2] == _digest_of_islands(islands)


@lru_cache(1 << 12)
def _digest_of_islands(islands: frozenset[str]) -> str:
    return digest_of(json.dumps(sorted(islands)).encode())


def prove(key: str, plan: int, loaded: str) -> str:
    """Proves that the host of a key has loaded this (`loaded_as`) under the number of a plan."""
    return f"{loaded}:{hmac.digest(bytes.fromhex(key), f'{plan} {loaded}'.encode(), 'sha256').hex()}"


def proven(key: str, plan: int, proof: str) -> str:
    """Returns what a proof of the host of a key shows that it has loaded; nothing for one that is none."""
    loaded = proof.rpartition(":")[0]
    return loaded if hmac.compare_digest(prove(key, plan, loaded).encode(), proof.encode()) else ""
