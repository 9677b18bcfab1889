"""Turns the iterations of a loop that fall into one pipeline stage into a single `lax.scan` again. `assemble.py` calls
it after the cuts are chosen, so that a stage stays small.
"""

from collections.abc import Sequence
from typing import Any

import jax
from jax import lax

from pathways.compiler.frontends.jax import compat
from pathways.compiler.frontends.jax.graph import Operand
from pathways.compiler.frontends.jax.pipeline.graph import OpenedLoop, Operation, Value

_BY_ELEMENT = frozenset(
    {"add", "convert_element_type", "copy", "div", "exp", "mul", "neg", "stop_gradient", "sub", "tanh"}
)
"""Operations that commute with slicing. A cast of a stack is done slice by slice, on the stages that use the slices."""
_any_lax: Any = lax


class LoopJoiner:
    """Joins the iterations of loops. Adds the scans that it makes to `stage_of`."""

    def __init__(self, stage_of: dict[Operation, int]) -> None:
        self._stage_of = stage_of
        self._slices: dict[tuple[Value, int, int], Operand] = {}

    def joined(self, operations: Sequence[Operation]) -> list[Operation]:
        """Returns the operations in order, with scans in place of iterations."""
        result: list[Operation] = []
        at = 0
        while at < len(operations):
            operation = operations[at]
            if not operation.is_iteration:
                result.append(self._stack(operation) if operation.stacks >= 0 else operation)
                at += 1
                continue
            end = at + 1
            while end < len(operations) and self._goes_on(operation, operations[end]):
                end += 1
            result.append(self._scan(operations[at:end]))
            at = end
        return result

    def _goes_on(self, first: Operation, other: Operation) -> bool:
        return other.is_iteration and other.loop is first.loop and self._stage_of[other] == self._stage_of[first]

    def _scan(self, iterations: Sequence[Operation]) -> Operation:
        first, last, loop = iterations[0], iterations[-1], iterations[0].loop
        assert loop is not None
        count, consts = len(iterations), len(loop.consts)
        low = loop.length - first.iteration - count if loop.reverse else first.iteration
        xs = [self._slice(x, low, low + count, loop.length) for x in loop.xs]
        carry = first.inputs[consts : consts + loop.carried]
        stacked = [_rows_of(v, count) for v in first.outputs[loop.carried :]]
        loop.chunks.append(stacked)

        def run(values: Sequence[Any]) -> Sequence[Any]:
            return _run(loop, count, values)

        outputs = [*last.outputs[: loop.carried], *stacked]
        made = Operation("scan", [*loop.consts, *carry, *xs], outputs, run, loop.eqn, groups=first.groups, loop=loop)
        for value in outputs:
            value.maker = made
        self._stage_of[made] = self._stage_of[first]
        return made

    def _stack(self, operation: Operation) -> Operation:
        loop = operation.loop
        assert loop is not None
        chunks: list[Operand] = [chunk[operation.stacks] for chunk in loop.chunks]
        made = Operation(
            "stack",
            chunks[::-1] if loop.reverse else chunks,
            operation.outputs,
            _joined,
            operation.eqn,
            groups=operation.groups,
        )
        for value in made.outputs:
            value.maker = made
        if operation in self._stage_of:
            self._stage_of[made] = self._stage_of[operation]
        return made

    def _slice(self, x: Operand, low: int, high: int, length: int) -> Operand:
        """Returns rows of a loop's input. Slices through elementwise operations, so that stages share no stacks."""
        if not isinstance(x, Value) or (low, high) == (0, length):
            return x
        key = (x, low, high)
        if key in self._slices:
            return self._slices[key]
        if (part := _part_of_concatenation(x, low, high)) is not None:
            return self._slices.setdefault(key, part)
        value = _rows_of(x, high - low)
        maker = x.maker
        if maker is not None and maker not in self._stage_of and maker.name in _BY_ELEMENT and _alike(maker, x):
            inputs = [
                self._slice(i, low, high, length) if isinstance(i, Value) and i.aval.shape else i for i in maker.inputs
            ]
            made = Operation(maker.name, inputs, [value], maker.run, maker.eqn, maker.flops * (high - low) / length)
        else:
            made = Operation("slice", [x, _Number(low), _Number(high)], [value], take_slice)
        value.maker = made
        self._slices[key] = value
        return value


class _Number:
    """An integer operand of an operation, with the interface of a JAX literal."""

    def __init__(self, val: int) -> None:
        self.val = val
        self.aval = None


def take_slice(values: Sequence[Any]) -> Sequence[Any]:
    """Returns rows of an array."""
    x, low, high = values
    return [_any_lax.slice_in_dim(x, low, high, axis=0)]


def _joined(values: Sequence[Any]) -> Sequence[Any]:
    return [values[0] if len(values) == 1 else _any_lax.concatenate(list(values), 0)]


def _run(loop: OpenedLoop, count: int, values: Sequence[Any]) -> list[Any]:
    """Runs `count` iterations of a loop."""
    params = loop.eqn.params
    body = compat.as_function(params["jaxpr"])
    n_consts, n_carry = len(loop.consts), loop.carried
    consts, carry, xs = values[:n_consts], values[n_consts : n_consts + n_carry], values[n_consts + n_carry :]

    def iteration(carry: Any, x: Any) -> tuple[Any, Any]:
        made = body(*consts, *carry, *x)
        return made[:n_carry], made[n_carry:]

    unroll = params.get("unroll", 1)
    carry, ys = _any_lax.scan(iteration, list(carry), list(xs), length=count, reverse=loop.reverse, unroll=unroll)
    return [*carry, *ys]


def _rows_of(x: Value, count: int) -> Value:
    aval = jax.ShapeDtypeStruct((count, *x.aval.shape[1:]), x.aval.dtype)
    return Value(aval, x.depends)


def _alike(maker: Operation, x: Value) -> bool:
    """Whether all operands have the rows of the result, or are scalars."""
    reads = [v.aval.shape for v in maker.reads]
    return all(not shape or shape[:1] == x.aval.shape[:1] for shape in reads)


def _part_of_concatenation(x: Value, low: int, high: int) -> Operand | None:
    """Returns the operand of a concatenation that equals these rows; None if there is none."""
    maker = x.maker
    if maker is None or maker.name != "concatenate" or maker.eqn is None or maker.eqn.params["dimension"] != 0:
        return None
    at = 0
    for part in maker.inputs:
        rows = part.aval.shape[0]
        if (at, at + rows) == (low, high):
            return part
        at += rows
    return None
