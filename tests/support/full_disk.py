"""A full disk, simulated: files of a process cannot grow beyond a limit."""

import resource
import sys
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def full_disk(left: int = 1024, process: int = 0) -> Generator[None]:
    """Limits the files of a process to `left` bytes each; `process` 0 is this process.

    Another process must have a limit above the size of every .pyc file: Python keeps a .pyc file that was cut, and no
    process can import it after that.
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
