"""Counts the collectives inside a computation: the user's own under `shard_map`, and those that Shardy's partitioner
adds for arrays that are split over a mesh. The simulator calls it.

Shardy's passes run on a copy of the module, and make each exchange of data an operation. The counts are those of a
ring; XLA may choose another algorithm, and may join collectives.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pathways.compiler.computations.shardy import run_on_copy
from pathways.compiler.computations.total import total_of
from pathways.dialect.dtypes import from_mlir, is_array_type
from pathways.dialect.mlir import Operation, ir
from pathways.dialect.sdy import meshes_of, parts_of_sharding, read_sharding

_EXCHANGES = "func.func(sdy-insert-explicit-reshards{enable-full-version=true},sdy-reshard-to-collectives,cse)"
_AXIS = re.compile(r'"([^"]+)"(?::\(\d+\)(\d+))?')
"""An axis of Shardy, or a part of it: `"x"`, `"x":(1)2`."""
_GROUPS = re.compile(r"tensor<\d+x(\d+)xi64>")
"""The type of a list of groups of devices."""
_GROUP_MESH = re.compile(r"mesh_axes<mesh\s*=\s*@(\w+)")
_AXES_OF = {
    "all_gather": "gathering_axes",
    "all_reduce": "reduction_axes",
    "all_to_all": "params",
    "reduce_scatter": "reduce_scatter_axes",
}
"""The attribute that has the axes of a collective of Shardy."""
_MOVES = ("collective_permute", "collective_broadcast")
"""Collectives in which a device sends its part once."""


@dataclass(frozen=True)
class Collectives:
    """The collectives of one run of a computation.

    `bytes` are those that a device sends over its links, `hops` the messages for which it waits one after another.
    """

    bytes: float = 0.0
    hops: float = 0.0


def collectives_of(computation: Operation) -> Collectives | None:
    """Counts the collectives of a StableHLO module with a @main; None if Shardy cannot partition it."""
    meshes = {name: dict(axes) for name, axes in meshes_of(computation).items()}
    devices = max((math.prod(sizes.values()) for sizes in meshes.values()), default=1)
    if devices == 1:
        return Collectives()
    holder = ir.Module.create(ir.Location.unknown(computation.context))
    clone = computation.clone(ir.InsertionPoint(holder.body))
    try:
        run_on_copy(clone, _EXCHANGES)
    except ir.MLIRError:
        return None
    costs = _Costs(meshes, devices)
    return Collectives(total_of(clone, lambda op: costs.of(op).bytes), total_of(clone, lambda op: costs.of(op).hops))


def ring(kind: str, size: float, devices: int) -> Collectives:
    """Returns the cost of one collective of `devices`. Its result has `size` bytes on each."""
    if devices <= 1:
        return Collectives()
    others = devices - 1
    match kind:
        case "all_reduce":
            return Collectives(2 * others / devices * size, 2 * others)
        case "all_gather":
            return Collectives(others / devices * size, others)
        case "reduce_scatter":
            return Collectives(others * size, others)
        case "all_to_all":
            return Collectives(others / devices * size, 1)
        case _:
            return Collectives(size, 1)


@dataclass(frozen=True)
class _Costs:
    """The cost of each operation of a module. `devices` are those of its largest mesh."""

    meshes: Mapping[str, Mapping[str, int]]
    devices: int

    def of(self, op: Any) -> Collectives:
        dialect, _, kind = op.name.partition(".")
        if not (dialect in ("sdy", "stablehlo") and (kind in _AXES_OF or kind in _MOVES)):
            return Collectives()
        size = float(sum(from_mlir(r.type).bytes for r in op.results if is_array_type(r.type)))
        if dialect == "stablehlo":
            groups = str(op.attributes["replica_groups"]) if "replica_groups" in op.attributes else ""
            return ring(kind, size, self._of_groups(groups))
        sharding = op.attributes["out_sharding"]
        sizes = self.meshes.get(read_sharding(sharding).mesh, {})
        devices = _devices_on(str(op.attributes[_AXES_OF[kind]]), sizes) if kind in _AXES_OF else self.devices
        return ring(kind, size / parts_of_sharding(sharding, sizes), devices)

    def _of_groups(self, groups: str) -> int:
        """Returns the number of devices in a group, given as a list of devices or as the axes of a mesh."""
        listed, mesh = _GROUPS.search(groups), _GROUP_MESH.search(groups)
        if mesh and mesh[1] in self.meshes:
            return _devices_on(groups.partition("axes")[2], self.meshes[mesh[1]])
        return int(listed[1]) or self.devices if listed else self.devices


def _devices_on(axes: str, sizes: Mapping[str, int]) -> int:
    """Returns the number of devices along axes, given as the text of an attribute."""
    return math.prod(int(part) if part else sizes.get(axis, 1) for axis, part in _AXIS.findall(axes))
