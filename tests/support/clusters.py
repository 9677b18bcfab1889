"""Helpers for tests on islands in separate processes: process ids, signals, waiting, error codes."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pathways.api.process import process
from pathways.runtime.client.remote.attached import Attached
from pathways.runtime.client.remote.cluster import Cluster
from pathways.runtime.launch.local_hosts import LocalHosts
from pathways.runtime.wire import messages as m

PATIENCE = 60.0
"""Timeout of a test's waits, in seconds."""


def this_cluster() -> Attached:
    machine = process().machine
    assert isinstance(machine, Attached)
    return machine


def own_cluster() -> Cluster:
    """Returns the cluster of this process; skips the test where the controller is in another process."""
    machine = this_cluster()
    if not isinstance(machine, Cluster):
        pytest.skip("the controller is in another process")
    return machine


def host_pids() -> dict[str, int]:
    """Returns the process id of each host, by name."""
    islands = this_cluster().ask("status")["islands"]
    return {host["name"]: host["pid"] for island in islands for host in island["hosts"]}


def arrays_on_hosts() -> int:
    """Returns how many arrays the hosts had when they last said so."""
    return sum(island["arrays"] for island in this_cluster().ask("status")["islands"])


def pid_of(host: str) -> int:
    return host_pids()[host]


def post_to(host: str, message: m.Message) -> None:
    """Sends a message to one host, as the controller does."""
    controller = own_cluster()._controller  # pyright: ignore[reportPrivateUsage]
    loop = own_cluster()._loop  # pyright: ignore[reportPrivateUsage]
    loop.call(lambda: controller.members.by_name[host].post(message))


def launched(island: str) -> LocalHosts:
    """Returns the processes of an island, and the service where its hosts meet."""
    members = own_cluster()._controller.members.all  # pyright: ignore[reportPrivateUsage]
    found = next(member.process for member in members if member.name == island)
    assert isinstance(found, LocalHosts)
    return found


def is_replaced(island: str, old: int) -> bool:
    """Returns whether a new host of an island has joined in place of the process `old`."""
    said = next(each for each in this_cluster().ask("status")["islands"] if each["name"] == island)
    return said["state"] == "up" and said["hosts"][0]["pid"] != old


def send(island: str, how: signal.Signals) -> int:
    """Sends a signal to the process of an island; returns its process id."""
    os.kill(pid := pid_of(island), how)
    return pid


def freeze(pid: int) -> None:
    """Stops a process, and waits until all its threads have stopped: before, one may still send an answer."""
    os.kill(pid, signal.SIGSTOP)
    assert becomes(lambda: all(state_of(thread) == "T" for thread in Path(f"/proc/{pid}/task").iterdir()))


def state_of(process: Path) -> str:
    """Returns the state of a process or a thread from its folder in /proc: `T` if it is stopped."""
    return (process / "stat").read_text().rpartition(")")[2].split()[0]


def becomes(true: Callable[[], bool]) -> bool:
    """Waits until the predicate holds; returns False after PATIENCE seconds."""
    end = time.monotonic() + PATIENCE
    while not true():
        if time.monotonic() > end:
            return False
        process().controller.flights.drain(0.02)
    return True


def is_alive(pid: int) -> bool:
    """Checks whether a process of this machine exists and is not a zombie."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def values(results: Any) -> list[Any]:
    return [np.asarray(r) for r in results]
