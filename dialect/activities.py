"""What this process is at: activities with counts, for as long as each lasts. State alone; a display may follow it.

Compiler and runtime report here what may take its time, and know of no display. An activity costs less than a
microsecond where none follows.
"""

import time
from collections.abc import Callable
from threading import get_ident
from types import TracebackType
from typing import Protocol

clock: Callable[[], float] = time.monotonic
"""The clock by which activities begin."""


class Follower(Protocol):
    """What is told that there is something to show, or nothing any more."""

    def begun(self) -> None:
        """Hears, on the thread of an activity, that this has begun; must not wait."""
        ...

    def ended(self) -> None:
        """Hears, on the thread of the last activity, that none is left."""
        ...


class Activity:
    """One thing that a thread is at, inside a `with` block: a name, and how much of it is done where that is known.

    `done` and `detail` may be set at any time by any thread. `since`: when it began, where that was before the block.
    """

    __slots__ = ("begun", "detail", "done", "name", "thread", "total", "unit")

    def __init__(self, name: str, total: int = 0, unit: str = "", *, detail: str = "", since: float = 0.0) -> None:
        self.name = name
        self.total = total
        """How much there is to do; 0: nothing is known of that."""
        self.unit = unit
        self.detail = detail
        self.done = 0
        self.begun = since
        self.thread = 0

    def __enter__(self) -> "Activity":
        self.thread = get_ident()
        self.begun = self.begun or clock()
        _under_way[self] = None
        if _follower is not None:
            _follower.begun()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _under_way.pop(self, None)
        if _follower is not None and not _under_way:
            _follower.ended()


BYTES = "bytes"
"""The unit of what is counted in bytes."""
ELSEWHERE = "elsewhere"
"""The unit of waits for runs in other processes: a display asks there why they do not begin, and shows them if so."""
_under_way: dict[Activity, None] = {}
"""In the order in which they began. Dictionaries are changed as a whole: no lock is needed."""
_follower: Follower | None = None


def under_way() -> list[Activity]:
    """Returns the activities of all threads, in the order in which they began."""
    return list(_under_way)


def follow(follower: Follower | None) -> Follower | None:
    """Has a display told when activities begin and end; None: no display. Returns what was told before."""
    global _follower
    before, _follower = _follower, follower
    return before
