"""Defines the ownership of islands: one client launches small runs there without the queue, until another run asks for
one of the islands. The scheduler gives and ends it; `client/direct_call.py` uses it.
"""

import threading
from collections.abc import Collection


class Ownership:
    """The right to launch on some islands without a slot of the queue. Each launch holds the lock.

    The scheduler sets `client`, then looks at the lock; a launch takes the lock, then looks at `client`. So a launch
    sees that the right has ended, or the scheduler sees the launch.
    """

    __slots__ = ("client", "islands", "lock", "number")

    def __init__(self, islands: Collection[str], number: int) -> None:
        """`number` stands for its launches in the scheduler. No run has it."""
        self.islands = islands
        self.number = number
        self.client = ""
        """The label of the client that owns the islands; empty if none does."""
        self.lock = threading.Lock()
