"""The clients inside of this process, as its controller knows them: by number."""

import contextlib
import itertools
import threading
from collections import deque
from collections.abc import Callable

from pathways.runtime.wire import messages as m
from pathways.runtime.wire.fields import named


class InsideClients:
    """Numbers the clients of this process. The controller is told of each before its first run, and after its last."""

    def __init__(self, post: Callable[[m.Message], None], telling: threading.Lock) -> None:
        """`post` sends a message to the controller; `telling` is held meanwhile."""
        self._post, self._telling = post, telling
        self._following = itertools.count()
        self._numbers: dict[str, int] = {}
        self._closed: deque[str] = deque()

    def number(self, label: str) -> int:
        """Returns the number of a client; tells the controller of a new one."""
        if (number := self._numbers.get(label)) is not None:
            return number
        with self._telling:
            if label not in self._numbers:
                number = next(self._following)
                self._post(m.Introduce(number, -1, named(label), None, ""))
                self._numbers[label] = number
            return self._numbers[label]

    def retire(self, label: str) -> None:
        """Notes that a client was closed; any thread may call it."""
        self._closed.append(label)

    def tell_retired(self) -> None:
        """Tells the controller which clients were closed. What they held must have been told before."""
        with contextlib.suppress(IndexError):
            while True:
                label = self._closed.popleft()
                with self._telling:
                    if (number := self._numbers.pop(label, None)) is not None:
                        self._post(m.Retire(number))
