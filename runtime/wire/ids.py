"""Whose an array is: its id is 64 bits, of which the upper 16 are the number of the client that chose it.

The client of a cluster that has only one is number 0. What comes from a client is checked (`fields.py`).
"""

import threading

COUNTER = 48
"""The bits of an id that a client counts."""
MOST_CLIENTS = 1 << 15
"""Ids are signed where they are written."""
MOST_RESULTS = 1 << 20
"""So many ids behind the first of a run's results must be its client's, too: more than any plan has results."""
MOST_RUNS = 1 << 46
"""So many runs of a client have numbers; behind them come those of moves of arrays between programs."""
NONE = -1
"""The id of an argument that nothing reads."""


def first_id(client: int) -> int:
    """The first id of a client; id 0 is none, since the controller takes it for no array."""
    if not 0 <= client < MOST_CLIENTS:
        raise ValueError(f"client {client} of at most {MOST_CLIENTS}")
    return (client << COUNTER) + 1


def client_of(array: int) -> int:
    """The number of the client that chose an id; negative for what is no id."""
    return array >> COUNTER


class ClientIds:
    """The ids of one client of a cluster; any thread may take some."""

    def __init__(self, client: int) -> None:
        self._lock = threading.Lock()
        self._following = first_id(client)

    def take(self, count: int = 1) -> int:
        """Takes so many ids; returns the first."""
        with self._lock:
            first = self._following
            self._following += count
            return first
