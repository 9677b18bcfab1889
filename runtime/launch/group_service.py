"""Starts the coordination service of JAX's distributed runtime for the hosts of one island, in a separate process. Code
that starts hosts calls it, if an island has several.

If a host provided it, the exit of that host would abort the other hosts.
"""

import contextlib
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path

from pathways.runtime.launch.spawn import spawn
from pathways.runtime.wire.addresses import LOOPBACK, show_address


@dataclass(eq=False)
class GroupService:
    """The process group service of one island. It exits with this process, which keeps the service's input open."""

    address: str
    process: "subprocess.Popen[bytes]"
    log: Path

    def kill(self) -> None:
        self.process.kill()

    def end(self) -> None:
        """Kills the service and releases this process's resources for it."""
        self.process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        if self.process.stdin is not None:
            self.process.stdin.close()


def start_group_service(count: int, log: Path, ip: str = LOOPBACK) -> GroupService:
    """Starts a service for `count` hosts, at an address that they can reach. Raises OSError."""
    address = show_address((ip, _free_port(ip)))
    process = spawn("pathways.runtime.host.devices.group", [address, str(count)], log, subprocess.PIPE)
    return GroupService(address, process, log)


def _free_port(ip: str) -> int:
    with socket.socket(socket.AF_INET6 if ":" in ip else socket.AF_INET) as sock:
        sock.bind((ip, 0))
        port: int = sock.getsockname()[1]
        return port
