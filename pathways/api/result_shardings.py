"""Where the results of a plan lie, on virtual devices."""

from collections.abc import Mapping
from typing import Any

from pathways.compiler.frontends.jax.devices import VirtualSlice
from pathways.dialect.plan.nouns import Plan, PlanSlice, Port
from pathways.runtime.host.devices.pjrt import named_sharding


def virtual_sharding(plan: Plan, port: Port, slices: Mapping[str, VirtualSlice]) -> Any:
    """Returns the sharding of a result on these slices, which have the names of the plan's."""
    buffer = plan.stream(port.island).buffers[port.slot]
    mesh = plan.meshes[buffer.layout.mesh]
    bound = next(s for s in plan.slices if s.name == mesh.slice)
    positions = tuple(bound.devices.index(d) for d in mesh.devices)
    devices = [slices[mesh.slice].devices[i] for i in positions]
    return named_sharding(mesh.spec, buffer.layout.dims, devices)


def slice_like(one: PlanSlice) -> VirtualSlice:
    """Makes a slice for one of a plan whose own are of another process."""
    return VirtualSlice(len(one.devices), prefer=one.prefer)
