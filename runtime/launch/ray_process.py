"""Defines the Ray actor that this package uses: it starts one process, a host or a controller, and ends together with
it. `ray_api.py` creates the actors.

Hosts and controllers need their own main thread and libraries, so they are child processes of actors. When a raylet is
killed, Ray does not kill its workers, so each actor monitors its raylet.
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

POLL_INTERVAL_S = 0.2
"""Interval of checks of the raylet."""
_OF_THE_WORKER = ("RAY_JOB_ID", "RAY_RAYLET_PID")
"""Environment variables that identify a Ray worker. A child that connects to Ray must not inherit them."""


class ProcessKeeper:
    """Keeps a process. The actor's main thread starts the process, and lives as long as the actor."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._log = Path()
        self._remover: subprocess.Popen[bytes] | None = None
        raylet = int(os.environ.get("RAY_RAYLET_PID") or os.getppid())
        start_thread("pathways-raylet", _end_with, raylet)

    def start(
        self, module: str, arguments: Sequence[str], log: str, environment: Mapping[str, str], for_good: bool
    ) -> int:
        """Starts the process; returns its process id. With `for_good`, the actor exits when the process exits."""
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
        """Starts a host with a member's key files. It listens at its node's address.

        The keys and the log are in a private folder on the node, which is removed when the host or this actor exits.
        """
        util: Any = importlib.import_module("ray.util")  # its types are incomplete
        folder = Path(tempfile.mkdtemp(prefix="pathways-"))  # of mode 0700
        self._remover = _remover_of(folder)
        for name, data in keys.items():
            write_private(folder / name, data)
        place = ["--keys", str(folder), "--ip", str(util.get_node_ip_address())]
        return self.start(module, [*arguments, *place], str(folder / "host.log"), environment, False)

    def wait(self) -> str:
        """Waits for the process to exit; returns the reason."""
        assert self._process is not None
        try:
            return why_ended(self._process.wait(), self._log)
        finally:
            if self._remover is not None:
                self._remover.communicate()


def _remover_of(folder: Path) -> "subprocess.Popen[bytes]":
    """Starts a process that removes a folder when its standard input closes, also if this process is killed."""
    command = ["/bin/sh", "-c", 'cat > /dev/null; rm -rf -- "$0"', str(folder)]
    none = subprocess.DEVNULL
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=none, stderr=none, start_new_session=True)


def _end_with(raylet: int) -> None:
    """Exits this process, and with it the process that it keeps, soon after its raylet exits."""
    while os.getppid() == raylet:
        time.sleep(POLL_INTERVAL_S)
    os._exit(1)
