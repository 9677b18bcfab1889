"""Runs requests of clients on a host, with one thread for each client, so that a slow request delays only its own
client. `Host` uses it to load plans and to return values, and `Snapshots` to write files.
"""

import queue
import threading
from collections.abc import Callable
from typing import TypeAlias

from pathways.runtime.threads import start_thread

IDLE_S = 5.0
"""Seconds after which an idle thread exits."""
_Queue: TypeAlias = queue.SimpleQueue[Callable[[], object] | None]
"""The pending requests of one client, in order. None ends its thread."""


class ClientThreads:
    """Runs the requests of each client in order. `name` is the prefix of the thread names."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._todo: dict[int, _Queue] = {}
        """By client. Only clients that have a thread are listed."""
        self._lock = threading.Lock()
        """Guards `_todo`. No thread waits while holding it."""

    def put(self, client: int, work: Callable[[], object]) -> None:
        """Enqueues work on a client's thread. Raises PWC0521 if no thread can be started: the caller must not wait."""
        with self._lock:
            todo = self._todo.get(client)
            if todo is None:
                todo = _Queue()
                start_thread(f"{self._name}-{client}", self._serve, client, todo)
                self._todo[client] = todo
            todo.put(work)

    def put_last(self, client: int, work: Callable[[], object]) -> None:
        """Enqueues work after the client's pending requests. Does the work at once if the client has no thread."""
        with self._lock:
            if (todo := self._todo.get(client)) is not None:
                todo.put(work)
                return
        work()

    def end(self, client: int) -> None:
        """Ends the thread of a disconnected client after its pending requests."""
        with self._lock:
            if (todo := self._todo.pop(client, None)) is not None:
                todo.put(None)

    def _serve(self, client: int, todo: _Queue) -> None:
        while True:
            try:
                work = todo.get(timeout=IDLE_S)
            except queue.Empty:
                with self._lock:
                    if todo.empty():
                        del self._todo[client]
                        return
                continue
            if work is None:
                return
            work()
            del work  # its closure holds an array
