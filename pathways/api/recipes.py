"""Keeps the options that made a plan, so that `Compiled` can make it again when devices are lost."""

from dataclasses import dataclass
from typing import Protocol

from pathways.api.process import process
from pathways.compiler.driver import Compilation
from pathways.compiler.frontends.jax.devices import VirtualSlice
from pathways.compiler.pass_manager import Options
from pathways.dialect.plan.nouns import Plan
from pathways.dialect.topology import Topology
from pathways.viz.graphs import Graph


class Compilable(Protocol):
    """A traced program (`Lowered`)."""

    slices: dict[str, VirtualSlice]

    def compiled(self, topology: Topology | None, options: Options) -> Compilation: ...
    def watched(self, topology: Topology | None, options: Options) -> list[Graph]: ...


@dataclass(frozen=True, eq=False)
class Recipe:
    """The options that made a plan, used to make it again for other devices."""

    lowered: Compilable
    topology: Topology | None
    options: Options

    def remake(self, lost: frozenset[str]) -> Plan:
        """Makes the plan again for the remaining devices. Raises PWC0301 if they are too few."""
        topology = self.topology
        if topology is not None:
            topology = Topology(tuple(i for i in topology.islands if i.name not in lost), topology.dcn_gbps)
        plan = self.lowered.compiled(topology, self.options).plan()
        if topology is None:
            process().keep_bindings(plan, self.lowered.slices)
        return plan

    def graphs(self) -> list[Graph]:
        """Returns the dataflow at the phases before the plan."""
        return self.lowered.watched(self.topology, self.options)
