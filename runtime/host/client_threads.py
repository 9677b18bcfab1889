"""Threads of a host, one for each client: what one client waits for holds up no other."""

import queue
import threading
from collections.abc import Callable

from pathways.runtime.threads import started

IDLE_S = 5.0
"""Seconds after which a thread that has nothing to do ends."""


class ClientThreads:
    """Does what clients ask for, in the order in which each asks. `name` begins the names of the threads."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._todo: dict[int, queue.SimpleQueue[Callable[[], object] | None]] = {}
        """By client; only of those that have a thread."""
        self._lock = threading.Lock()
        """Guards those; nothing is waited for inside."""

    def put(self, client: int, work: Callable[[], object]) -> None:
        """Does something on a client's thread; at once, where no thread can be started."""
        with self._lock:
            todo = self._todo.get(client)
            if todo is None:
                todo = queue.SimpleQueue[Callable[[], object] | None]()
                name = f"{self._name}-{client}"
                if started(threading.Thread(target=self._serve, args=(client, todo), name=name, daemon=True)):
                    self._todo[client] = todo
            if client in self._todo:
                todo.put(work)
                return
        work()

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

    def _serve(self, client: int, todo: "queue.SimpleQueue[Callable[[], object] | None]") -> None:
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
