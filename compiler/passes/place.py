"""Every slice is bound to an island and devices of it, by a policy."""

from dataclasses import dataclass
from typing import ClassVar

from pathways.compiler.passes.base import Pass, Session
from pathways.compiler.placement import Policy, load_policy, run_policy
from pathways.compiler.placement.default import default_topology
from pathways.compiler.placement.problem import Placement, build_graph, check
from pathways.dialect import pw
from pathways.dialect.mlir import ir
from pathways.dialect.phases import Phase
from pathways.dialect.program import Program
from pathways.dialect.topology import Topology


@dataclass(frozen=True)
class Place(Pass):
    """Bind slices by a placement policy, and write islands, bindings and reasons.

    Requires: phase shard.
    Ensures: phase place: every slice has an island and devices, disjoint from other slices; every call an island.
    """

    name: ClassVar[str] = "place"
    requires: ClassVar[Phase] = Phase.SHARD
    ensures: ClassVar[Phase] = Phase.PLACE
    policy: str | Policy = "spread"

    def apply(self, program: Program, session: Session) -> None:
        policy = load_policy(self.policy) if isinstance(self.policy, str) else self.policy
        name = self.policy if isinstance(self.policy, str) else getattr(policy, "__name__", "of the caller")
        topology = session.topology or default_topology(program)
        session.topology = topology
        graph = build_graph(program, session.bindings)
        requests = graph.graph["slices"]
        placement = run_policy(name, policy, graph, topology)
        check(name, placement, requests, topology)
        write_placement(program, placement, topology)


def write_placement(program: Program, placement: Placement, topology: Topology) -> None:
    with program.context, ir.Location.unknown():
        _write_islands(program, topology)
        for symbol, op in program.slices.items():
            binding = placement.bindings[symbol]
            op.island = binding.island
            op.device_ids = binding.devices
            op.reason = placement.reasons.get(symbol, "chosen by the policy")
        for call in program.calls():
            call.island = placement.bindings[program.slice_of(call.mesh)].island
    program.phase = Phase.PLACE


def _write_islands(program: Program, topology: Topology) -> None:
    ip = ir.InsertionPoint.at_block_begin(program.module.body)
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
        )
    program.module.operation.attributes["pw.dcn_gbps"] = ir.FloatAttr.get_f64(topology.dcn_gbps)
