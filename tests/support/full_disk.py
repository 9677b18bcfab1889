"""A full disk, simulated: files of a process cannot grow beyond a limit."""

import resource
import sys
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def full_disk(left: int = 1024, process: int = 0) -> Generator[None]:
    """Limits the files of a process to `left` bytes each; `process` 0 is this process.

    The limit of another process must exceed each .pyc file that it may still write (this project's have at most 128
    KiB): Python keeps a truncated .pyc file, which no process can import.
    """
    limits = resource.prlimit(process, resource.RLIMIT_FSIZE)
    writes_none = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    resource.prlimit(process, resource.RLIMIT_FSIZE, (left, limits[1]))
    try:
        yield
    finally:
        resource.prlimit(process, resource.RLIMIT_FSIZE, limits)
        sys.dont_write_bytecode = writes_none
