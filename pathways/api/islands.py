"""`pw.islands`, `pw.add_island`, `pw.remove_island`: the islands of a cluster come and go while programs run there."""

from dataclasses import replace

from pathways.api.process import host_topology, process
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.platforms import platform_named
from pathways.dialect.topology import Island, Topology, parse_topology
from pathways.dialect.user_line import caller
from pathways.runtime.client.remote.hosts import HostedIslands
from pathways.runtime.wire.errors import WrongIslands


def islands() -> tuple[Island, ...]:
    """Returns the islands where programs can be placed now, in the order in which they came.

    Inside of `pw.cluster` and `pw.connect` these are those of the cluster: not those that were removed, nor those whose
    processes are not started any more because they end again and again; one that is being started anew is there.
    Elsewhere they are the islands of this process: of its devices, or, on CPU, those that programs were placed on.

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
    """Starts one more island of the cluster, and returns it when its processes are there and joined with the others.

    `island` is a `pw.Island`, or a spec without a name (`devices=4,memory=1GiB`); without one it is as the last one of
    the cluster. The name, where none is given, is the next of `island0`, `island1`, ... that was never there. Programs
    that are compiled from now on may be placed there; those that are placed elsewhere stay where they are. Every client
    of a cluster that is shared finds it there.

    Raises PWC0910 where its processes do not start, PWC0912 for what cannot be added, PWC0923 for a name that is taken
    and where there is no cluster.

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
    """Takes an island, by its name, out of the cluster, and ends its processes.

    Nothing is placed there from the moment of the call; programs that were placed there are placed anew when they are
    next called, where their slices fit on what is left (PWC0513 where they do not). Runs that were called before end
    first, unless `now=True`: those fail. Then the arrays that lie there raise PWC0922; those of other islands stay.
    Who wants them takes them out first: with `np.asarray`, with `pw.save`, or by a program that returns them elsewhere.

    Raises PWC0923 for an island that is not there, for the last one, and where there is no cluster.

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
    have, rule = "islands of this process", "a block of `pw.cluster` or `pw.connect` around it"
    problem = f"they are {what} where there is a cluster"
    raise PathwaysError(WrongIslands(problem=problem, have_=have, rule=rule, where=caller()))


def _only(topology: Topology) -> Island:
    """The island of a topology that has one. Raises PWC0923."""
    if len(topology.islands) != 1:
        have, rule = f"{len(topology.islands)} islands", "one island"
        raise PathwaysError(WrongIslands(problem="one is added at a time", have_=have, rule=rule, where=caller()))
    return topology.islands[0]
