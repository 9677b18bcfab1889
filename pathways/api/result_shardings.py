"""Builds the JAX sharding that a result of a program shows to the user, on virtual devices or on this process's own.
`pw.Array.sharding` and `stages.py` use it.
"""

import functools
from collections.abc import Mapping
from typing import Any, cast

from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding

from pathways.compiler.frontends.jax.devices import VirtualDevice, VirtualSlice, implicit_slice, mesh_of_others
from pathways.dialect.jax_api import local_devices
from pathways.dialect.plan.nouns import Plan, PlanSlice, Port
from pathways.runtime.host.devices.pjrt import named_sharding


def virtual_sharding(plan: Plan, port: Port, slices: Mapping[str, VirtualSlice]) -> Any:
    """Returns the sharding of a result on these slices, which have the names of the plan's slices."""
    buffer = plan.stream(port.island).kind_of[port.slot]
    mesh = plan.meshes[buffer.layout.mesh]
    bound = next(s for s in plan.slices if s.name == mesh.slice)
    positions = tuple(bound.devices.index(d) for d in mesh.devices)
    devices = [slices[mesh.slice].devices[i] for i in positions]
    return named_sharding(mesh.spec, buffer.layout.dims, devices)


def shown_sharding(sharding: Any) -> Any:
    """Returns the sharding as users see it: on this process's own devices if the program named no others."""
    if not isinstance(sharding, NamedSharding):
        return sharding
    devices: list[VirtualDevice] = list(cast("Any", sharding.mesh).devices.flat)
    if devices[0].slice is implicit_slice():
        return SingleDeviceSharding(devices[0].own_device or _first_device())
    own = [d.own_device for d in devices]
    if None in own:
        return sharding
    return NamedSharding(mesh_of_others(cast("Mesh", sharding.mesh), own), sharding.spec)


@functools.cache
def _first_device() -> Any:
    """Returns the local device that runs programs without slices."""
    return local_devices()[0]


def slice_like(one: PlanSlice) -> VirtualSlice:
    """Creates a slice to replace a plan's slice that belongs to another process."""
    return VirtualSlice(len(one.devices), prefer=one.prefer)
