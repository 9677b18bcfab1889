"""Finds the meshes of one StableHLO module. `read.py` calls it.

A module may state its arguments and results on several meshes over the same devices. One mesh is that of the
computation; arguments and results on others are moved between the meshes outside of it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pathways.compiler.frontends.stablehlo.errors import unsupported
from pathways.dialect.ir.program import described
from pathways.dialect.mlir import Module, Operation, ir
from pathways.dialect.sdy import has_sub_axes, is_closed, mesh_ids, mesh_ops_of, read_axes, read_sharding, write_axes
from pathways.dialect.sharding import Dims, MeshSpec, size_of_axes

SHARDING = "sdy.sharding"
_SIDES = ("arg_attrs", "res_attrs")
_ONLY_AXIS = "devices"
_SYMBOL = re.compile(r'@(?:"([^"]+)"|([\w.$-]+))')


@dataclass(frozen=True)
class OnMesh:
    """The sharding of an argument or result on another mesh than that of the computation."""

    mesh: MeshSpec
    dims: Dims


class ModuleMeshes:
    """The meshes of one module over all of its devices. `main` is that of its computation."""

    def __init__(self, name: str, module: Module, function: Any, devices: int) -> None:
        """Raises PWC0129 if the operations of the module use several meshes."""
        self._name, self._ops = name, mesh_ops_of(module.operation)
        self._meshes = {symbol: mesh for symbol, op in self._ops.items() if (mesh := _mesh_of(op)).size == devices}
        inside = list(dict.fromkeys(self._named(symbol) for symbol in _inside(module.operation, function.operation)))
        used = [mesh for mesh in inside if mesh is not None]
        if len(used) > 1:
            have, rule = f"shardings on the meshes {used[0].axes} and {used[1].axes}", "one mesh inside of the function"
            raise unsupported(name, have, rule)
        line = MeshSpec(((_ONLY_AXIS, devices),), tuple(range(devices)))
        self.main: MeshSpec = next(iter([*used, *self._meshes.values()]), line)

    def _named(self, symbol: str) -> MeshSpec | None:
        """Returns a mesh by its symbol; None for one of a single device or no axes, which splits nothing."""
        return self._meshes.get(symbol)

    def take_others(self, function: Any, side: str, types: Any) -> list[OnMesh | None]:
        """Removes the shardings on other meshes from the arguments or results; returns them in order."""
        found: list[OnMesh | None] = []
        left: list[Any] = []
        for given, type_ in zip(described(function, side, len(types)), types, strict=True):
            entries = {one.name: one.attr for one in given}
            other = self._other(entries[SHARDING], type_.rank) if SHARDING in entries else None
            if other is not None:
                del entries[SHARDING]
            found.append(other)
            left.append(ir.DictAttr.get(entries))
        function.operation.attributes[side] = ir.ArrayAttr.get(left)
        return found

    def _other(self, sharding: Any, rank: int) -> OnMesh | None:
        placed = read_sharding(sharding)
        mesh = self._named(placed.mesh)
        if not any(placed.dims) or mesh == self.main:
            return None
        if mesh is None or has_sub_axes(sharding) or not is_closed(sharding):
            have, rule = f"the sharding {sharding}", "a closed sharding over whole axes of a mesh of all devices"
            raise unsupported(self._name, have, rule)
        return OnMesh(mesh, placed.dims + ((),) * (rank - len(placed.dims)))

    def forget_order(self) -> None:
        """Removes the orders of devices from the meshes: a computation counts the devices of its mesh in order."""
        for op in self._ops.values():
            op.attributes["mesh"] = write_axes(read_axes(op.attributes["mesh"]))
            if "stablehlo.mesh" in op.attributes:
                del op.attributes["stablehlo.mesh"]


def _mesh_of(op: Operation) -> MeshSpec:
    axes = read_axes(op.attributes["mesh"])
    return MeshSpec(axes, mesh_ids(op.attributes["mesh"]) or tuple(range(size_of_axes(axes))))


def _inside(module: Operation, function: Operation) -> Iterator[str]:
    """Yields the symbols of meshes that operations use, except on the arguments and results of @main."""
    waiting = [op.operation for op in module.regions[0].blocks[0].operations if op.operation.name != "sdy.mesh"]
    while waiting:
        op = waiting.pop()
        for name in op.attributes:
            if "sharding" in name or (name in _SIDES and op != function):
                yield from (quoted or plain for quoted, plain in _SYMBOL.findall(str(op.attributes[name])))
        waiting += [inner.operation for region in op.regions for block in region.blocks for inner in block.operations]
