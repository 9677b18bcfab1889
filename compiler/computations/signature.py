"""Reads the types and shardings of @main's arguments and results from a StableHLO module, and the axes of its mesh.
Code that writes plans or Shardy's MPMD text calls it.

`export.py`, `emit/mpmd_text.py` and the pass `per_device` use it.
"""

from dataclasses import dataclass
from typing import Any

from pathways.dialect.dtypes import ArrayType, from_mlir
from pathways.dialect.ir.functions import described, main_of
from pathways.dialect.mlir import Operation
from pathways.dialect.sdy import meshes_of, read_sharding
from pathways.dialect.sharding import Axes, Dims, replicated, size_of_axes


@dataclass(frozen=True)
class ComputationSignature:
    """Types and shardings of the arguments and results of @main, and the axes of its mesh."""

    inputs: tuple[ArrayType, ...]
    in_layouts: tuple[Dims, ...]
    outputs: tuple[ArrayType, ...]
    out_layouts: tuple[Dims, ...]
    axes: Axes


def signature_of(computation: Operation) -> ComputationSignature:
    """Returns the signature of a computation, from phase `shard` on."""
    main = main_of(computation)
    ins, outs = tuple(map(from_mlir, main.type.inputs)), tuple(map(from_mlir, main.type.results))
    layouts = _layouts(main, "arg_attrs", ins), _layouts(main, "res_attrs", outs)
    return ComputationSignature(ins, layouts[0], outs, layouts[1], _axes_of(computation))


def _axes_of(computation: Operation) -> Axes:
    """Returns the axes of a computation's mesh. A host callback adds a second mesh, of one device and without axes."""
    size = computation.attributes["mhlo.num_partitions"].value
    return next((axes for axes in meshes_of(computation).values() if axes and size_of_axes(axes) == size), ())


def _layouts(main: Any, key: str, types: tuple[ArrayType, ...]) -> tuple[Dims, ...]:
    return tuple(_dims(text, type_) for text, type_ in zip(described(main, key, len(types)), types, strict=True))


def _dims(attribute: Any, type_: ArrayType) -> Dims:
    if "sdy.sharding" not in attribute:
        return replicated(len(type_.shape))
    return read_sharding(attribute["sdy.sharding"]).dims
