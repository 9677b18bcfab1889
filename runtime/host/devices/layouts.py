"""Finds the devices and the JAX sharding of each array of a plan, on the devices of this process. The loader
(`host/load/`) does this once for each plan.

Engines use the result to place arguments and constants.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pathways.dialect.dtypes import ArrayType
from pathways.dialect.plan.nouns import Layout, Plan
from pathways.dialect.sharding import MeshSpec, Sharding
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.devices.islands import PhysicalIsland


@dataclass(frozen=True, eq=False)
class Side:
    """One end of a transfer: the sharding by device position, the JAX sharding, and the devices in mesh order."""

    sharding: Sharding
    real: pjrt.NamedSharding
    devices: tuple[pjrt.Device, ...]

    @cached_property
    def local(self) -> Sharding:
        """The sharding with devices numbered from 0 in mesh order, so that shardings of two plans can be compared."""
        spec = MeshSpec(self.sharding.mesh.axes, tuple(range(self.sharding.mesh.size)))
        return Sharding(spec, self.sharding.dims)

    @cached_property
    def here(self) -> tuple[int, ...]:
        """Positions of the devices that belong to this process. Other hosts of the same island own the rest."""
        return tuple(i for i, device in enumerate(self.devices) if pjrt.is_here(device))


class Sides:
    """The layouts of a plan on the devices of this process. Each is built once: building a JAX sharding is slow."""

    def __init__(self, plan: Plan, islands: Mapping[str, PhysicalIsland]) -> None:
        self.plan = plan
        self.islands = islands
        self._known: dict[Layout, Side] = {}

    def devices(self, mesh: int) -> tuple[pjrt.Device, ...]:
        spec = self.plan.meshes[mesh]
        return self.islands[spec.island].at(spec.devices) if spec.island in self.islands else ()

    def of(self, layout: Layout) -> Side:
        if layout not in self._known:
            self._known[layout] = Side(self.plan.sharding(layout), self._real(layout), self.devices(layout.mesh))
        return self._known[layout]

    def _real(self, layout: Layout) -> Any:
        """Builds the JAX sharding on these devices."""
        return pjrt.named_sharding(self.plan.meshes[layout.mesh].spec, layout.dims, self.devices(layout.mesh))


class Shards(list[Any]):
    """The shards of a value that this process has: single-device arrays in mesh order. May be empty."""

    def is_ready(self) -> bool:
        return all([a.is_ready() for a in self])  # polled often: a generator costs more than the checks

    def block_until_ready(self) -> None:
        for array in self:
            array.block_until_ready()

    @property
    def addressable_shards(self) -> list[Any]:
        return [s for a in self for s in a.addressable_shards]


def put_on_side(host: "np.ndarray[Any, Any]", type_: ArrayType, side: Side, *, keeps: bool = False) -> pjrt.DeviceArray:
    """Copies a host array, sharded, to the devices of a side in this process. `pjrt.putter` explains `keeps`."""
    return prepare_put(type_, side, keeps=keeps)(host)


def prepare_put(
    type_: ArrayType, side: Side, *, keeps: bool = False
) -> "Callable[[np.ndarray[Any, Any]], pjrt.DeviceArray]":
    """Prepares `put_on_side` for many arrays of one type."""
    if not side.here:
        return lambda host: Shards()
    return pjrt.putter(type_, side.sharding, side.real, side.devices, side.here, keeps=keeps)
