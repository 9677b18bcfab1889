"""Defines the ownership of islands: one client launches small runs there without the queue, until another run asks for
one of the islands. The scheduler gives and ends it; `client/direct_call.py` uses it.
"""

import itertools
import threading
from collections.abc import Collection


class Ownership:
    """The right to launch on some islands without a slot of the queue. Each launch holds the lock.

    To end it, the scheduler clears `client`, and then checks the lock. A launch takes the lock, and then checks
    `client`. So the launch sees that the right has ended, or the scheduler sees the launch.
    """

    __slots__ = ("__weakref__", "client", "islands", "lock", "number")

    def __init__(self, islands: Collection[str]) -> None:
        self.islands = islands
        self.number = next(_NUMBERS)
        """Stands for its launches in the scheduler. No run has it."""
        self.client = ""
        """The label of the client that owns the islands; empty if none does."""
        self.lock = threading.Lock()


_NUMBERS = itertools.count(-1, -1)
