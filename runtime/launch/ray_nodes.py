"""Which islands the nodes of a Ray cluster can have, and which they make. Pure: nothing of Ray is imported.

A host asks for one of Ray's resources for each of its devices (`Platform.ray_resource`), on a node that has the labels
that its island wants; the hosts of an island are on nodes of their own.
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
"""The label that Ray gives all hosts of one slice: they are one island."""
LOCAL = "local"
AUTH = "RAY_AUTH_MODE"
_LISTENS = "0A"
"""The state of a socket that listens, in /proc/net/tcp; its address is zeros where it is for all."""


@dataclass(frozen=True)
class RayNode:
    """A node that is alive."""

    resources: Mapping[str, float]
    """All that it has, free or not."""
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    address: str = "127.0.0.1"
    machine: str = ""
    """What its machine calls itself."""
    socket: str = ""
    """The path of its raylet's Unix socket."""


@dataclass(frozen=True)
class HostGang:
    """What the hosts of an island ask for: so many times the same, each on a node of its own."""

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
        """Whether a node, with nothing else on it, can have one of these hosts."""
        is_wanted = all(node.labels.get(key) == value for key, value in self.labels.items())
        return is_wanted and node.resources.get(self.resource, 0.0) >= self.amount


Labels = Mapping[str, Mapping[str, str]]
"""The labels that islands want of their nodes, by island; those of "" are for all."""


def read_labels(texts: Iterable[str], names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Reads labels as `--label` takes them: `KEY=VALUE`, or `ISLAND:KEY=VALUE`. Raises PWC0707.

    `names`: the islands; none where they are not known yet.
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
    """What the hosts of an island ask for."""
    wanted = {**labels.get("", {}), **labels.get(island.name, {})}
    return HostGang(island.name, island.hosts, platform.ray_resource, island.devices, wanted)


def platform_of(nodes: Sequence[RayNode]) -> Platform:
    """The platform of the devices that nodes have: what any of them has beside CPUs, else those."""
    rows = reversed(PLATFORMS.values())
    return next(row for row in rows if row.made_at_will or any(n.resources.get(row.ray_resource, 0) for n in nodes))


def topology_of_nodes(
    nodes: Sequence[RayNode], platform: Platform, labels: Labels
) -> tuple[Topology, dict[str, dict[str, str]]]:
    """The islands that nodes make, and the labels that these want: one a slice, or else one a node. Raises PWC0927."""
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
        raise PathwaysError(RayLacks(have_=_said(nodes, resource), needs=str(at_least)))
    return Topology(tuple(islands)), found


def check_gangs(gangs: Sequence[HostGang], nodes: Sequence[RayNode]) -> None:
    """Raises PWC0927 where the nodes could not have these islands, were they empty, with what is missing.

    Islands that are too many only because of how they lie are not seen: they wait.
    """
    for gang in gangs:
        fitting = [node for node in nodes if gang.fits(node)]
        if len(fitting) < gang.hosts:
            have = f"{len(fitting)} such nodes of {_said(nodes, gang.resource)}"
            raise PathwaysError(RayLacks(have_=have, needs=f"for {gang.island} {gang}"))
    needed: Counter[str] = Counter()
    for gang in gangs:
        needed[gang.resource] += gang.hosts * gang.amount
    for resource, amount in needed.items():
        at_all = [node for node in nodes if any(g.resource == resource and g.fits(node) for g in gangs)]
        if sum(node.resources.get(resource, 0.0) for node in at_all) < amount:
            needs = f"{amount} {resource} for {len(gangs)} islands together"
            raise PathwaysError(RayLacks(have_=_said(at_all, resource), needs=needs))


def _said(nodes: Sequence[RayNode], resource: str) -> str:
    counts = Counter(int(node.resources.get(resource, 0)) for node in nodes)
    said = ", ".join(f"{n} with {size} {resource}" for size, n in sorted(counts.items(), reverse=True))
    return f"{len(nodes)} nodes: {said}" if nodes else "no nodes"


def is_loopback(address: str) -> bool:
    """Whether an address, with its port or without, is of this machine alone."""
    host = address.rpartition(":")[0] if address.count(":") == 1 or address.startswith("[") else address
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def is_open(address: str) -> bool:
    """Whether a process of this machine listens for others, too, on the port of a loopback address (Linux).

    Ray does, whatever address it is told, unless it is told not to (ray_trial.py).
    """
    port = address.rpartition(":")[2]
    found: list[str] = []
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        rows = [line.split() for line in table.read_text().splitlines()[1:]] if table.exists() else []
        found += [row[1] for row in rows if row[3] == _LISTENS]
    ends = [local.partition(":") for local in found]
    return any(at and int(at, 16) == int(port) and not int(host, 16) for host, _, at in ends if port.isdecimal())


def check_protected(address: str) -> None:
    """Raises PWC0926 for a Ray that others reach, and may command, without a token."""
    mode = os.environ.get(AUTH, "")
    if mode != "token" and (not is_loopback(address) or is_open(address)):
        raise PathwaysError(RayWithoutToken(address=address, mode=mode or "disabled"))


def check_here(nodes: Sequence[RayNode]) -> None:
    """Raises PWC0912 for nodes of other machines: what goes between machines is not protected yet."""
    far = sorted({n.address for n in nodes if n.machine != socket.gethostname() or not os.path.exists(n.socket)})
    if far:
        rule = "nodes of this machine alone, or --bind and --keys, by which hosts come under TLS"
        what = "a cluster over several machines"
        raise PathwaysError(NotOverProcesses(what=what, have_=f"nodes at {', '.join(far)}", rule=rule))
