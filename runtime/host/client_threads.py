"""Threads of a host, one for each client: what one client waits for holds up no other."""

import queue
import threading
from collections.abc import Callable
from typing import TypeAlias

from pathways.runtime.threads import start_thread

IDLE_S = 5.0
"""Seconds after which a thread that has nothing to do ends."""
_Queue: TypeAlias = queue.SimpleQueue[Callable[[], object] | None]
"""What a client has asked for, in order; None ends its thread."""


class ClientThreads:
    """Does what clients ask for, in the order in which each asks. `name` begins the names of the threads."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._todo: dict[int, _Queue] = {}
        """By client; only of those that have a thread."""
        self._lock = threading.Lock()
        """Guards those; nothing is waited for inside."""

    def put(self, client: int, work: Callable[[], object]) -> None:
        """Does something on a client's thread. Raises PWC0521 where none can be started: the caller must not wait."""
        with self._lock:
            todo = self._todo.get(client)
            if todo is None:
                todo = _Queue()
                start_thread(f"{self._name}-{client}", self._serve, client, todo)
                self._todo[client] = todo
            todo.put(work)

    def put_behind(self, client: int, work: Callable[[], object]) -> None:
        """Does something behind what a client has asked for; at once, where it has no thread."""
        with self._lock:
            if (todo := self._todo.get(client)) is not None:
                todo.put(work)
                return
        work()

    def end(self, client: int) -> None:
        """Ends the thread of a client that is gone, behind what it has asked for."""
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
            del work  # it holds an array
