"""Numbers the `pw.Client`s of this process for the controller of a cluster, which schedules each of them separately.
`Attached` uses it.
"""

import itertools
import threading
from collections import deque
from collections.abc import Callable, Sequence

from pathways.runtime.wire import messages as m
from pathways.runtime.wire.fields import named


class InsideClients:
    """The clients of this process, by number. The controller is notified of new clients and of closed clients."""

    def __init__(self, post: Callable[[m.Message], None], telling: threading.Lock) -> None:
        """`post` sends a message to the controller. `telling` is held during the call."""
        self._post, self._telling = post, telling
        self._following = itertools.count()
        self._numbers: dict[str, int] = {}
        self._closed: deque[str] = deque()

    def number(self, label: str) -> int:
        """Returns the number of a client. Notifies the controller of a new client."""
        if (number := self._numbers.get(label)) is not None:
            return number
        with self._telling:
            if label not in self._numbers:
                number = next(self._following)
                self._post(m.Introduce(number, -1, named(label), None, ""))
                self._numbers[label] = number
            return self._numbers[label]

    def retire(self, label: str) -> None:
        """Records that a client was closed. Any thread may call it."""
        self._closed.append(label)

    def take_closed(self) -> list[str]:
        """Takes the clients that were closed. What they held must be reported before `report_retired`."""
        return [self._closed.popleft() for _ in range(len(self._closed))]

    def report_retired(self, closed: Sequence[str]) -> None:
        """Notifies the controller of closed clients."""
        for label in closed:
            with self._telling:
                if (number := self._numbers.pop(label, None)) is not None:
                    self._post(m.Retire(number))
