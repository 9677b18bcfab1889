"""Wraps all calls of Ray: connecting, listing nodes, creating placement groups and actors. All other modules use Ray
through it. The other `ray_*` modules and the controller process use it.

Ray is imported on first use: the import is slow, and programs that do not use Ray need not have it installed.
"""

import contextlib
import importlib
import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pathways.dialect.diagnostics import PathwaysError
from pathways.runtime.launch.ray_nodes import HostGang, RayNode
from pathways.runtime.launch.ray_process import ProcessKeeper
from pathways.runtime.wire.certificates import member_files
from pathways.runtime.wire.errors import NoRay, RayFailed

NAMESPACE = "pathways"
NAME_RELEASE_TIMEOUT_S = 10.0
"""Time limit for a killed actor to release its name."""
CONNECT_TIMEOUT_S = 10.0
"""Time limit to connect to Ray's head."""
_PASSED_ON = ("PATHWAYS_", "JAX_", "XLA_")
"""Prefixes of environment variables that are copied to processes on nodes."""


def load_ray() -> Any:
    """Imports Ray. Raises PWC0925 if it is not installed."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise PathwaysError(NoRay()) from None
    return ray


def connect_to_ray(address: str) -> Any:
    """Connects this process to a Ray cluster. The process owns the actors and groups that it creates.

    Raises PWC0928 if there is no Ray, or one of another version.
    """
    ray = load_ray()
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT_S).close()  # Ray retries for minutes
    except (OSError, ValueError) as error:
        raise PathwaysError(RayFailed(address=address, reason=str(error))) from None
    try:
        ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level="ERROR")
    except Exception as error:  # Ray raises many classes
        raise PathwaysError(RayFailed(address=address, reason=last_line(error))) from None
    return ray


def last_line(error: Exception) -> str:
    """Returns the last line of a Ray error, which may be a page long."""
    return (str(error).strip().splitlines() or [type(error).__name__])[-1].strip()


def nodes_of(ray: Any) -> list[RayNode]:
    """Returns the nodes that are alive."""
    return [
        RayNode(
            resources=dict(node["Resources"]),
            labels=dict(node.get("Labels") or {}),
            address=str(node["NodeManagerAddress"]),
            machine=str(node["NodeManagerHostname"]),
            socket=str(node["RayletSocketName"]),
        )
        for node in ray.nodes()
        if node["Alive"]
    ]


def keeper_on_head(ray: Any, name: str) -> Any:
    """Creates an actor on the head node that outlives this process. It replaces an actor of the same name."""
    options = {"name": name, "lifetime": "detached", "resources": {"node:__internal_head__": 0.001}}
    until = time.monotonic() + NAME_RELEASE_TIMEOUT_S
    while True:
        try:
            return _keeper(ray).options(**options).remote()
        except ValueError:  # an actor of this name exists or is terminating
            if time.monotonic() > until:
                raise
        with contextlib.suppress(ValueError):
            ray.kill(ray.get_actor(name))
        time.sleep(0.1)


def group_of(ray: Any, gang: HostGang, name: str) -> Any:
    """Requests the placement group of a gang: all of its bundles or none."""
    from ray.util.placement_group import placement_group

    options: dict[str, Any] = {"strategy": "STRICT_SPREAD", "name": name}
    if gang.labels:
        options["bundle_label_selector"] = [dict(gang.labels)] * gang.hosts
    return placement_group([gang.bundle] * gang.hosts, **options)


def has_places(group: Any) -> bool:
    """Whether a gang's placement group is ready. Ray replaces bundles on lost nodes."""
    util: Any = importlib.import_module("ray.util")  # its types are incomplete
    return util.placement_group_table(group)["state"] == "CREATED"


def keepers_in(ray: Any, group: Any, gang: HostGang) -> list[Any]:
    """Creates an actor in each bundle of a gang."""
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    found: list[Any] = []
    for rank in range(gang.hosts):
        place = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=rank)
        found.append(_keeper(ray).options(scheduling_strategy=place, **_taken(gang)).remote())
    return found


def leave_group(group: Any) -> None:
    """Removes the placement group of a gang."""
    from ray.util.placement_group import remove_placement_group

    remove_placement_group(group)


def _taken(gang: HostGang) -> dict[str, Any]:
    """Returns the resource options of a gang's actor in Ray's format."""
    match gang.resource:
        case "CPU":
            return {"num_cpus": gang.amount}
        case "GPU":
            return {"num_gpus": gang.amount}
        case resource:
            return {"resources": {resource: gang.amount}}


def _keeper(ray: Any) -> Any:
    """Returns the actor class that keeps a process. Actors find this package in the same folders as this process."""
    paths = os.pathsep.join(p for p in sys.path if p)
    return ray.remote(num_cpus=0, max_restarts=0, runtime_env={"env_vars": {"PYTHONPATH": paths}})(ProcessKeeper)


def environment_of_hosts(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns the environment variables that processes on nodes inherit from this process."""
    return {name: value for name, value in environment.items() if name.startswith(_PASSED_ON)}


def start_member_in(
    keeper: Any, module: str, arguments: Sequence[str], keys: Path, environment: Mapping[str, str]
) -> Any:
    """Makes an actor start a host that connects under TLS, like `start_in`, with keys from a local folder."""
    files = {path.name: path.read_bytes() for path in member_files(keys)}
    return keeper.start_member.remote(module, list(arguments), files, dict(environment))


def start_in(keeper: Any, module: str, arguments: Sequence[str], log: Path, environment: Mapping[str, str]) -> Any:
    """Makes an actor start its process; returns the future of the process id."""
    return keeper.start.remote(module, list(arguments), str(log), dict(environment), False)
