"""Counts the floating-point operations of a StableHLO module by reading its IR. Placement and the cost estimates of
schedules call it during compilation.

`lowered.cost_analysis()` is not used: it counts the body of a loop once, and changes with the version of XLA. It also
needs JAX's own lowering, which a dump does not have. Here the body of a loop is counted once per iteration, if the IR
has the trip count. A multiply-add is two operations. An elementwise operation is one per element; moving data is free.
"""

import math
from typing import Any

from pathways.dialect.ir.program import functions_of
from pathways.dialect.mlir import Operation

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
    functions = functions_of(computation)
    known: dict[str, float] = {}

    def of_function(name: str) -> float:
        if name not in known:
            known[name] = 0.0  # stops at a recursive function
            known[name] = of_region(functions[name].regions[0]) if name in functions else 0.0
        return known[name]

    def of_region(region: Any) -> float:
        return sum(of_op(op.operation) for block in region.blocks for op in block.operations)

    def of_op(op: Any) -> float:
        name: str = op.name
        if name == "func.call":
            return of_function(op.attributes["callee"].value)
        if name == "stablehlo.while":
            return _trips(op) * of_region(op.regions[1])
        if name.startswith("sdy.") and len(op.regions):
            return sum(of_region(region) for region in op.regions)
        if not name.startswith(("stablehlo.", "chlo.")):
            return 0.0
        return _simple(op, name.partition(".")[2], of_region)

    return of_function("main")


def _simple(op: Any, name: str, of_region: Any) -> float:
    if name in _FREE:
        return 0.0
    if name in ("dot_general", "dot"):
        return 2.0 * _elements(op.results[0]) * _contracted(op)
    if name == "convolution":
        return 2.0 * _elements(op.results[0]) * _window(op)
    if name in ("reduce", "reduce_window", "scatter", "select_and_scatter", "all_reduce", "reduce_scatter"):
        return float(max((_elements(v) for v in op.operands), default=0))
    if name in ("case", "if"):
        return max((of_region(region) for region in op.regions), default=0.0)
    return float(max((_elements(v) for v in op.results), default=0))


def _elements(value: Any) -> int:
    shape = getattr(value.type, "shape", None)
    return math.prod(shape) if shape is not None else 0


def _contracted(op: Any) -> int:
    """Returns the product of the dimensions that a dot sums over. Batch and free dimensions are in the result."""
    left, right, result = (_elements(v) for v in (op.operands[0], op.operands[1], op.results[0]))
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
    kernel = _elements(op.operands[1])
    text = str(op.attributes["dimension_numbers"])
    layout = text.partition("x[")[2].partition("]")[0].split(", ")
    features = op.operands[1].type.shape[layout.index("o")] if "o" in layout else 1
    return kernel // max(features, 1)


def _trips(op: Any) -> int:
    """Counts the iterations of a loop between two constants, as `lax.scan` and `fori_loop` make them; otherwise 1."""
    body = list(op.regions[0].blocks[0].operations)
    compare = next((o.operation for o in body if o.operation.name == "stablehlo.compare"), None)
    if compare is None:
        return 1
    counter, limit = compare.operands[0], _constant(compare.operands[1])
    arguments = list(op.regions[0].blocks[0].arguments)
    start = next((_constant(o) for a, o in zip(arguments, op.operands, strict=True) if a == counter), None)
    return 1 if limit is None or start is None else max(limit - start, 0)


def _constant(value: Any) -> int | None:
    owner = getattr(value.owner, "operation", None)
    if owner is None or owner.name != "stablehlo.constant" or _elements(value) != 1:
        return None
    text = str(owner.attributes["value"])
    number = text.partition("dense<")[2].partition(">")[0]
    return int(number) if number.lstrip("-").isdigit() else None
