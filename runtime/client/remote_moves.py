"""Arrays of hosts in other processes, moved from where one program has made them to where another wants them.

A move is a plan of its own without a computation (dialect/plan/move.py): the host that has the array offers its pieces,
the one that wants them pulls and joins them, and none passes through this process.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from pathways.dialect.dtypes import ArrayType
from pathways.dialect.plan.move import ArrayPlace, move_plan
from pathways.dialect.topology import Island, Topology
from pathways.runtime.client.hosts import Hosts
from pathways.runtime.client.remote_engine import RemoteEngine
from pathways.runtime.host.devices.islands import PhysicalIsland
from pathways.runtime.host.devices.layouts import Side
from pathways.runtime.host.devices.remote_array import RemoteArray
from pathways.runtime.host.run.frame import Frame


def remote_mover(hosts: Hosts, type_: ArrayType, source: Side, side: Side) -> Callable[[Any], Any]:
    """Prepares to move arrays that lie at `source` to `side`. Raises PWC0910 where a host is not there."""
    engine = _engine(hosts, type_, source, side)
    given, made = (engine.offsets[p.island] + p.slot for p in (*engine.plan.inputs, *engine.plan.results))

    def move(array: Any) -> Any:
        frame = Frame(engine.size, ())
        frame.values[given] = array
        engine.start(frame, -next(hosts.moves))
        return frame.values[made]

    return move


def put_elsewhere(hosts: Hosts, array: "np.ndarray[Any, Any]", type_: ArrayType, side: Side) -> RemoteArray:
    """Sends values of this process to the host that has a side. Raises PWC0910 where it is not there."""
    return _engine(hosts, type_, side, side).put(0, array, type_, side)


def _engine(hosts: Hosts, type_: ArrayType, source: Side, side: Side) -> RemoteEngine:
    found = {i.name: i for i in (_island(hosts, source), _island(hosts, side))}
    topology = Topology(tuple(Island(i.name, devices=len(i.devices)) for i in found.values()))
    plan = move_plan(hosts.platform, topology, type_, _place(hosts, source), _place(hosts, side))
    return RemoteEngine(plan, hosts, found, plan.name, sequential=False)


def _island(hosts: Hosts, side: Side) -> PhysicalIsland:
    return next(i for i in hosts.islands if side.devices[0] in i.devices)


def _place(hosts: Hosts, side: Side) -> ArrayPlace:
    island = _island(hosts, side)
    positions = tuple(island.devices.index(d) for d in side.devices)
    return ArrayPlace(island.name, positions, side.local.mesh.axes, side.local.dims)
