"""Helpers for tests on islands in separate processes: process ids, signals, waiting, error codes."""

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from pathways.api.process import process
from pathways.runtime.client.cluster import Cluster

PATIENCE = 60.0
"""Timeout of a test's waits, in seconds."""


def this_cluster() -> Cluster:
    machine = process().machine
    assert isinstance(machine, Cluster)
    return machine


def pid_of(island: str) -> int:
    return this_cluster().processes[island].process.pid


def send(island: str, how: signal.Signals) -> None:
    """Sends a signal to the process of an island."""
    os.kill(pid_of(island), how)


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
