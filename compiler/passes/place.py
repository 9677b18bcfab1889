"""Defines the pass `place`. It calls a placement policy, which binds every slice of virtual devices to devices of one
island. It writes the result and the reasons into the IR.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pathways.compiler.machines import Machines
from pathways.compiler.passes.base import Pass, Session
from pathways.compiler.placement import PlacementPolicy, find_placement, run_policy
from pathways.compiler.placement.cost import CostModel, Estimate
from pathways.compiler.placement.default import default_topology
from pathways.compiler.placement.problem import Placement, build_graph, check_placement
from pathways.compiler.placement.runner_up import LIMIT, runners_up, seconds
from pathways.dialect.ir import pw
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.mlir import ir
from pathways.dialect.phases import Phase
from pathways.dialect.topology import CLUSTER_FIGURES, ISLAND_FIGURES, Topology


@dataclass(frozen=True)
class Place(Pass):
    """Binds slices by a placement policy, and writes islands, bindings and reasons.

    Requires: phase shard.
    Ensures: phase place: every slice has an island and devices, disjoint from other slices; every call an island.
    """

    name: ClassVar[str] = "place"
    requires: ClassVar[Phase] = Phase.SHARD
    ensures: ClassVar[Phase] = Phase.PLACE
    keeps_flow: ClassVar[bool] = True
    writes: ClassVar[frozenset[str] | None] = frozenset({"island"})
    policy: str | PlacementPolicy = "spread"
    explain: bool = False
    """Estimate the cost of every slice's runner-up, regardless of the size of the program."""

    def apply(self, program: ProgramIR, session: Session) -> None:
        policy = find_placement(self.policy) if isinstance(self.policy, str) else self.policy
        name = self.policy if isinstance(self.policy, str) else getattr(policy, "__name__", "of the caller")
        topology = session.topology or default_topology(program)
        session.topology = topology
        graph = build_graph(program, session.bindings)
        requests = graph.graph["slices"]
        placement = run_policy(name, policy, graph, topology)
        check_placement(name, placement, requests, topology)
        estimate = CostModel(graph, topology).estimate({s: b.island for s, b in placement.bindings.items()})
        others = runners_up(graph, topology, placement, limit=None if self.explain else LIMIT)
        write_placement(program, placement, topology, others)
        _write_summary(program, _stored(name), estimate, topology, placement.reproducible)


def write_placement(
    program: ProgramIR, placement: Placement, topology: Topology, runners_up: Mapping[str, str] | None = None
) -> None:
    with program.context, ir.Location.unknown():
        _write_islands(program, topology)
        for symbol, op in program.slices.items():
            binding = placement.bindings[symbol]
            op.island = binding.island
            op.device_ids = binding.devices
            op.reason = placement.reasons.get(symbol, "chosen by the policy")
            op.runner_up = (runners_up or {}).get(symbol)
    for function in program.functions:
        for call in function.flow.calls():
            call.op.island = placement.bindings[program.slice_of(call.mesh)].island
    program.phase = Phase.PLACE


def _stored(name: str) -> str:
    """Returns the name of a policy in the plan: FILE.py:NAME without folders."""
    path, colon, attribute = name.rpartition(":")
    return f"{Path(path).name}:{attribute}" if colon and path.endswith(".py") else name


def _write_summary(program: ProgramIR, policy: str, estimate: Estimate, topology: Topology, reproducible: bool) -> None:
    """Writes the policy and its estimate as attributes of the module."""
    assumed = Machines(topology).assumed_rates()
    note = f"; assumed: {', '.join(assumed)}" if assumed else ""
    text = f"{policy}: about {seconds(estimate.seconds)} a run, {estimate.dcn_bytes:,} bytes between islands{note}"
    attributes = program.attributes
    attributes["pw.placement"] = ir.StringAttr.get(text, program.context)
    if not reproducible:
        attributes["pw.not_reproducible"] = ir.UnitAttr.get(program.context)


def _write_islands(program: ProgramIR, topology: Topology) -> None:
    ip = ir.InsertionPoint.at_block_begin(program.base.body)
    for island in topology.islands:
        program.islands[island.name] = pw.IslandOp.create(
            ip=ip,
            loc=ir.Location.unknown(),
            name=island.name,
            hosts=island.hosts,
            devices=island.devices,
            kind=island.kind,
            memory=island.memory,
            flops=island.flops,
            ici_gbps=island.ici_gbps,
            **{figure: getattr(island, figure) for figure in ISLAND_FIGURES},
        )
    for name in CLUSTER_FIGURES:
        if (value := getattr(topology, name)) is not None:
            program.attributes[f"pw.{name}"] = ir.FloatAttr.get_f64(value)
