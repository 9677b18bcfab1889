"""Allocates ids of arrays, plans and runs. An id is a 64-bit number that contains the number of its client, so that
clients choose ids without asking each other.

The upper 16 bits are the client's number; it is 0 in a cluster with one client. Ids received from a client are checked
(`fields.py`).
"""

import threading
import zlib
from functools import lru_cache

COUNTER_BITS = 48
"""Number of low bits of an id, which the client counts up."""
MAX_CLIENTS = 1 << 15
"""Maximum number of clients. Encoded ids are signed, so client numbers have 15 bits."""
MAX_RESULTS = 1 << 20
"""This many ids from the first result of a run must belong to the client. No plan has more results."""
MAX_RUNS = 1 << 46
"""Runs of a client have numbers below this limit. Moves of arrays between programs have numbers above it."""
NONE = -1
"""Id of an argument that no computation reads."""


def first_id(client: int) -> int:
    """Returns the first id of a client. Id 0 is not used: the controller reads it as no array."""
    if not 0 <= client < MAX_CLIENTS:
        raise ValueError(f"client {client} of at most {MAX_CLIENTS}")
    return (client << COUNTER_BITS) + 1


def client_of(array: int) -> int:
    """Returns the number of the client that chose an id. Negative for an invalid id."""
    return array >> COUNTER_BITS


class ClientIds:
    """Allocates the ids of one client of a cluster. Any thread may call it."""

    def __init__(self, client: int) -> None:
        self._lock = threading.Lock()
        self._following = first_id(client)

    def take(self, count: int = 1) -> int:
        """Takes `count` consecutive ids and returns the first."""
        with self._lock:
            first = self._following
            self._following += count
            return first


@lru_cache(maxsize=1024)  # each run asks for it
def hash_of_label(label: str) -> int:
    """Returns a number of 31 bits for a client's label. A message without text has a small maximum size."""
    return zlib.crc32(label.encode(errors="surrogatepass")) >> 1
