"""All that is asked of Ray: to connect, what nodes there are, and an actor here or a gang of them there.

Ray is imported when it is first needed: who has it not, or does not use it, need not wait for it.
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
GONE = 10.0
"""Seconds after which an actor that was killed has left its name."""
REACHED = 10.0
"""Seconds in which Ray's head takes a connection."""
_PASSED_ON = ("PATHWAYS_", "JAX_", "XLA_")
"""Settings that processes on nodes have as this one does."""


def load_ray() -> Any:
    """Imports Ray. Raises PWC0925 where it is not installed."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise PathwaysError(NoRay()) from None
    return ray


def connect_to_ray(address: str) -> Any:
    """Connects this process to a Ray cluster; it is the owner of the actors and groups that it makes.

    Raises PWC0928 where there is none, or one of other versions.
    """
    ray = load_ray()
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), REACHED).close()  # Ray itself tries for minutes
    except (OSError, ValueError) as error:
        raise PathwaysError(RayFailed(address=address, reason=str(error))) from None
    try:
        ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level="ERROR")
    except Exception as error:  # of many classes
        raise PathwaysError(RayFailed(address=address, reason=last_line(error))) from None
    return ray


def last_line(error: Exception) -> str:
    """The last line of an error of Ray, which may be a page."""
    return (str(error).strip().splitlines() or [type(error).__name__])[-1].strip()


def nodes_of(ray: Any) -> list[RayNode]:
    """The nodes that are alive."""
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
    """An actor on the head node, which stays when this process ends. It takes the place of one of its name."""
    options = {"name": name, "lifetime": "detached", "resources": {"node:__internal_head__": 0.001}}
    until = time.monotonic() + GONE
    while True:
        try:
            return _keeper(ray).options(**options).remote()
        except ValueError:  # one of its name is left, or about to end
            if time.monotonic() > until:
                raise
        with contextlib.suppress(ValueError):
            ray.kill(ray.get_actor(name))
        time.sleep(0.1)


def group_of(ray: Any, gang: HostGang, name: str) -> Any:
    """Asks for the places of a gang: all of them or none."""
    from ray.util.placement_group import placement_group

    options: dict[str, Any] = {"strategy": "STRICT_SPREAD", "name": name}
    if gang.labels:
        options["bundle_label_selector"] = [dict(gang.labels)] * gang.hosts
    return placement_group([gang.bundle] * gang.hosts, **options)


def has_places(group: Any) -> bool:
    """Whether a gang has its places; those on a node that was lost are found anew."""
    util: Any = importlib.import_module("ray.util")  # whose types are not whole
    return util.placement_group_table(group)["state"] == "CREATED"


def keepers_in(ray: Any, group: Any, gang: HostGang) -> list[Any]:
    """An actor in each place of a gang."""
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    found: list[Any] = []
    for rank in range(gang.hosts):
        place = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=rank)
        found.append(_keeper(ray).options(scheduling_strategy=place, **_taken(gang)).remote())
    return found


def leave_group(group: Any) -> None:
    """Gives the places of a gang back."""
    from ray.util.placement_group import remove_placement_group

    remove_placement_group(group)


def _taken(gang: HostGang) -> dict[str, Any]:
    """What an actor takes of its place, as Ray wants it said."""
    match gang.resource:
        case "CPU":
            return {"num_cpus": gang.amount}
        case "GPU":
            return {"num_gpus": gang.amount}
        case resource:
            return {"resources": {resource: gang.amount}}


def _keeper(ray: Any) -> Any:
    """The class of actors that keep a process; they find this package where this process does."""
    paths = os.pathsep.join(p for p in sys.path if p)
    return ray.remote(num_cpus=0, max_restarts=0, runtime_env={"env_vars": {"PYTHONPATH": paths}})(ProcessKeeper)


def environment_of_hosts(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The settings of this process that those on nodes have, too."""
    return {name: value for name, value in environment.items() if name.startswith(_PASSED_ON)}


def start_member_in(
    keeper: Any, module: str, arguments: Sequence[str], keys: Path, environment: Mapping[str, str]
) -> Any:
    """As `start_in`, of a host that comes to its controller under TLS, with the keys of a folder of this machine."""
    files = {path.name: path.read_bytes() for path in member_files(keys)}
    return keeper.start_member.remote(module, list(arguments), files, dict(environment))


def start_in(keeper: Any, module: str, arguments: Sequence[str], log: Path, environment: Mapping[str, str]) -> Any:
    """Has an actor start its process; gives the future of its number."""
    return keeper.start.remote(module, list(arguments), str(log), dict(environment), False)
