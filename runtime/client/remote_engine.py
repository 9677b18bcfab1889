"""A plan on hosts in other processes: one message a host and run goes there, and one comes back."""

import secrets
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.dtypes import ArrayType
from pathways.dialect.plan.instructions import Branch
from pathways.dialect.plan.nouns import Layout, Plan
from pathways.dialect.plan.part import part_of
from pathways.dialect.plan.plan_file import write_plan
from pathways.dialect.user_line import caller
from pathways.runtime.client.cluster import Cluster
from pathways.runtime.client.remote_host import RemoteHost, new_numbers
from pathways.runtime.errors import NotOverProcesses
from pathways.runtime.host.devices.islands import PhysicalIsland
from pathways.runtime.host.devices.layouts import Side, Sides
from pathways.runtime.host.devices.remote_array import RemoteArray
from pathways.runtime.host.load.costs import IslandCost
from pathways.runtime.host.load.steps import offsets_of
from pathways.runtime.host.run.frame import Frame
from pathways.runtime.host.run.store import Poison
from pathways.runtime.wire import messages as m


class RemoteSides(Sides):
    """Layouts on devices that JAX does not have here."""

    def of(self, layout: Layout) -> Side:
        if layout not in self._known:
            self._known[layout] = Side(self.plan.sharding(layout), None, self.devices(layout.mesh))  # type: ignore[arg-type]
        return self._known[layout]


@dataclass(frozen=True, eq=False)
class _Share:
    """What one host takes and gives in a run: slots (-1: an argument that is not read), and numbers of results."""

    host: RemoteHost
    inputs: Sequence[int]
    results: Sequence[tuple[int, int]]


class RemoteEngine:
    """A plan that hosts have loaded. Raises PWC0912 for what they cannot run yet, and whatever a host answers."""

    constants: Sequence[tuple[int, Any]] = ()
    turns: float = 1.0
    awaits: bool = False
    pauses: bool = False

    def __init__(
        self, plan: Plan, cluster: Cluster, islands: dict[str, PhysicalIsland], path: str, *, sequential: bool
    ) -> None:
        _check(plan)
        self.plan = plan
        self.sides = RemoteSides(plan, islands)
        offsets = self.offsets = offsets_of(plan)
        self.types = {offsets[s.island] + i: (b.type, b.layout) for s in plan.streams for i, b in enumerate(s.buffers)}
        self.size = len(self.types)
        self._number = next(cluster.plans)
        self._hosts = [cluster.hosts[s.island] for s in plan.streams]
        self._shares = [self._share(host) for host in self._hosts]
        self._results = len(plan.results)
        raw, number = write_plan(plan), self._number
        names = [host.island for host in self._hosts]
        cluster.ask_all(names, lambda _, request: m.Load(request, number, path, sequential, raw))
        weakref.finalize(self, _unload, self._hosts, number)

    def _share(self, host: RemoteHost) -> _Share:
        part, offset = part_of(self.plan, {host.island}), self.offsets[host.island]
        inputs = [offset + p.slot if p.slot >= 0 else -1 for p in part.plan.inputs]
        results = [(n, offset + p.slot) for n, p in zip(part.results, part.plan.results, strict=True)]
        return _Share(host, inputs, results)

    def put(self, number: int, array: "np.ndarray[Any, Any]", type_: ArrayType, side: Side) -> RemoteArray:
        """Sends an argument, which is in its stored form, to the host that reads it."""
        host = next(h for h in self._hosts if h.island == self.plan.inputs[number].island)
        name = new_numbers()
        host.post(m.Put(name, self._number, number, np.ascontiguousarray(array).tobytes()))
        return RemoteArray(host, name, type_)

    def mover(self, number: int, source: Side, type_: ArrayType, side: Side) -> Callable[[Any], Any]:
        """Prepares to move arrays from where a buffer is to where an input is: through this process."""
        return lambda array: self.put(number, array.fetch(), type_, side)

    def enqueue(self, frame: Frame, run: Any) -> None:
        """Starts the run on all hosts; its results have their names when this returns."""
        first, transfers = new_numbers(self._results), secrets.randbits(62)
        values, flight = frame.values, run.flight
        for share in self._shares:
            host = share.host
            poison = {
                s: host.put_poison(values[s].cause) for s in share.inputs if s >= 0 and isinstance(values[s], Poison)
            }
            arguments = tuple([poison.get(s) or values[s].number if s >= 0 else -1 for s in share.inputs])
            started = host.run(m.RunPlan(self._number, flight.number, transfers, first, arguments))
            frame.tokens.append(started)
            for name in poison.values():
                host.free(name)
            for number, slot in share.results:
                if values[slot] is None:
                    values[slot] = RemoteArray(host, first + number, self.types[slot][0], started, number)
                else:  # an argument that is returned, or a result of two names
                    host.free(first + number)

    def costs(self) -> dict[str, IslandCost]:
        have = f"{self.plan.name}, whose executables are in other processes"
        rule = "a program whose executables are in this process"
        error = NotOverProcesses(what="asking XLA for costs", have_=have, rule=rule, where=caller())
        raise PathwaysError(error)


def _unload(hosts: Sequence[RemoteHost], number: int) -> None:
    for host in hosts:
        host.post(m.Unload(number))


def _check(plan: Plan) -> None:
    """Raises PWC0912 for what hosts cannot run yet."""
    branch = next((i for s in plan.streams for i in s.instructions if isinstance(i, Branch)), None)
    if branch is not None:
        what, have = "control flow on data", f"{branch.name}, whose calls are on several meshes"
        rule = "loops and branches with all of their calls on one mesh"
        raise PathwaysError(NotOverProcesses(what=what, have_=have, rule=rule, where=branch.where))
    calling = next((r for r in plan.runs() if plan.computations[r.computation].callbacks), None)
    if calling is not None:
        have = f"{calling.name}, which calls back to a Python function of this process"
        rule = "computations without jax.debug.print, pure_callback or io_callback"
        raise PathwaysError(NotOverProcesses(what="a host callback", have_=have, rule=rule, where=calling.where))
