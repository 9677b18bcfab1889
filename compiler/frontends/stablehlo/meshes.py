"""Finds the meshes of one StableHLO module. `read.py` calls it.

A module may state its arguments and results on several meshes over the same devices. The computation uses one mesh.
Arguments and results on other meshes are transferred outside of the computation.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pathways.compiler.frontends.stablehlo.errors import unsupported
from pathways.dialect.ir.functions import described
from pathways.dialect.mlir import Module, Operation, ir
from pathways.dialect.sdy import (
    Placed,
    has_sub_axes,
    is_closed,
    mesh_ids,
    mesh_ops_of,
    read_axes,
    read_sharding,
    write_axes,
    write_sharding,
)
from pathways.dialect.sharding import Dims, MeshSpec, size_of_axes

SHARDING = "sdy.sharding"
_SIDES = ("arg_attrs", "res_attrs")
_ONLY_AXIS = "devices"
_SYMBOL = re.compile(r'@(?:"([^"]+)"|([\w.$-]+))')


@dataclass(frozen=True)
class OnMesh:
    """The sharding of an argument or result, on a mesh of positions among the devices of the module."""

    mesh: MeshSpec
    dims: Dims


class ModuleMeshes:
    """The meshes of one module over all of its devices. `main` is the mesh of the computation."""

    def __init__(self, name: str, module: Module, function: Any, devices: int) -> None:
        """Raises PWC0129 if the operations of the module use several meshes."""
        self._name, self._ops = name, mesh_ops_of(module.operation)
        self._meshes = {symbol: mesh for symbol, op in self._ops.items() if (mesh := _mesh_of(op)).size == devices}
        symbols = set(_inside(module.operation, function.operation))
        used = list(dict.fromkeys(mesh for symbol, mesh in self._meshes.items() if symbol in symbols))
        if len(used) > 1 and devices > 1:
            have, rule = f"shardings on the meshes {used[0].axes} and {used[1].axes}", "one mesh inside of the function"
            raise unsupported(name, have, rule)
        line = MeshSpec(((_ONLY_AXIS, devices),), tuple(range(devices)))
        self.main: MeshSpec = next(iter([*used, *self._meshes.values()]), line)
        self._kept = {self.main, *used}
        self._symbol = next((symbol for symbol, mesh in self._meshes.items() if mesh == self.main), "")

    def stated(self, function: Any, side: str, types: Any) -> list[OnMesh | None]:
        """Reads the shardings of arguments or results over whole axes of a mesh of all devices."""
        found: list[OnMesh | None] = []
        for given, type_ in zip(described(function, side, len(types)), types, strict=True):
            placed = read_sharding(given[SHARDING]) if SHARDING in given else None
            if placed is None or placed.mesh not in self._meshes or has_sub_axes(given[SHARDING]):
                found.append(None)
            else:
                found.append(OnMesh(self._meshes[placed.mesh], _padded(placed.dims, type_.rank)))
        return found

    def take_others(self, function: Any, side: str, types: Any) -> list[OnMesh | None]:
        """Removes the shardings on other meshes from the arguments or results; returns them in order."""
        found: list[OnMesh | None] = []
        left: list[Any] = []
        for given, type_ in zip(described(function, side, len(types)), types, strict=True):
            entries = {one.name: one.attr for one in given}
            placed = read_sharding(entries[SHARDING]) if SHARDING in entries else None
            other = None
            if placed is not None and self._meshes.get(placed.mesh, self.main) != self.main:
                sharding = entries.pop(SHARDING)
                if not any(placed.dims):
                    entries[SHARDING] = write_sharding(Placed(self._symbol, placed.dims))
                elif self.main.size > 1:  # on one device, a sharding splits nothing
                    other = self._other(sharding, placed, type_.rank)
            found.append(other)
            left.append(ir.DictAttr.get(entries))
        function.operation.attributes[side] = ir.ArrayAttr.get(left)
        return found

    def _other(self, sharding: Any, placed: Placed, rank: int) -> OnMesh:
        if has_sub_axes(sharding) or not is_closed(sharding):
            have, rule = f"the sharding {sharding}", "a closed sharding over whole axes of a mesh of all devices"
            raise unsupported(self._name, have, rule)
        return OnMesh(self._meshes[placed.mesh], _padded(placed.dims, rank))

    def forget_others(self) -> None:
        """Removes the other meshes, and the order of the devices of the main one: its devices are counted in order."""
        for symbol, op in self._ops.items():
            if symbol in self._meshes and self._meshes[symbol] not in self._kept:
                op.erase()
                continue
            op.attributes["mesh"] = write_axes(read_axes(op.attributes["mesh"]))
            if "stablehlo.mesh" in op.attributes:
                del op.attributes["stablehlo.mesh"]


def _padded(dims: Dims, rank: int) -> Dims:
    """Adds the last dimension of a stored PRNG key, which its sharding does not have."""
    return dims + ((),) * (rank - len(dims))


def _mesh_of(op: Operation) -> MeshSpec:
    axes = read_axes(op.attributes["mesh"])
    return MeshSpec(axes, mesh_ids(op.attributes["mesh"]) or tuple(range(size_of_axes(axes))))


def _inside(module: Operation, function: Operation) -> Iterator[str]:
    """Yields the symbols of meshes that operations use, except on the arguments and results of @main."""
    for op in every_operation(module):
        for name in op.attributes:
            if "sharding" in name or (name in _SIDES and op != function):
                yield from (quoted or plain for quoted, plain in _SYMBOL.findall(str(op.attributes[name])))


def every_operation(module: Operation) -> Iterator[Operation]:
    """Yields the module and all operations in it. It does not recurse: the module comes from another process."""
    waiting = [module]
    while waiting:
        op = waiting.pop()
        yield op
        waiting += [inner.operation for region in op.regions for block in region.blocks for inner in block.operations]
