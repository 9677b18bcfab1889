"""Numbers for clients: the ids of what a client has begin with its number (wire/ids.py)."""

from collections import deque

from pathways.runtime.wire.ids import MOST_CLIENTS


class ClientNumbers:
    """Gives out numbers: each once, then those that were given back, the oldest first. 0 is for the only client of a
    cluster that has no other."""

    def __init__(self, most: int = MOST_CLIENTS) -> None:
        self._most = most
        self._following = 1
        self._free: deque[int] = deque()

    def take(self) -> int | None:
        """Gives a number; None while all are in use."""
        if self._following < self._most:
            self._following += 1
            return self._following - 1
        return self._free.popleft() if self._free else None

    def give_back(self, number: int) -> None:
        """Frees a number that no host and no run uses any more."""
        self._free.append(number)
