"""Starts a private Ray cluster on this machine, for trials and tests of `pwc cluster start --ray local`. It listens on
127.0.0.1 only, and removes all its files at exit.

Used by `ray_start.py` and tests. It has its own folder and token, which isolate it from other Rays and other users. It
must not be stopped by `ray stop`, which stops every Ray of the machine.
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
    "object_store_memory": 80 << 20,  # unused by this package
    "node_ip_address": "127.0.0.1",
    "include_dashboard": False,
}
_SETTINGS = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # otherwise it listens on all interfaces
    "RAY_USAGE_STATS_ENABLED": "0",
    AUTH: "token",
    # A lost node is detected after 1 s, a frozen node after 4 s; by default after 15 s and 60 s (measured).
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
    # Workers started in advance would outlive a killed raylet.
    "RAY_prestart_worker_first_driver": "0",
    "RAY_enable_worker_prestart": "0",
}
_ADOPTS = 36
"""PR_SET_CHILD_SUBREAPER, of prctl(2)."""
EXIT_TIMEOUT_S = 15.0
"""Time limit for all processes of a trial cluster to exit."""


@dataclass(frozen=True)
class Trial:
    """A running trial cluster."""

    address: str
    token: Path
    """The file with its token."""
    add_node: Callable[[int], None]
    """Starts another node with this number of CPUs, on the main thread, with which its processes end."""


@contextlib.contextmanager
def trial_cluster(nodes: int, cpus: int) -> Generator[Trial]:
    """Starts a head without CPUs, and nodes with `cpus` CPUs each; kills all descendants of this process at exit."""
    ctypes.CDLL(None).prctl(_ADOPTS, 1)  # orphaned processes become children of this process, so that they are found
    folder = Path(tempfile.mkdtemp(prefix="pwray"))  # short: paths of sockets below it are limited
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
    """Starts the Ray processes, which exit with this process."""
    from ray.cluster_utils import Cluster

    few = {"no_monitor": True, "include_log_monitor": False}
    cluster: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **few, **_EACH})
    for _ in range(nodes):
        cluster.add_node(wait=False, num_cpus=cpus, **_EACH)
    cluster.wait_for_nodes(60)
    return cluster


def end_children() -> None:
    """Kills all child processes of this process, and their descendants."""
    until = time.monotonic() + EXIT_TIMEOUT_S
    while (found := children()) and time.monotonic() < until:
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(OSError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.02)


def children() -> list[int]:
    """Returns the children of this process, including orphans that it has adopted."""
    found: list[int] = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # exited meanwhile
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            if int(fields[1]) == os.getpid():
                found.append(int(name))
    return found
