"""Runs Shardy's sharding propagation inside one StableHLO module. It works on a copy. The pass `propagate_shardings`
takes the shardings of @main's arguments and results from it, and `collectives.py` counts what the devices exchange.

Two guards prevent a crash of the process, or a module that does not compile. The pipeline runs on the nested module
itself, which has a @main. It never runs on the original, which would keep `sdy.reshard` ops.
"""

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

from pathways.compiler.errors import Unsupported
from pathways.dialect.diagnostics import PathwaysError, Where
from pathways.dialect.ir.functions import described, main_of
from pathways.dialect.mlir import Operation, ir, passmanager
from pathways.dialect.sdy import Placed, create_mesh, has_sub_axes, is_closed, meshes_of, read_sharding, write_sharding
from pathways.dialect.sharding import Axes, Dims, replicated, size_of_axes

Known: TypeAlias = Dims | None
"""The sharding of one argument or result of a computation; None if it is open."""


@dataclass(frozen=True)
class SignatureShardings:
    """Shardings of the arguments and results of a computation."""

    ins: tuple[Known, ...]
    outs: tuple[Known, ...]

    def closed(self, ranks: "Ranks") -> "SignatureShardings":
        """Returns the same signature with open shardings replicated."""
        ins = tuple(replicated(r) if d is None else d for d, r in zip(self.ins, ranks.ins, strict=True))
        outs = tuple(replicated(r) if d is None else d for d, r in zip(self.outs, ranks.outs, strict=True))
        return SignatureShardings(ins, outs)


@dataclass(frozen=True)
class Ranks:
    ins: tuple[int, ...]
    outs: tuple[int, ...]


def ranks_of(computation: Operation) -> Ranks:
    type_ = main_of(computation).type
    return Ranks(tuple(t.rank for t in type_.inputs), tuple(t.rank for t in type_.results))


def read_signature(computation: Operation, axes: Axes, where: Where | None = None) -> SignatureShardings:
    """Reads the shardings on @main: the user's, or the result of propagation.

    A user's sharding with an open dimension (`P.UNCONSTRAINED`) is a hint to propagation, which closes all dimensions.
    It is not read before. Raises PWC0102 for a second mesh.
    """
    main = main_of(computation)
    meshes = meshes_of(computation)
    known: list[tuple[Known, ...]] = []
    for key, types in (("arg_attrs", main.type.inputs), ("res_attrs", main.type.results)):
        attributes = described(main, key, len(types))
        known.append(tuple(_known(d, t.rank, meshes, axes, where) for d, t in zip(attributes, types, strict=True)))
    return SignatureShardings(known[0], known[1])


def _known(attribute: Any, rank: int, meshes: dict[str, Axes], axes: Axes, where: Where | None) -> Known:
    if "sdy.sharding" not in attribute:
        return None
    sharding = attribute["sdy.sharding"]
    if has_sub_axes(sharding) or not is_closed(sharding):
        return None
    placed = read_sharding(sharding)
    if len(placed.dims) != rank:  # the stored form of a PRNG key has one dimension more than its spec
        placed = Placed(placed.mesh, placed.dims + ((),) * (rank - len(placed.dims)))
    if any(placed.dims) and meshes.get(placed.mesh) != axes:
        raise PathwaysError(
            Unsupported(
                what="a computation with shardings on two meshes",
                have_=f"meshes {meshes.get(placed.mesh)} and {axes}",
                rule="one mesh per computation",
                advice="use the same mesh in all shardings of one jit",
                where=where,
            )
        )
    return placed.dims


def write_signature(computation: Operation, axes: Axes, signature: SignatureShardings) -> None:
    """Writes closed shardings and the number of partitions on @main, and adds the mesh with these axes."""
    main = main_of(computation)
    mesh = mesh_symbol(computation, axes)
    size = size_of_axes(axes)
    i32 = ir.IntegerType.get_signless(32)
    computation.attributes["mhlo.num_partitions"] = ir.IntegerAttr.get(i32, size)
    computation.attributes["mhlo.num_replicas"] = ir.IntegerAttr.get(i32, 1)
    for key, known in (("arg_attrs", signature.ins), ("res_attrs", signature.outs)):
        old = described(main, key, len(known))
        new = [d if k is None else _with(d, Placed(mesh, k)) for d, k in zip(old, known, strict=True)]
        main.operation.attributes[key] = ir.ArrayAttr.get(new)


def _with(attribute: Any, placed: Placed) -> Any:
    """Adds a sharding to an attribute. Keeps the user's own closed sharding, which may carry priorities."""
    entries = {named.name: named.attr for named in attribute}
    old = entries.get("sdy.sharding")
    if old is None or not is_closed(old) or has_sub_axes(old) or read_sharding(old) != placed:
        entries["sdy.sharding"] = write_sharding(placed)
    return ir.DictAttr.get(entries)


def mesh_symbol(computation: Operation, axes: Axes) -> str:
    meshes = meshes_of(computation)
    for name, found in meshes.items():
        if found == axes:
            return name
    name = "mesh" if "mesh" not in meshes else "pw_mesh"
    block = computation.regions[0].blocks[0]
    create_mesh(name, axes, ir.InsertionPoint.at_block_begin(block))
    return name


def propagate(computation: Operation, axes: Axes, given: SignatureShardings, where: Where | None) -> SignatureShardings:
    """Completes a signature by propagation through the computation. Undetermined shardings stay open."""
    if all(n == 1 for _, n in axes) or None not in (*given.ins, *given.outs):
        return given
    holder = ir.Module.create()
    clone = computation.clone(ir.InsertionPoint(holder.body))
    write_signature(clone, axes, given)
    run_on_copy(clone)
    found = read_signature(clone, axes, where)
    return SignatureShardings(_prefer(given.ins, found.ins), _prefer(given.outs, found.outs))


def run_on_copy(copy: Operation, more_passes: str = "") -> None:
    """Runs the propagation and more passes on a copy of a module. Changes the copy."""
    _reshape_where_xla_does(copy)
    pipeline = ",".join(filter(None, ("sdy-propagation-pipeline", more_passes)))
    passmanager.PassManager.parse(f"builtin.module({pipeline})", copy.context).run(copy)


def _reshape_where_xla_does(within: Operation) -> None:
    """Replaces broadcasts that only add dimensions of size 1 by reshapes.

    XLA does so before its propagation, which prefers shardings that come through a reshape.
    """
    for block in (block for region in within.regions for block in region.blocks):
        for op in [op.operation for op in block.operations]:
            _reshape_where_xla_does(op)
            if op.name != "stablehlo.broadcast_in_dim":
                continue
            operand, result, dimensions = op.operands[0], op.results[0], list(op.attributes["broadcast_dimensions"])
            if math.prod(operand.type.shape) == math.prod(result.type.shape) and dimensions == sorted(dimensions):
                ip = ir.InsertionPoint(op)
                reshaped = ir.Operation.create("stablehlo.reshape", [result.type], [operand], loc=op.location, ip=ip)
                result.replace_all_uses_with(reshaped.results[0])
                op.erase()


def _prefer(given: tuple[Known, ...], found: tuple[Known, ...]) -> tuple[Known, ...]:
    """Merges shardings: keeps given ones, and takes found ones if they split something."""
    chosen: list[Known] = []
    for g, f in zip(given, found, strict=True):
        chosen.append(g if g is not None else (f if f is not None and any(f) else None))
    return tuple(chosen)
