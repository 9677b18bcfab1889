"""Starts clusters whose controller runs in a separate process, and their clients in other processes."""

import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from pathways.api.shared_cluster import start_shared
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.ranks import ranks_in
from pathways.dialect.topology import parse_topology
from pathways.runtime.control.cluster_controller import ClusterController
from pathways.runtime.control.scheduling import SCHEDULING_POLICIES, STRIDE
from pathways.runtime.launch.local_hosts import CONTROLLER, LocalLauncher
from pathways.runtime.launch.reach import ask
from pathways.runtime.wire.loop import Loop
from support.clusters import PATIENCE, is_alive
from support.processes import start_python


class SharedCluster:
    """A running cluster that a test has started."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.pid: int = self.status()["pid"]

    def status(self) -> dict[str, Any]:
        return ask(self.address, "status")

    def island(self, name: str) -> dict[str, Any]:
        return next(island for island in self.status()["islands"] if island["name"] == name)

    def hosts(self) -> dict[str, int]:
        """Returns the process id of each host, by name."""
        return {host["name"]: host["pid"] for island in self.status()["islands"] for host in island["hosts"]}

    def pids(self) -> list[int]:
        return list(self.hosts().values())

    def send(self, host: str, how: signal.Signals) -> int:
        """Sends a signal to a host; returns its process id."""
        pid = self.hosts()[host]
        os.kill(pid, how)
        return pid

    def becomes(self, true: Callable[[dict[str, Any]], bool]) -> bool:
        """Waits until the predicate holds for the status; returns False after PATIENCE seconds."""
        end = time.monotonic() + PATIENCE
        while not true(self.status()):
            if time.monotonic() > end:
                return False
            threading.Event().wait(0.02)
        return True

    def is_empty(self) -> bool:
        """Waits until the cluster has no clients, arrays or runs; returns False after PATIENCE seconds."""
        return self.becomes(
            lambda said: (
                not said["clients"]
                and not any(i["held"] or i["running"] or i["waiting"] or i["arrays"] for i in said["islands"])
            )
        )

    @contextmanager
    def client(self, program: str, *arguments: object) -> "Generator[subprocess.Popen[str]]":
        """Starts a program of `client_programs.py` in a new process, which is killed at the end of the block."""
        with self.process("support.client_programs", program, *arguments) as process:
            yield process

    @contextmanager
    def process(self, module: str, *arguments: object) -> "Generator[subprocess.Popen[str]]":
        """Starts a module in a new process that knows the address; it is killed at the end of the block."""
        said = map(str, arguments)
        with start_python("-m", module, *said, PATHWAYS_ADDRESS=self.address, PYTHONPATH=_path()) as process:
            try:
                yield process
            finally:
                process.kill()

    @contextmanager
    def clients(self, *programs: Sequence[object]) -> "Generator[list[subprocess.Popen[str]]]":
        """Starts several clients, each in its own process."""
        with ExitStack() as stack:
            yield [stack.enter_context(self.client(str(name), *arguments)) for name, *arguments in programs]


def _path() -> str:
    root = Path(__file__).parents[2]
    return os.pathsep.join((str(root), str(root / "tests")))


@contextmanager
def started_by(start: Callable[[str], object]) -> Generator[SharedCluster]:
    """Starts a cluster by calling `start` with an address; stops it and checks that all its processes exit."""
    with tempfile.TemporaryDirectory(prefix="pw") as folder:
        address = str(Path(folder) / "c")
        start(address)
        cluster = SharedCluster(address)
        pids = [cluster.pid, *cluster.pids()]
        try:
            yield cluster
        finally:
            with suppress(PathwaysError):
                pids += cluster.pids()
                ask(address, "stop")
        end_all(pids)


def end_all(pids: "Sequence[int] | set[int]") -> None:
    """Waits until all processes have exited; fails if one is still alive after PATIENCE seconds."""
    end = time.monotonic() + PATIENCE
    while any(map(is_alive, pids)) and time.monotonic() < end:
        threading.Event().wait(0.02)
    assert not [pid for pid in pids if is_alive(pid)]


def shared_cluster(topology: str = "islands=2,devices=2") -> AbstractContextManager[SharedCluster]:
    """Starts a cluster on this machine, and stops it at the end of the block."""
    return started_by(lambda address: start_shared(address, parse_topology(topology), "stride"))


@contextmanager
def controller_here(topology: str) -> Generator[str]:
    """Runs a controller in a thread of this process, with its hosts in separate processes; yields its address."""
    with tempfile.TemporaryDirectory(prefix="pw") as name, socket.socket(socket.AF_UNIX) as listener:
        folder, chosen, loop = Path(name), parse_topology(topology), Loop()
        listener.bind(str(folder / CONTROLLER))
        listener.listen(64)
        launcher = LocalLauncher(folder, "cpu", ranks_in(chosen))
        controller = ClusterController(loop, chosen, "cpu", SCHEDULING_POLICIES[STRIDE](), launcher, name)
        loop.listen(listener, controller.accept)
        thread = threading.Thread(target=loop.run, daemon=True)
        thread.start()
        try:
            yield name
        finally:
            loop.on_thread(controller.close)
            thread.join(PATIENCE)
            loop.close()


def line_of(process: "subprocess.Popen[str]") -> str:
    """Returns the next line that a process prints."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def go_on(process: "subprocess.Popen[str]") -> None:
    """Sends an empty line to a client, so that the client continues."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def end_of(process: "subprocess.Popen[str]", say: str | None = None) -> list[str]:
    """Waits until a client exits with code 0 and no errors; returns the words that it has printed."""
    out, errors = process.communicate(say, timeout=PATIENCE)
    assert process.returncode == 0 and not errors, errors
    return out.split()
