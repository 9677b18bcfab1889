"""Proofs that a host has loaded a plan: made by the host, shown by the client, checked by the controller.

A run whose hosts have loaded different plans, or none, would wait on one host for a value that no other sends, and the
runs of other clients would wait behind it. The controller gives each host a key for each client, which clients never
see; it schedules a run of several hosts when all of them have proven that they loaded the same plan. That a run names
all hosts of its plan is not proven.
"""

import hashlib
import hmac


def new_key(of_host: bytes, ticket: str) -> str:
    """Derives the key of a host for one client, from the host's own key and the ticket of the client."""
    return hmac.digest(of_host, ticket.encode(), "sha256").hex()


def digest_of(plan: bytes) -> str:
    """Computes a digest of the bytes of a plan, the same for all clients that have the same plan."""
    return hashlib.blake2b(plan, digest_size=16).hexdigest()


def loaded_as(plan: bytes, *, sequential: bool) -> str:
    """Names what a host loads: the digest of a plan, and whether it is enqueued sequentially."""
    return f"{digest_of(plan)}/{sequential:d}"


def prove(key: str, plan: int, loaded: str) -> str:
    """Proves that the host of a key has loaded this (`loaded_as`) under the number of a plan."""
    return f"{loaded}:{hmac.digest(bytes.fromhex(key), f'{plan} {loaded}'.encode(), 'sha256').hex()}"


def proven(key: str, plan: int, proof: str) -> str:
    """Returns what a proof of the host of a key shows that it has loaded; nothing for one that is none."""
    loaded = proof.rpartition(":")[0]
    return loaded if hmac.compare_digest(prove(key, plan, loaded).encode(), proof.encode()) else ""
