"""Counts the threads that this process may still start. XLA ends the process if it cannot start a thread. `islands.py`
calls it before it creates CPU devices.
"""

import contextlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

_DEFAULT_STACK_BYTES = 8 << 20
"""Address space of a thread if no stack limit is set."""
_CGROUP = Path("/sys/fs/cgroup")


def room() -> int:
    """Counts the threads left under the limits of the process and its container; a large number if there is none."""
    return min([1 << 30, *_of_process(), *_of_container()])


def _of_process() -> Iterator[int]:
    if sys.platform == "win32":
        return
    import resource

    stack, space, count = (
        resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_STACK, resource.RLIMIT_AS, resource.RLIMIT_NPROC)
    )
    if space != resource.RLIM_INFINITY:
        used = 0
        with contextlib.suppress(OSError, ValueError, IndexError):
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        yield max(0, space - used) // (stack if 0 < stack < 1 << 40 else _DEFAULT_STACK_BYTES)
    if count != resource.RLIM_INFINITY:
        yield max(0, count - threading.active_count())


def _of_container() -> Iterator[int]:
    with contextlib.suppress(OSError, ValueError):  # no limit, or no container
        yield max(0, int((_CGROUP / "pids.max").read_text()) - int((_CGROUP / "pids.current").read_text()))
