"""Returns the memory of freed arrays to the operating system, on platforms whose devices use the memory of this process
(CPU). A thread does this once a second. `pjrt.py` and `group.py` start it.

It needs glibc 2.33 or later; without it, it does nothing.

glibc keeps freed memory in arenas, and each thread allocates from one arena. XLA allocates arrays in all of its threads
and frees them in others. So a training step whose plan states 2.2 GiB held 6 GiB on 2 cores, and 11 GiB on 16
(`bench/any_model.py`). A thread polls once a second. It returns freed pages if they are many compared with the recent
peak in use. Pages that are needed again must be written again, which costs more than returning them. Both
together may take a thirtieth of the time.

A single arena would hold less memory at the same step time, but XLA compiled 1.3 times slower with it.
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
POLL_INTERVAL_S = 1.0
"""Interval between two checks of memory use."""
MAX_SAMPLES = 10
"""Number of polls over which the peak in use is taken, since memory use varies within a step."""
MIN_FREED_BYTES = 256 << 20
"""Minimum number of freed bytes that are returned."""
MIN_FREED_SHARE = 0.5
"""Minimum ratio of freed bytes to the peak in use. `bench/any_model.py` refills 0.4 of the peak within a few steps."""
RESTS = 30
"""After memory is returned, none is returned for this many times the cost of returning and refilling it."""
REGAIN_S_PER_BYTE = 0.3 / (1 << 30)
"""Cost of a returned byte that is needed again."""


def worth_returning(resident: int, in_use: int, others: int) -> bool:
    """Whether a process holds enough freed bytes to return them. `others`: bytes outside the heap (code, stacks)."""
    return resident - in_use - others > max(MIN_FREED_BYTES, MIN_FREED_SHARE * in_use)


_COUNTS = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
"""Fields of glibc's `struct mallinfo2`. `uordblks`: bytes in use in arenas; `hblkhd`: bytes mapped outside arenas."""


class _HeapCounts(ctypes.Structure):
    _fields_: ClassVar[Any] = [(name, ctypes.c_size_t) for name in _COUNTS.split()]


@dataclass(frozen=True)
class Heap:
    """The heap of this process: functions that count the bytes in use and return freed bytes to the system."""

    in_use: Callable[[], int]
    give_back: Callable[[], None]


def glibc_heap() -> Heap | None:
    """Returns the heap of glibc 2.33 or later; None in a process without it."""
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
    """Returns the resident memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@dataclass
class Returning:
    """Decides at each poll whether to return freed memory, and returns it."""

    heap: Heap
    resident: Callable[[], int]
    others: int
    time: Callable[[], float] = time.monotonic
    least: int = 0
    """Resident bytes after memory was last returned. More is returned once MIN_FREED_BYTES more are resident."""
    rests_until: float = -math.inf
    _in_use: deque[int] = field(default_factory=lambda: deque[int](maxlen=MAX_SAMPLES))

    def poll(self) -> bool:
        """Polls once: returns freed memory to the system if there is enough of it. Returns True if it did."""
        held = self.resident()
        if held - self.others < MIN_FREED_BYTES:
            return False
        self._in_use.append(self.heap.in_use())
        begin = self.time()
        if begin < self.rests_until or held < self.least + MIN_FREED_BYTES:
            return False
        if not worth_returning(held, max(self._in_use), self.others):
            return False
        self.heap.give_back()
        self.least = self.resident()
        end = self.time()
        self.rests_until = end + RESTS * (end - begin + REGAIN_S_PER_BYTE * max(0, held - self.least))
        return True


@cache
def return_freed_memory() -> None:
    """Starts a thread that returns freed memory. Only the first call in a process has an effect."""
    heap = glibc_heap()
    if heap is not None and Path("/proc/self/statm").exists():
        returning = Returning(heap, resident, max(0, resident() - heap.in_use()))
        started(threading.Thread(target=_keep_returning, args=(returning,), name=THREAD, daemon=True))


def _keep_returning(returning: Returning) -> None:
    while True:
        time.sleep(POLL_INTERVAL_S)
        returning.poll()
