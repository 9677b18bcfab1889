"""What a Ray actor of ours does: it keeps one process of this package, which ends when it does.

Hosts and controllers need a main thread and libraries of their own, so they are children of actors, not actors. When a
raylet is killed, Ray leaves its workers behind: an actor looks for itself whether its raylet is still there.
"""

import importlib
import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pathways.dialect.files import write_private
from pathways.runtime.launch.spawn import spawn, why_ended
from pathways.runtime.threads import start_thread

LOOK = 0.2
"""Seconds between two looks at whether the raylet is there."""
_OF_THE_WORKER = ("RAY_JOB_ID", "RAY_RAYLET_PID")
"""What Ray tells a worker of itself; a child that connects to Ray by itself is another."""


class ProcessKeeper:
    """Keeps a process. It is started by the actor's main thread, which lives as long as the actor."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._log = Path()
        self._remover: subprocess.Popen[bytes] | None = None
        raylet = int(os.environ.get("RAY_RAYLET_PID") or os.getppid())
        start_thread("pathways-raylet", _end_with, raylet)

    def start(
        self, module: str, arguments: Sequence[str], log: str, environment: Mapping[str, str], for_good: bool
    ) -> int:
        """Starts the process; one `for_good` has its actor end with it. Gives the number of the process."""
        for name in _OF_THE_WORKER:
            os.environ.pop(name, None)
        self._log = Path(log)
        command = [str(os.getpid()), module, *arguments]
        path = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
        process = spawn("pathways.runtime.launch.tied", command, self._log, environment=path | dict(environment))
        self._process = process
        if for_good:
            start_thread("pathways-reaper", lambda: os._exit(process.wait() and 1))
        return process.pid

    def start_member(
        self, module: str, arguments: Sequence[str], keys: Mapping[str, bytes], environment: Mapping[str, str]
    ) -> int:
        """Starts a host that has the keys of a member, by file, and is reached at the address of its node.

        Keys and its log lie in a folder of this user on the node, which is removed when the host or this actor ends.
        """
        util: Any = importlib.import_module("ray.util")  # whose types are not whole
        folder = Path(tempfile.mkdtemp(prefix="pathways-"))  # of mode 0700
        self._remover = _remover_of(folder)
        for name, data in keys.items():
            write_private(folder / name, data)
        place = ["--keys", str(folder), "--ip", str(util.get_node_ip_address())]
        return self.start(module, [*arguments, *place], str(folder / "host.log"), environment, False)

    def wait(self) -> str:
        """Waits for the end of the process, and says why it has ended."""
        assert self._process is not None
        try:
            return why_ended(self._process.wait(), self._log)
        finally:
            if self._remover is not None:
                self._remover.communicate()


def _remover_of(folder: Path) -> "subprocess.Popen[bytes]":
    """Starts a process that removes a folder when its standard input ends: also where this process is killed."""
    command = ["/bin/sh", "-c", 'cat > /dev/null; rm -rf -- "$0"', str(folder)]
    none = subprocess.DEVNULL
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=none, stderr=none, start_new_session=True)


def _end_with(raylet: int) -> None:
    """Ends this process, and with it the one that it keeps, soon after its raylet."""
    while os.getppid() == raylet:
        time.sleep(LOOK)
    os._exit(1)
