"""Memory of freed arrays goes back to the system, where devices have this process's own.

glibc keeps what is freed in arenas, of which each thread allocates from one. XLA allocates arrays in all of its threads
and frees them in others, so that a training step whose plan states 2.2 GiB held 6 on 2 cores, and 11 on 16
(`bench/any_model.py`). A thread looks once a second, and has the pages of freed memory given back where they are many
beside the most that was in use lately. Pages that are needed again are written anew, which costs more than to give them
back: both together may take a thirtieth of the time. Where there is no glibc of 2.33 or later, nothing is done.

One arena would hold less and be as fast in a step, but XLA, which compiles in threads, took 1.3 times as long with one.
"""

import ctypes
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from pathways.runtime.threads import started

THREAD = "pathways-memory"
EVERY = 1.0
"""Seconds between two looks."""
LOOKS = 10
"""The most in use is that of so many looks: a step has many sizes."""
FEWEST = 256 << 20
"""Fewer bytes that are freed but held are left."""
SHARE = 0.5
"""So are fewer than this share of the most in use: `bench/any_model.py` holds 0.4 of it anew within a few steps."""
RESTS = 30
"""So many times as long as giving memory back and writing it anew take, none is given back after it."""
REGAIN = 0.3 / (1 << 30)
"""Seconds a byte: what a page costs that is needed again, of memory that was given back."""


def worth_returning(resident: int, in_use: int, others: int) -> bool:
    """Whether the freed bytes that a process holds are many; `others` are not of the heap: code, stacks."""
    return resident - in_use - others > max(FEWEST, SHARE * in_use)


_COUNTS = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
"""The fields of glibc's `struct mallinfo2`: `uordblks` is in use in arenas, `hblkhd` is mapped by itself."""


class _HeapCounts(ctypes.Structure):
    _fields_: ClassVar[Any] = [(name, ctypes.c_size_t) for name in _COUNTS.split()]


@dataclass(frozen=True)
class Heap:
    """The heap of this process: bytes in use, by what counts them, and what gives freed ones back."""

    in_use: Callable[[], int]
    give_back: Callable[[], None]


def glibc_heap() -> Heap | None:
    """Finds glibc's; None in a process without it."""
    try:
        library = ctypes.CDLL(None)
        count, trim = library.mallinfo2, library.malloc_trim
    except (OSError, AttributeError):
        return None
    count.restype, trim.argtypes = _HeapCounts, [ctypes.c_size_t]

    def in_use() -> int:
        found = count()
        return found.uordblks + found.hblkhd

    return Heap(in_use, lambda: trim(0))


def resident() -> int:
    """Bytes of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@dataclass
class Returning:
    """Gives freed memory back, now and then."""

    heap: Heap
    resident: Callable[[], int]
    others: int
    time: Callable[[], float] = time.monotonic
    least: int = 0
    """What the process held after the last time: nothing is given back before it holds more."""
    rests_until: float = -math.inf
    _in_use: deque[int] = field(default_factory=lambda: deque[int](maxlen=LOOKS))

    def look(self) -> bool:
        """Gives freed memory back if it is much; returns whether it was."""
        held = self.resident()
        if held - self.others < FEWEST:
            return False
        self._in_use.append(self.heap.in_use())
        begin = self.time()
        if begin < self.rests_until or held < self.least + FEWEST:
            return False
        if not worth_returning(held, max(self._in_use), self.others):
            return False
        self.heap.give_back()
        self.least = self.resident()
        end = self.time()
        self.rests_until = end + RESTS * (end - begin + REGAIN * max(0, held - self.least))
        return True


@cache
def return_freed_memory() -> None:
    """Begins to give freed memory back, in a thread of this process; the first call counts."""
    heap = glibc_heap()
    if heap is not None and Path("/proc/self/statm").exists():
        returning = Returning(heap, resident, max(0, resident() - heap.in_use()))
        started(threading.Thread(target=_keep_returning, args=(returning,), name=THREAD, daemon=True))


def _keep_returning(returning: Returning) -> None:
    while True:
        time.sleep(EVERY)
        returning.look()
