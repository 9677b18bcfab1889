"""A module of this package in a process that ends with its parent: `python -m ... PARENT MODULE ARGUMENTS`.

The kernel ends it, also where it is frozen, when the thread that has started it is gone (Linux).
"""

import ctypes
import os
import runpy
import signal
import sys

_ON_PARENTS_DEATH = 1
"""PR_SET_PDEATHSIG, of prctl(2)."""


def tie(parent: int) -> None:
    """Has the kernel end this process when its parent does; ends it now where another is its parent by now."""
    ctypes.CDLL(None).prctl(_ON_PARENTS_DEATH, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(f"process {parent}, which has started this one, is gone")


if __name__ == "__main__":
    tie(int(sys.argv[1]))
    del sys.argv[:2]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
