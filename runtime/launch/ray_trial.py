"""A Ray cluster on this machine, to try things out: it listens on 127.0.0.1, and is gone without a trace in the end.

It has a folder and a token of its own, so that no other Ray of the machine, and no other user, has to do with it. It
is never ended by `ray stop`, which ends every Ray of the machine.
"""

import contextlib
import ctypes
import os
import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pathways.dialect.files import write_private
from pathways.runtime.launch.ray_api import load_ray
from pathways.runtime.launch.ray_nodes import AUTH

TOKEN = "RAY_AUTH_TOKEN_PATH"
_EACH: dict[str, Any] = {
    "object_store_memory": 80 << 20,  # nothing of ours goes there
    "node_ip_address": "127.0.0.1",
    "include_dashboard": False,
}
_SETTINGS = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # otherwise it listens on all interfaces
    "RAY_USAGE_STATS_ENABLED": "0",
    AUTH: "token",
    # A node that is gone is noticed in a second, one that is frozen in four; otherwise in 15 and 60 (measured).
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
    # Workers that are started in advance would outlive a raylet that is killed.
    "RAY_prestart_worker_first_driver": "0",
    "RAY_enable_worker_prestart": "0",
}
_ADOPTS = 36
"""PR_SET_CHILD_SUBREAPER, of prctl(2)."""
ENDS = 15.0
"""Seconds in which all processes of a trial cluster are gone."""


@dataclass(frozen=True)
class Trial:
    """A trial cluster that runs."""

    address: str
    token: Path
    """The file of its token."""
    add_node: Callable[[int], None]
    """Starts another node, of so many CPUs; in the main thread, with which its processes end."""


@contextlib.contextmanager
def trial_cluster(nodes: int, cpus: int) -> Generator[Trial]:
    """Starts a head without CPUs and so many nodes with so many each; ends all that this process has begotten."""
    ctypes.CDLL(None).prctl(_ADOPTS, 1)  # what loses its parent becomes a child of this process, and is found
    folder = Path(tempfile.mkdtemp(prefix="pwray"))  # short: sockets lie deep below it, and their paths are limited
    try:
        token = folder / "token"
        write_private(token, secrets.token_hex(32).encode())
        os.environ |= _SETTINGS | {TOKEN: str(token), "RAY_TMPDIR": str(folder), "TMPDIR": str(folder)}
        os.environ.pop("RAY_AUTH_TOKEN", None)
        load_ray()
        cluster = _start(nodes, cpus)
        yield Trial(str(cluster.address), token, lambda cpus: cluster.add_node(num_cpus=cpus, **_EACH))
    finally:
        end_children()
        shutil.rmtree(folder, ignore_errors=True)


def _start(nodes: int, cpus: int) -> Any:
    """Starts the processes of Ray, which end with this one."""
    from ray.cluster_utils import Cluster

    few = {"no_monitor": True, "include_log_monitor": False}
    cluster: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **few, **_EACH})
    for _ in range(nodes):
        cluster.add_node(wait=False, num_cpus=cpus, **_EACH)
    cluster.wait_for_nodes(60)
    return cluster


def end_children() -> None:
    """Kills all processes that this one has started, and those that these have."""
    until = time.monotonic() + ENDS
    while (found := children()) and time.monotonic() < until:
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(OSError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.02)


def children() -> list[int]:
    """The children of this process; those of one that ends become its own."""
    found: list[int] = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            if int(fields[1]) == os.getpid():
                found.append(int(name))
    return found
