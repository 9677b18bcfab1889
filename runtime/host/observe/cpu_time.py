"""Tells whether threads of this process compute, from the CPU time that the system reports. The watchdog reads it to
tell a hang from slow work. Clients report with it whether a host callback still computes.
"""

import contextlib
import threading
import time
from pathlib import Path

_TASKS = Path("/proc/self/task")
SHARE = 0.02
"""The share of one core below which a process counts as idle: threads that only wake and poll use as much."""


def of_thread(native: int) -> float | None:
    """Returns a mark that changes while a thread computes, or is ready to; None if the system does not report it."""
    ticks, wants = _stat(native)
    return time.monotonic() if wants else ticks


def _stat(native: int) -> tuple[int | None, bool]:
    """Reads the ticks of CPU time that a thread has used, and whether it runs or is ready to."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = (_TASKS / str(native) / "stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12]), fields[0] in "RD"
    return None, False


class CpuTime:
    """Marks that change while something computes, measured at each poll of the watchdog."""

    def __init__(self) -> None:
        self._polls = 0
        self._all: tuple[float, float] | None = None
        self._devices: tuple[float, float] | None = None
        self.process: int = 0
        """A number that changes when the process has computed since the last poll."""
        self.devices: int | None = 0 if _TASKS.is_dir() else None
        """The same for threads unknown to Python, which are those of devices; None if the system does not report it."""

    def poll(self, *, closely: bool) -> None:
        """Measures the CPU time. `closely`: also of single threads, which costs some 15 us each.

        The time of the calling thread does not count. Otherwise a process with many threads would seem to compute,
        because the measurement itself can use more than SHARE. One thread must make all calls; if another one takes
        over, the process seems to compute once.
        """
        self._polls += 1
        now = time.monotonic()
        self._all, busy = _since(self._all, now, time.process_time() - time.thread_time())
        if busy:
            self.process = self._polls
        if self.devices is None:
            return
        if not closely:
            self.devices, self._devices = self._polls, None
            return
        python = {t.native_id for t in threading.enumerate()}
        used, wants = 0, False
        for task in _TASKS.iterdir():
            ticks, wanted = (None, False) if int(task.name) in python else _stat(int(task.name))
            used, wants = used + (ticks or 0), wants or wanted
        self._devices, busy = _since(self._devices, now, used / _TICKS_PER_S)
        if busy or wants:
            self.devices = self.process = self._polls


def _since(before: tuple[float, float] | None, now: float, used: float) -> tuple[tuple[float, float], bool]:
    """Returns the values to compare with next time, and whether CPU time was used since `before`."""
    if before is None:
        return (now, used), True
    return (now, used), used - before[1] > SHARE * max(now - before[0], 1e-3)


_TICKS_PER_S = 100
"""Ticks of CPU time in a second, as Linux reports them (USER_HZ)."""
