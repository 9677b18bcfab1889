"""Records the work of this process that may take long, such as tracing or compiling, with progress counts. Compiler and
runtime report here, and the progress display reads it. This module must not know any display.

An activity costs less than a microsecond if no display follows.
"""

import time
from collections.abc import Callable
from threading import get_ident
from types import TracebackType
from typing import Protocol

clock: Callable[[], float] = time.monotonic
"""The clock of `Activity.begun`, in seconds."""


class Follower(Protocol):
    """A display that is notified when activities begin, and when none is left."""

    def begun(self) -> None:
        """Called on the thread of an activity after it has begun; must not block."""
        ...

    def ended(self) -> None:
        """Called on the thread of the last activity after it has ended."""
        ...


class Activity:
    """One long-running piece of work of a thread, as a `with` block: a name, and the progress if it is known.

    Any thread may set `done` and `detail` at any time. `since` is the time of its start, if that was before the block.
    """

    __slots__ = ("begun", "detail", "done", "name", "thread", "total", "unit")

    def __init__(self, name: str, total: int = 0, unit: str = "", *, detail: str = "", since: float = 0.0) -> None:
        self.name = name
        self.total = total
        """The total amount of work; 0: unknown."""
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
"""The unit of an activity that counts bytes."""
ELSEWHERE = "elsewhere"
"""The unit of waits for runs in other processes. A display requests the reason for the wait there, and shows it."""
_under_way: dict[Activity, None] = {}
"""In the order of their start. Operations on dictionaries are atomic, so no lock is needed."""
_follower: Follower | None = None


def under_way() -> list[Activity]:
    """Returns the activities of all threads, in the order of their start."""
    return list(_under_way)


def follow(follower: Follower | None) -> Follower | None:
    """Sets the display that is notified of activities, or None for no display. Returns the previous one."""
    global _follower
    before, _follower = _follower, follower
    return before
