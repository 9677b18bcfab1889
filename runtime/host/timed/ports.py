"""Shares the ports of all islands between the processes of timed hosts: one transfer at a time leaves an island, and
one enters it. `links.py` asks for both ports before it sends.
"""

import fcntl
import mmap
import struct
import threading
from pathlib import Path

_TIME = struct.Struct("<d")
PORTS_FILE = "ports"
"""The file in the folder of a cluster: two times for each island."""


class Ports:
    """The times until which ports are taken, in a file that all hosts of a cluster map."""

    def __init__(self, folder: Path, islands: int) -> None:
        """Raises OSError."""
        size = max(1, 2 * islands * _TIME.size)
        self._file = (folder / PORTS_FILE).open("a+b")
        self._lock = threading.Lock()
        """A lock of a file holds only between processes."""
        with self._lock:
            fcntl.lockf(self._file, fcntl.LOCK_EX)
            if self._file.seek(0, 2) < size:
                self._file.truncate(size)
            fcntl.lockf(self._file, fcntl.LOCK_UN)
        self._times = mmap.mmap(self._file.fileno(), size)

    def close(self) -> None:
        self._times.close()
        self._file.close()

    def take(self, source: int, target: int, ready: float, seconds: float) -> float:
        """Takes the port out of an island and that into another, from the first time after `ready` at which both are
        free, for `seconds`. Returns the time at which the transfer ends.
        """
        offsets = 2 * source * _TIME.size, (2 * target + 1) * _TIME.size
        with self._lock:
            fcntl.lockf(self._file, fcntl.LOCK_EX)
            try:
                free = (_TIME.unpack_from(self._times, offset)[0] for offset in offsets)
                end = max(ready, *free) + seconds
                for offset in offsets:
                    _TIME.pack_into(self._times, offset, end)
            finally:
                fcntl.lockf(self._file, fcntl.LOCK_UN)
        return end
