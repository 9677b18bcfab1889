"""Runs the controller process of a cluster: `python -m pathways.runtime.control.serve`, for `pwc cluster start`."""

import argparse
import contextlib
import faulthandler
import json
import signal
import socket
import sys
from pathlib import Path
from types import FrameType

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.ranks import ranks_in
from pathways.dialect.topology import Topology, load_topology
from pathways.runtime.control.cluster_controller import ClusterController
from pathways.runtime.control.scheduling.find_policy import find_scheduling_policy
from pathways.runtime.launch.joining import JoiningLauncher
from pathways.runtime.launch.launcher import HostLauncher
from pathways.runtime.launch.local_cluster import clear_folder
from pathways.runtime.launch.local_hosts import CONTROLLER, LOGS, LocalLauncher
from pathways.runtime.launch.ray_api import connect_to_ray
from pathways.runtime.launch.ray_hosts import RayLauncher
from pathways.runtime.wire.addresses import BACKLOG, LOOPBACK, Address, listening_at, read_address, show_address
from pathways.runtime.wire.certificates import member_folder
from pathways.runtime.wire.loop import Loop
from pathways.runtime.wire.tls import Keys, checked_keys
from pathways.runtime.wire.tls_ports import LoopListener


def serve_cluster() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="private folder for sockets and logs")
    parser.add_argument("--topology", type=Path, required=True)
    parser.add_argument("--platform", required=True)
    parser.add_argument("--policy", required=True, help="a built-in policy, FILE.py:CLASS or an entry point")
    parser.add_argument("--bind", metavar="HOST:PORT", type=read_address, help="address for members on other machines")
    parser.add_argument("--keys", type=Path, help="the folder of the cluster's keys")
    parser.add_argument("--join", action="store_true", help="starts no hosts: they connect by themselves")
    parser.add_argument("--ray", metavar="ADDRESS", help="the Ray that starts hosts; default: this process")
    parser.add_argument("--labels", type=json.loads, default={}, help="JSON: the labels of nodes for each island")
    chosen = parser.parse_args()
    faulthandler.register(signal.SIGUSR1, sys.__stderr__ or True)
    folder: Path = chosen.folder
    loop = Loop()
    try:
        topology = load_topology(chosen.topology)
        with socket.socket(socket.AF_UNIX) as listener, contextlib.ExitStack() as stack:
            port = _port(chosen)  # first: invalid keys are detected before anything is started
            at = show_address(port[0].getsockname()) if port is not None else ""
            launcher = _launcher(chosen, topology, at, stack)
            listener.bind(str(folder / CONTROLLER))
            listener.listen(BACKLOG)
            policy = find_scheduling_policy(chosen.policy)
            controller = ClusterController(loop, topology, chosen.platform, policy, launcher, str(folder))

            def stop(number: int, frame: FrameType | None) -> None:
                loop.on_thread(controller.close)

            for number in (signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, stop)
            loop.listen(listener, controller.accept)
            if port is not None:
                sock, keys = stack.enter_context(port[0]), port[1]
                controller.bind = show_address(sock.getsockname())
                LoopListener(loop, sock, keys, ("host", "client"), controller.accept_member)
            loop.run()
    except (PathwaysError, OSError) as error:
        sys.exit(str(error))  # keep the folder: the starting process reads the log there
    clear_folder(folder)


def _port(chosen: argparse.Namespace) -> tuple[socket.socket, Keys] | None:
    """Returns the socket for members on other machines, and its keys; None if not wanted. Raises OSError, PWC0914."""
    if chosen.bind is None:
        return None
    keys = checked_keys(member_folder(chosen.keys, "controller"), "controller")
    sock = listening_at(chosen.bind)
    sock.listen(BACKLOG)
    return sock, keys


def _launcher(chosen: argparse.Namespace, topology: Topology, at: str, stack: contextlib.ExitStack) -> HostLauncher:
    """Returns the launcher of the hosts. Hosts of other machines connect to `at`. The stack receives its cleanup."""
    folder, platform, ranks = chosen.folder, chosen.platform, ranks_in(topology)
    bind: Address = chosen.bind or (LOOPBACK, 0)
    if chosen.join:
        return JoiningLauncher(folder / LOGS, bind[0])
    if not chosen.ray:
        return LocalLauncher(folder, platform, ranks, bind[0], chosen.keys)
    keys = (at, chosen.keys) if at else None
    launcher = RayLauncher(connect_to_ray(chosen.ray), folder, platform, ranks, chosen.labels, keys)
    stack.callback(launcher.close)
    return launcher


if __name__ == "__main__":
    serve_cluster()
