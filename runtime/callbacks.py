"""Host callbacks (`jax.pure_callback` and its like): functions of this process that computations call.

A module holds only their index; the functions are known by number, to this process alone. That is why a plan with
callbacks cannot be saved, and why everything that calls back may fail: see `defer.py`.
"""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Inside:
    """A callback that has not returned."""

    computation: str
    thread: int
    since: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.since


_inside: dict[int, Inside] = {}


def inside() -> Iterator[Inside]:
    """All callbacks that run now, the oldest first."""
    yield from sorted(list(_inside.values()), key=lambda i: i.since)


def running_here() -> Inside | None:
    """The callback that this thread is inside of."""
    return _inside.get(threading.get_ident()) if _inside else None


class Watched:
    """A callback that is seen while it runs, and whose last exception is kept."""

    def __init__(self, function: Callable[..., Any], computation: str) -> None:
        self.function = function
        self.computation = computation
        self.error: BaseException | None = None

    def __call__(self, *args: Any) -> Any:
        thread = threading.get_ident()
        before = _inside.get(thread)
        _inside[thread] = Inside(self.computation, thread)
        try:
            return self.function(*args)
        except BaseException as error:
            self.error = error
            raise
        finally:
            if before is None:
                _inside.pop(thread, None)
            else:
                _inside[thread] = before
