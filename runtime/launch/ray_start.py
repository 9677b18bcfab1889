"""Starts a cluster's controller through Ray: `python -m pathways.runtime.launch.ray_start`, for `pwc cluster start
--ray`.

It is a separate process, since the requesting process may use Ray for other purposes, or not at all. It writes its
outcome to the cluster's folder. With a private Ray (`--ray local`) it keeps running, and stops Ray when the controller
exits.
"""

import argparse
import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

from pathways.dialect.diagnostic_json import write_diagnostic
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.files import write_private
from pathways.dialect.platforms import PLATFORMS, platform_named
from pathways.dialect.topology import Topology, load_topology, write_topology
from pathways.runtime.launch.local_cluster import CONTROLLER_MODULE, PID, RAY, TOPOLOGY, is_there
from pathways.runtime.launch.local_hosts import LOGS
from pathways.runtime.launch.ray_api import connect_to_ray, environment_of_hosts, keeper_on_head, last_line, nodes_of
from pathways.runtime.launch.ray_nodes import (
    check_gangs,
    check_here,
    check_protected,
    gang_of,
    platform_of,
    read_labels,
    topology_of_nodes,
)
from pathways.runtime.launch.ray_trial import trial_cluster
from pathways.runtime.launch.spawn import await_end, last_words
from pathways.runtime.wire.errors import NoCluster, RayFailed

START_TIMEOUT_S = 60.0
"""Time limit for the start of a controller."""
DEFAULT_NODES, DEFAULT_CPUS = 2, 4
"""Default size of a trial cluster."""


def serve_start() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    about = "the folder of the cluster; if its topology file is empty, the nodes determine the islands"
    parser.add_argument("--folder", type=Path, required=True, help=about)
    parser.add_argument("--ray", metavar="ADDRESS")
    parser.add_argument("--nodes", type=int, default=0, help="nodes of a private Ray; 0: as many as needed")
    parser.add_argument("--policy", required=True)
    parser.add_argument("--bind", metavar="HOST:PORT", help="address for hosts and clients with TLS")
    parser.add_argument("--keys", help="the folder of the cluster's keys")
    parser.add_argument("--platform", choices=sorted(PLATFORMS))
    parser.add_argument("--label", action="append", default=[], metavar="[ISLAND:]KEY=VALUE")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in the terminal is for the starting process
    folder: Path = chosen.folder
    try:
        topology = load_topology(folder / TOPOLOGY) if (folder / TOPOLOGY).stat().st_size else None
        if chosen.ray:
            ray = connect_to_ray(chosen.ray)
            start_controller_in(ray, chosen, topology, {"address": chosen.ray})
            ray.shutdown()
            return
        with trial_cluster(*_size(topology, chosen.nodes)) as trial:
            ray = connect_to_ray(trial.address)
            settings = {"address": trial.address, "token": str(trial.token), "keeper": os.getpid()}
            pid = start_controller_in(ray, chosen, topology, settings)
            with contextlib.suppress(OSError):  # it has already exited
                await_end(pid)
            ray.shutdown()
    except PathwaysError as error:
        _publish(folder, {"error": write_diagnostic(error.diagnostic)})
        sys.exit(str(error))
    except Exception as error:  # Ray raises many classes
        address = chosen.ray or "127.0.0.1"
        _publish(folder, {"error": write_diagnostic(RayFailed(address=address, reason=last_line(error)))})
        raise


def start_controller_in(
    ray: Any, chosen: argparse.Namespace, topology: Topology | None, settings: dict[str, Any]
) -> int:
    """Starts the controller, which starts its hosts, if the nodes have the resources; returns its process id."""
    nodes = nodes_of(ray)
    for node in nodes:
        check_protected(node.address)
    if not chosen.bind:
        check_here(nodes)
    platform = platform_named(chosen.platform) if chosen.platform else platform_of(nodes)
    labels = read_labels(chosen.label, topology.names if topology else ())
    if topology is None:
        topology, labels = topology_of_nodes(nodes, platform, labels)
        read_labels(chosen.label, topology.names)
    check_gangs([gang_of(island, platform, labels) for island in topology.islands], nodes)
    folder: Path = chosen.folder
    write_private(folder / TOPOLOGY, write_topology(topology).encode())
    arguments = [
        "--folder", str(folder), "--topology", str(folder / TOPOLOGY), "--platform", platform.name,
        "--policy", chosen.policy, "--ray", settings["address"], "--labels", json.dumps(labels),
    ]  # fmt: skip
    if chosen.bind:
        arguments += ["--bind", chosen.bind, "--keys", chosen.keys]
    log = folder / LOGS / "controller.log"
    keeper = keeper_on_head(ray, f"pathways {folder}")
    pid = int(ray.get(keeper.start.remote(CONTROLLER_MODULE, arguments, str(log), environment_of_hosts(), True)))
    write_private(folder / PID, str(pid).encode())
    until = time.monotonic() + START_TIMEOUT_S
    while not is_there(str(folder)):
        if not Path(f"/proc/{pid}").exists() or time.monotonic() > until:
            ray.kill(keeper)
            reason = f"its controller did not start: {last_words(log)}"
            raise PathwaysError(NoCluster(address=str(folder), reason=reason))
        time.sleep(0.02)
    _publish(folder, settings)
    return pid


def _end(number: int, frame: FrameType | None) -> None:
    """Exits this process cleanly, together with its private Ray."""
    sys.exit(1)


def _size(topology: Topology | None, nodes: int) -> tuple[int, int]:
    """Returns the number of nodes, and of CPUs per node, that a private Ray needs."""
    if topology is None:
        return nodes or DEFAULT_NODES, DEFAULT_CPUS
    nodes = nodes or max(DEFAULT_NODES, *(island.hosts for island in topology.islands))
    taken = [0] * nodes
    for island in sorted(topology.islands, key=lambda i: i.hosts, reverse=True):
        for node in sorted(range(nodes), key=taken.__getitem__)[: island.hosts]:
            taken[node] += island.devices
    return nodes, max(taken)


def _publish(folder: Path, settings: dict[str, Any]) -> None:
    """Writes the outcome for the process that waits for it."""
    with contextlib.suppress(OSError):  # the folder and the waiting process are gone
        write_private(folder / RAY, json.dumps(settings).encode())


if __name__ == "__main__":
    serve_start()
