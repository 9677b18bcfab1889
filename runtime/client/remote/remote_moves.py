"""Moves arrays from host to host in a cluster, if one program passes a result to a program on other devices. The values
do not pass through the client. `client/engine.py`, suspended clients and snapshots call it.

A move is a plan without computations (dialect/plan/move.py): the source host offers the pieces, and the target host
pulls and joins them.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from pathways.dialect.dtypes import ArrayType
from pathways.dialect.plan.move import ArrayPlace, move_plan
from pathways.dialect.topology import Island, Topology
from pathways.runtime.client.remote.hosts import Hosts
from pathways.runtime.client.remote.remote_engine import RemoteEngine
from pathways.runtime.host.devices.islands import Machine, PhysicalIsland
from pathways.runtime.host.devices.layouts import Side, put_on_side
from pathways.runtime.host.run.frame import Frame


def remote_mover(hosts: Hosts, type_: ArrayType, source: Side, side: Side) -> Callable[[Any], Any]:
    """Prepares to move arrays from `source` to `side`. Raises PWC0910 if a host is not connected."""
    engine = move_engine(hosts, type_, source, side)
    given, made = (engine.offsets[p.island] + p.slot for p in (*engine.plan.inputs, *engine.plan.results))

    def move(array: Any) -> Any:
        frame = Frame(engine.size, ())
        frame.values[given] = array
        engine.start(frame, hosts.next_move())
        return frame.values[made]

    return move


def put_values(
    machine: Machine, values: "np.ndarray[Any, Any]", type_: ArrayType, side: Side, *, keeps: bool = False
) -> Any:
    """Copies values of this process to a side on any machine. If `keeps`, the caller does not use it again.

    Raises PWC0910 if the side's host is not connected.
    """
    if isinstance(machine, Hosts):
        engine = move_engine(machine, type_, side, side)
        return engine.put_now(0, values, type_)  # waits: the engine unloads its plan when it is deleted
    return put_on_side(values, type_, side, keeps=keeps)


def move_engine(hosts: Hosts, type_: ArrayType, source: Side, side: Side) -> RemoteEngine:
    """Returns the plan of a move, loaded on the hosts of both ends. Raises PWC0910 if a host is not connected."""
    islands: dict[str, PhysicalIsland] = {}
    places: list[ArrayPlace] = []
    for end in (source, side):
        island = hosts.island_of(end.devices[0])
        assert island is not None
        islands[island.name] = island
        positions = tuple(island.devices.index(d) for d in end.devices)
        places.append(ArrayPlace(island.name, positions, end.local.mesh.axes, end.local.dims))
    topology = Topology(tuple(Island(i.name, devices=len(i.devices)) for i in islands.values()))
    plan = move_plan(hosts.platform, topology, type_, *places)
    return RemoteEngine(plan, hosts, islands, plan.name, sequential=False)
