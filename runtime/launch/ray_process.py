"""What a Ray actor of ours does: it keeps one process of this package, which ends when it does.

Hosts and controllers need a main thread and libraries of their own, so they are children of actors, not actors. When a
raylet is killed, Ray leaves its workers behind: an actor looks for itself whether its raylet is still there.
"""

import os
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from pathways.runtime.launch.spawn import spawn, why_ended

LOOK = 0.2
"""Seconds between two looks at whether the raylet is there."""
_OF_THE_WORKER = ("RAY_JOB_ID", "RAY_RAYLET_PID")
"""What Ray tells a worker of itself; a child that connects to Ray by itself is another."""


class ProcessKeeper:
    """Keeps a process. It is started by the actor's main thread, which lives as long as the actor."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._log = Path()
        raylet = int(os.environ.get("RAY_RAYLET_PID") or os.getppid())
        threading.Thread(target=_end_with, args=(raylet,), name="pathways-raylet", daemon=True).start()

    def start(
        self, module: str, arguments: Sequence[str], log: str, environment: Mapping[str, str], for_good: bool
    ) -> int:
        """Starts the process; one `for_good` has its actor end with it. Gives the number of the process.

        Where hosts are on other machines, their keys come with this call: the actor writes them to a folder of its
        own, and `--connect` and `--keys` take the place of `--socket`.
        """
        for name in _OF_THE_WORKER:
            os.environ.pop(name, None)
        self._log = Path(log)
        command = [str(os.getpid()), module, *arguments]
        path = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
        process = spawn("pathways.runtime.launch.tied", command, self._log, environment=path | dict(environment))
        self._process = process
        if for_good:
            threading.Thread(target=lambda: os._exit(process.wait() and 1), name="pathways-reaper", daemon=True).start()
        return process.pid

    def wait(self) -> str:
        """Waits for the end of the process, and says why it has ended."""
        assert self._process is not None
        return why_ended(self._process.wait(), self._log)


def _end_with(raylet: int) -> None:
    """Ends this process, and with it the one that it keeps, soon after its raylet."""
    while os.getppid() == raylet:
        time.sleep(LOOK)
    os._exit(1)
