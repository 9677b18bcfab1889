"""Ids that a client chooses: of its arrays, plans and runs, before any host has heard of them."""

import threading

from pathways.runtime.wire.ids import first_id


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
