"""Decides which Ray resources and node labels the hosts of each island need, and checks that the Ray cluster has them.
The other `ray_*` modules call it. It must not import Ray.

A host requests one Ray resource (`Platform.ray_resource`) per device, on a node with the labels that its island
requires. Each host of an island is on its own node.
"""

import os
import socket
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.errors import BadSetting
from pathways.dialect.platforms import PLATFORMS, Platform
from pathways.dialect.topology import Island, Topology
from pathways.runtime.wire.errors import NotOverProcesses, RayLacks, RayWithoutToken

SLICE = "ray.io/tpu-slice-name"
"""The label that Ray gives all hosts of one slice, which form one island."""
LOCAL = "local"
AUTH = "RAY_AUTH_MODE"
_LISTENS = "0A"
"""The state of a listening socket in /proc/net/tcp. Its address is zeros if it listens on all interfaces."""


@dataclass(frozen=True)
class RayNode:
    """A Ray node that is alive."""

    resources: Mapping[str, float]
    """Its resources, free or in use."""
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    address: str = "127.0.0.1"
    machine: str = ""
    """The hostname of its machine."""
    socket: str = ""
    """The path of its raylet's Unix socket."""


@dataclass(frozen=True)
class HostGang:
    """The request of an island's hosts: `hosts` identical bundles, each on its own node."""

    island: str
    hosts: int
    resource: str
    amount: int
    labels: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def bundle(self) -> dict[str, float]:
        return {self.resource: float(self.amount)}

    def __str__(self) -> str:
        nodes = "a node" if self.hosts == 1 else f"{self.hosts} nodes"
        labels = "".join(f", {key}={value}" for key, value in self.labels.items())
        return f"{nodes} with {self.amount} {self.resource} free{' each' if self.hosts > 1 else ''}{labels}"

    def fits(self, node: RayNode) -> bool:
        """Whether an empty node could run one of these hosts."""
        is_wanted = all(node.labels.get(key) == value for key, value in self.labels.items())
        return is_wanted and node.resources.get(self.resource, 0.0) >= self.amount


Labels = Mapping[str, Mapping[str, str]]
"""Required node labels, by island; those of "" apply to all islands."""


def read_labels(texts: Iterable[str], names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Parses `--label` values: `KEY=VALUE`, or `ISLAND:KEY=VALUE`. Raises PWC0707.

    `names`: the islands; empty if they are not known yet.
    """
    found: dict[str, dict[str, str]] = {}
    for text in texts:
        key, _, value = text.partition("=")
        island, _, key = key.rpartition(":")
        if not key or not value or (island and island not in (names or (island,))):
            rule = f"KEY=VALUE, or ISLAND:KEY=VALUE with one of {', '.join(names)}"
            raise PathwaysError(BadSetting(source="--label", value=text, rule=rule, example="--label island0:rack=a7"))
        found.setdefault(island, {})[key] = value
    return found


def gang_of(island: Island, platform: Platform, labels: Labels) -> HostGang:
    """Returns the gang that an island's hosts request."""
    wanted = {**labels.get("", {}), **labels.get(island.name, {})}
    return HostGang(island.name, island.hosts, platform.ray_resource, island.devices, wanted)


def platform_of(nodes: Sequence[RayNode]) -> Platform:
    """Returns the platform of the nodes' devices: any resource other than CPUs that a node has, otherwise CPUs."""
    rows = reversed(PLATFORMS.values())
    return next(row for row in rows if row.made_at_will or any(n.resources.get(row.ray_resource, 0) for n in nodes))


def topology_of_nodes(
    nodes: Sequence[RayNode], platform: Platform, labels: Labels
) -> tuple[Topology, dict[str, dict[str, str]]]:
    """Returns the islands that nodes form, one per slice, else per node, and their labels. Raises PWC0927."""
    resource, wanted = platform.ray_resource, labels.get("", {})
    at_least = HostGang("", 1, resource, 1, wanted)
    having = [node for node in nodes if at_least.fits(node)]
    slices = Counter(node.labels[SLICE] for node in having if SLICE in node.labels)
    islands: list[Island] = []
    found: dict[str, dict[str, str]] = {key: dict(value) for key, value in labels.items()}
    for name, hosts in sorted(slices.items()):
        least = min(int(n.resources[resource]) for n in having if n.labels.get(SLICE) == name)
        islands.append(Island(f"island{len(islands)}", devices=least, hosts=hosts))
        found.setdefault(islands[-1].name, {})[SLICE] = name
    sizes = sorted((int(n.resources[resource]) for n in having if SLICE not in n.labels), reverse=True)
    islands += [Island(f"island{len(islands) + number}", devices=size) for number, size in enumerate(sizes)]
    if not islands:
        raise PathwaysError(RayLacks(have_=_describe_nodes(nodes, resource), needs=str(at_least)))
    return Topology(tuple(islands)), found


def check_gangs(gangs: Sequence[HostGang], nodes: Sequence[RayNode]) -> None:
    """Raises PWC0927, with the missing resources, if even empty nodes could not run these islands.

    It does not detect islands that fit in total but not in their arrangement: those wait.
    """
    for gang in gangs:
        fitting = [node for node in nodes if gang.fits(node)]
        if len(fitting) < gang.hosts:
            have = f"{len(fitting)} such nodes of {_describe_nodes(nodes, gang.resource)}"
            raise PathwaysError(RayLacks(have_=have, needs=f"{gang}, for {gang.island}"))
    needed: Counter[str] = Counter()
    for gang in gangs:
        needed[gang.resource] += gang.hosts * gang.amount
    for resource, amount in needed.items():
        at_all = [node for node in nodes if any(g.resource == resource and g.fits(node) for g in gangs)]
        if sum(node.resources.get(resource, 0.0) for node in at_all) < amount:
            needs = f"{amount} {resource} for {len(gangs)} islands in total"
            raise PathwaysError(RayLacks(have_=_describe_nodes(at_all, resource), needs=needs))


def _describe_nodes(nodes: Sequence[RayNode], resource: str) -> str:
    counts = Counter(int(node.resources.get(resource, 0)) for node in nodes)
    described = ", ".join(f"{n} with {size} {resource}" for size, n in sorted(counts.items(), reverse=True))
    return f"{len(nodes)} nodes: {described}" if nodes else "no nodes"


def is_loopback(address: str) -> bool:
    """Whether an address, with or without a port, is reachable only from this machine."""
    host = address.rpartition(":")[0] if address.count(":") == 1 or address.startswith("[") else address
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def is_open(address: str) -> bool:
    """Whether a process listens on all interfaces on the port of a loopback address (Linux).

    Ray does, for any given address, unless it is configured otherwise (ray_trial.py).
    """
    port = address.rpartition(":")[2]
    found: list[str] = []
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        rows = [line.split() for line in table.read_text().splitlines()[1:]] if table.exists() else []
        found += [row[1] for row in rows if row[3] == _LISTENS]
    ends = [local.partition(":") for local in found]
    return any(at and int(at, 16) == int(port) and not int(host, 16) for host, _, at in ends if port.isdecimal())


def check_protected(address: str) -> None:
    """Raises PWC0926 for a Ray that other machines can reach and command without a token."""
    mode = os.environ.get(AUTH, "")
    if mode != "token" and (not is_loopback(address) or is_open(address)):
        raise PathwaysError(RayWithoutToken(address=address, mode=mode or "disabled"))


def check_here(nodes: Sequence[RayNode]) -> None:
    """Raises PWC0912 for nodes on other machines, since traffic between machines is not protected without TLS."""
    far = sorted({n.address for n in nodes if n.machine != socket.gethostname() or not os.path.exists(n.socket)})
    if far:
        rule = "nodes on this machine only, or --bind and --keys: hosts then connect with TLS"
        what = "a cluster over several machines"
        raise PathwaysError(NotOverProcesses(what=what, have_=f"nodes at {', '.join(far)}", rule=rule))
