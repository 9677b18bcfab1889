"""Runs a module of this package in a process that the kernel kills when the parent exits, even if the process is
frozen. Ray actors start hosts and controllers through it.

Usage: `python -m ... PARENT MODULE ARGUMENTS`. The kernel does so when the thread that started the process exits
(Linux).
"""

import ctypes
import os
import runpy
import signal
import sys

_ON_PARENTS_DEATH = 1
"""PR_SET_PDEATHSIG, of prctl(2)."""


def tie(parent: int) -> None:
    """Makes the kernel kill this process when its parent exits; exits now if the parent has already exited."""
    ctypes.CDLL(None).prctl(_ON_PARENTS_DEATH, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(f"the parent process {parent} has exited")


if __name__ == "__main__":
    tie(int(sys.argv[1]))
    del sys.argv[:2]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
