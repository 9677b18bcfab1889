"""Starts and stops a cluster whose controller and hosts Ray starts, as actors on its nodes. `pwc cluster start --ray`
and `pwc cluster stop` call it. It does not import Ray itself: another process does.

That process is `ray_start.py`.
"""

import contextlib
import importlib.util
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pathways.dialect.diagnostic_json import read_diagnostic
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.errors import BadSetting
from pathways.dialect.topology import Topology
from pathways.runtime.launch.local_cluster import RAY, MemberPort, clear_folder, make_folder
from pathways.runtime.launch.local_hosts import LOGS
from pathways.runtime.launch.ray_nodes import AUTH, LOCAL, check_protected
from pathways.runtime.launch.ray_trial import TOKEN
from pathways.runtime.launch.spawn import await_end, last_words, spawn
from pathways.runtime.threads import start_thread
from pathways.runtime.wire.errors import NoRay, RayFailed

START_TIMEOUT_S = 180.0
"""Time limit for the start of a private Ray and a controller."""
EXIT_TIMEOUT_S = 30.0
"""Time limit for the exit of a private Ray."""


@dataclass(frozen=True)
class RayRequest:
    """The options of a cluster on Ray. `address`: `HOST:PORT`, or `local[:NODES]` for a private Ray."""

    address: str
    platform: str | None = None
    labels: Sequence[str] = ()
    port: MemberPort | None = None
    """The port for hosts and clients on other machines, under TLS. Without it all nodes must be on this machine."""

    @property
    def nodes(self) -> int | None:
        """Returns the nodes of a private Ray, 0 for as many as needed; None for an existing Ray. Raises PWC0707."""
        name, colon, count = self.address.partition(":")
        if name != LOCAL:
            return None
        if colon and not (count.isdecimal() and 0 < int(count) <= 64):
            rule = "local, local:NODES with 1 to 64, or HOST:PORT"
            raise PathwaysError(BadSetting(source="--ray", value=self.address, rule=rule, example="--ray local:2"))
        return int(count or 0)


def start_controller_by_ray(address: str, request: RayRequest, topology: Topology | None, policy: str) -> Path:
    """Makes Ray start the controller of a cluster, which starts hosts through Ray; returns the cluster's folder.

    Without a topology, the nodes determine the islands. Raises PWC0912 for nodes on other machines, PWC0918 and PWC0919
    as `start_controller` does, and PWC0925 to PWC0928.
    """
    nodes = request.nodes
    if importlib.util.find_spec("ray") is None:
        raise PathwaysError(NoRay())
    if nodes is None:
        check_protected(request.address)
    if request.port is not None and topology is not None:
        request.port.check(topology)
    folder = make_folder(address, topology)
    arguments = ["--folder", str(folder), "--policy", policy]
    arguments += ["--ray", request.address] if nodes is None else ["--nodes", str(nodes)]
    arguments += ["--platform", request.platform] if request.platform else []
    if request.port is not None:
        arguments += request.port.arguments
    for label in request.labels:
        arguments += ["--label", label]
    log = folder / LOGS / "ray.log"
    process = spawn("pathways.runtime.launch.ray_start", arguments, log)
    until = time.monotonic() + START_TIMEOUT_S
    try:
        while not (settings := ray_of(folder)):
            if process.poll() is not None or time.monotonic() > until:
                settings = ray_of(folder)  # written just before its exit
                break
            time.sleep(0.02)
        if "error" in settings:
            raise PathwaysError(read_diagnostic(settings["error"]))
        if not settings:
            raise PathwaysError(RayFailed(address=request.address, reason=last_words(log) or "the start timed out"))
    except BaseException:
        process.terminate()
        process.wait()
        clear_folder(folder)
        raise
    start_thread("pathways-reaper", process.wait)
    return folder


def ray_of(folder: Path) -> dict[str, Any]:
    """Returns the record of the Ray that started a cluster; empty if there is none, or none yet."""
    with contextlib.suppress(OSError, ValueError):
        return json.loads((folder / RAY).read_bytes())
    return {}


def ray_settings(settings: dict[str, Any]) -> str:
    """Returns the environment variables to reach a private Ray; empty for an existing Ray."""
    return f"{AUTH}=token {TOKEN}={settings['token']}" if "token" in settings else ""


def await_end_of_ray(settings: dict[str, Any]) -> None:
    """Waits for the exit of a private Ray after its cluster is stopped."""
    if keeper := settings.get("keeper"):
        with contextlib.suppress(OSError):  # it has exited
            await_end(keeper, EXIT_TIMEOUT_S)
