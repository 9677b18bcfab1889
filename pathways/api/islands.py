"""Implements `pw.islands`, `pw.add_island` and `pw.remove_island`. They list the islands of a running cluster, start
one more, or end one, while programs run there.
"""

from dataclasses import replace

from pathways.api.process import host_topology, process
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.platforms import platform_named
from pathways.dialect.topology import Island, Topology, parse_topology
from pathways.dialect.user_line import caller
from pathways.runtime.client.remote.hosts import HostedIslands
from pathways.runtime.wire.errors import WrongIslands


def islands() -> tuple[Island, ...]:
    """Returns the islands on which programs can be placed now, in the order in which they were added.

    Inside `pw.cluster` and `pw.connect` these are the islands of the cluster. Removed islands are not included, nor
    islands that are no longer restarted because their processes exit repeatedly. An island that is restarting is
    included. Elsewhere these are the islands of this process: of its devices or, on CPU, those on which programs were
    placed.

        slices = [devices.add_slice(devices=i.size, island=i.name) for i in pw.islands()]
    """
    current = process()
    machine, lost = current.machine, current.lost_islands()
    if isinstance(machine, HostedIslands):
        found = machine.topology.islands
    elif platform_named(machine.platform).made_at_will is None:
        found = host_topology().islands
    else:
        found = tuple(Island(i.key, len(i.devices), kind=machine.platform) for i in machine.islands)
    return tuple(island for island in found if island.name not in lost)


def add_island(island: Island | str | None = None) -> Island:
    """Adds an island to the cluster, and returns it after its processes have started and connected to the others.

    `island` is a `pw.Island`, or a spec without a name (`devices=4,memory=1GiB`). By default it is like the last island
    of the cluster. An island without a name gets the next unused one of `island0`, `island1`, ... Programs compiled
    from now on may be placed there; programs placed before do not move. Every client of a shared cluster sees the
    island.

    Raises PWC0910 if its processes do not start, PWC0912 if the island cannot be added. Raises PWC0923 if the name is
    taken or if there is no cluster.

        with pw.cluster(islands=2, devices=4):
            third = pw.add_island()
    """
    machine = _cluster("added")
    wanted = machine.topology.islands[-1] if island is None else island
    named = isinstance(island, Island) or (island is not None and "name=" in island)
    if isinstance(wanted, str):
        wanted = _only(parse_topology(wanted))
    if named:
        machine.add(wanted)
        return wanted
    while True:
        wanted = replace(wanted, name=machine.new_name())
        try:
            machine.add(wanted)
            return wanted
        except PathwaysError as error:
            if error.code != WrongIslands.code:  # another client has taken the name meanwhile
                raise


def remove_island(island: Island | str, *, now: bool = False) -> None:
    """Removes an island, by its name, from the cluster, and ends its processes.

    From this call on, nothing is placed on the island. Programs placed there are placed again at their next call, if
    their slices fit on the remaining islands (otherwise PWC0513). Earlier runs complete first; with `now=True` they
    fail. After that, arrays on the island raise PWC0922; those on other islands stay. To keep arrays, copy them first:
    with `np.asarray`, with `pw.save`, or by a program that returns them elsewhere.

    Raises PWC0923 for an unknown island, for the last one, and if there is no cluster.

        with pw.cluster(islands=3, devices=4):
            pw.remove_island("island2")
    """
    name = island if isinstance(island, str) else island.name
    machine = _cluster("removed")
    machine.remove(name, now=now)


def _cluster(what: str) -> HostedIslands:
    machine = process().machine
    if isinstance(machine, HostedIslands):
        return machine
    have, rule = "islands of this process", "a `with` block of pw.cluster or pw.connect around the call"
    problem = f"islands can only be {what} in a cluster"
    raise PathwaysError(WrongIslands(problem=problem, have_=have, rule=rule, where=caller()))


def _only(topology: Topology) -> Island:
    """Returns the only island of a topology. Raises PWC0923 if there are several."""
    if len(topology.islands) != 1:
        have, rule = f"{len(topology.islands)} islands", "one island"
        raise PathwaysError(WrongIslands(problem="add one at a time", have_=have, rule=rule, where=caller()))
    return topology.islands[0]
