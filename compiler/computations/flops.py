"""Counts the floating-point operations of a StableHLO module by reading its IR. Placement and the cost estimates of
schedules call it during compilation.

`lowered.cost_analysis()` is not used: it counts the body of a loop once, and changes with the version of XLA. It also
needs JAX's own lowering, which a dump does not have. Here the body of a loop is counted once per iteration, if the IR
has the trip count. A multiply-add is two operations. An elementwise operation is one per element; moving data is free.
"""

import math
from typing import Any

from pathways.compiler.computations.total import elements, total_of
from pathways.dialect.mlir import Operation
from pathways.dialect.sdy import manual_axes, meshes_of

_FREE = frozenset(
    {
        "bitcast_convert",
        "broadcast_in_dim",
        "concatenate",
        "constant",
        "convert",
        "copy",
        "dynamic_slice",
        "dynamic_update_slice",
        "gather",
        "get_tuple_element",
        "iota",
        "optimization_barrier",
        "pad",
        "reshape",
        "return",
        "reverse",
        "slice",
        "transpose",
        "tuple",
    }
)
"""StableHLO operations that only move data."""


def flops_of(computation: Operation) -> float:
    """Counts the floating-point operations of one run of a computation, over all devices."""
    axes = {axis: size for mesh in meshes_of(computation).values() for axis, size in mesh}

    def devices(manual: Any) -> float:
        return float(math.prod(axes.get(axis, 1) for axis in manual_axes(manual)))

    return total_of(computation, _flops, inside_manual=devices)


def _flops(op: Any) -> float:
    dialect, _, name = op.name.partition(".")
    if dialect not in ("stablehlo", "chlo") or name in _FREE:
        return 0.0
    if name in ("dot_general", "dot"):
        return 2.0 * elements(op.results[0]) * _contracted(op)
    if name == "convolution":
        return 2.0 * elements(op.results[0]) * _window(op)
    if name in ("reduce", "reduce_window", "scatter", "select_and_scatter", "all_reduce", "reduce_scatter"):
        return float(max((elements(v) for v in op.operands), default=0))
    return float(max((elements(v) for v in op.results), default=0))


def _contracted(op: Any) -> int:
    """Returns the product of the dimensions that a dot sums over. Batch and free dimensions are in the result."""
    left, right, result = (elements(v) for v in (op.operands[0], op.operands[1], op.results[0]))
    if not result:
        return 0
    batch = _batch(op)
    # left = batch * m * k, right = batch * k * n, result = batch * m * n
    return math.isqrt(max(left * right // max(result * batch, 1), 0))


def _batch(op: Any) -> int:
    if "dot_dimension_numbers" not in op.attributes:
        return 1
    text = str(op.attributes["dot_dimension_numbers"])
    if "lhs_batching_dimensions = [" not in text:
        return 1
    listed = text.partition("lhs_batching_dimensions = [")[2].partition("]")[0]
    shape = op.operands[0].type.shape
    return math.prod(shape[int(i)] for i in listed.split(",")) if listed.strip() else 1


def _window(op: Any) -> int:
    """Counts the multiply-adds for one element of a convolution: the kernel without its output features."""
    kernel = elements(op.operands[1])
    text = str(op.attributes["dimension_numbers"])
    layout = text.partition("x[")[2].partition("]")[0].split(", ")
    features = op.operands[1].type.shape[layout.index("o")] if "o" in layout else 1
    return kernel // max(features, 1)
