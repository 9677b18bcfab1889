"""Converts the jaxpr of a loss to a flat list of operations. Jits, checkpoints and loops that are too large for one
pipeline stage are expanded. `plan_stages.py` and `compiler/search` call it.
"""

import functools
from collections.abc import Sequence
from typing import Any

from pathways.compiler.frontends.jax import compat
from pathways.compiler.frontends.jax.compat import Eqn, JaxBody, body_of
from pathways.compiler.frontends.jax.graph import Operand
from pathways.compiler.frontends.jax.pipeline.graph import (
    DATA,
    PARAMETER,
    Checkpoint,
    LossGraph,
    OpenedLoop,
    Operation,
    Value,
)
from pathways.compiler.frontends.jax.pipeline.microbatches import bad_pipeline
from pathways.compiler.frontends.jax.pipeline.work import CUSTOM, JITS, REMATS, bytes_of, flops_of_eqn, kept_of_eqn
from pathways.dialect.jax_api import dtypes, numpy

MIN_OPERATIONS_PER_STAGE = 8
"""Least number of operations per stage, for a choice of cuts. Equations above 1/8 of a stage's work are expanded."""
_MAX_CONSTANT_BYTES = 1 << 14
"""A larger closed-over array of floating-point numbers counts as a parameter."""


def open_loss(jaxpr: Any, data: frozenset[int], stages: int) -> LossGraph:
    """Returns the operations of a loss. `data` holds the positions of the leaves that belong to the batch."""
    body = body_of(jaxpr)
    grain = sum(map(flops_of_eqn, body.eqns)) / max(stages, 1) / MIN_OPERATIONS_PER_STAGE
    arguments = [Value(v.aval, DATA if i in data else PARAMETER, argument=i) for i, v in enumerate(body.invars)]
    opener = _Opener(LossGraph(arguments), grain)
    opener.graph.results = opener.walk(body, arguments, ())
    return opener.graph


class _Opener:
    def __init__(self, graph: LossGraph, grain: float) -> None:
        self.graph = graph
        self.grain = grain

    def walk(self, body: JaxBody, operands: Sequence[Operand], groups: tuple[int, ...]) -> list[Operand]:
        """Adds a body's operations, with its parameters bound to `operands`. Returns the body's results."""
        env: dict[Any, Operand] = dict(zip(body.invars, operands, strict=True))
        for var, const in zip(body.constvars, body.consts, strict=True):
            large = bytes_of(var.aval) > _MAX_CONSTANT_BYTES and dtypes.issubdtype(var.aval.dtype, numpy.floating)
            env[var] = Value(var.aval, PARAMETER if large else 0, constant=const)

        def read(atom: Any) -> Operand:
            return atom if isinstance(atom, compat.Literal) else env[atom]

        for eqn in body.eqns:
            outputs = self.equation(eqn, [read(a) for a in eqn.invars], groups)
            env.update(zip(eqn.outvars, outputs, strict=True))
        return [read(a) for a in body.outvars]

    def equation(self, eqn: Eqn, operands: list[Operand], groups: tuple[int, ...]) -> list[Operand]:
        name, flops = eqn.primitive.name, flops_of_eqn(eqn)
        if name in JITS and _is_placed(eqn):
            have = f"a call of {eqn.params.get('name', name)} with shardings of its own"
            rule = "a loss without shardings: pw.pipeline places its stages on the slices"
            raise bad_pipeline(
                "the loss is placed already", have, rule, "remove in_shardings and out_shardings from the jits in it"
            )
        if flops > self.grain:
            if name in JITS:
                (inner,) = list(compat.sub_jaxprs(eqn))[:1]
                return self.walk(body_of(inner), operands, groups)
            if name in REMATS:
                number = len(self.graph.checkpoints)
                self.graph.checkpoints[number] = Checkpoint(eqn.params["prevent_cse"], eqn.params["policy"])
                return self.walk(body_of(eqn.params["jaxpr"]), operands, (*groups, number))
            if name == "scan" and eqn.params["length"] > 1:
                return self._iterations(eqn, operands, groups, flops)
        operation = self._add(eqn, operands, groups, flops)
        if flops > self.grain and (name in CUSTOM or name in ("cond", "while", "scan", "pallas_call")):
            self.graph.indivisible.append(operation)
        return [*operation.outputs]

    def _add(self, eqn: Eqn, operands: list[Operand], groups: tuple[int, ...], flops: float) -> Operation:
        depends = _union(operands)
        outputs = [Value(v.aval, depends) for v in eqn.outvars]
        run = functools.partial(compat.bind, eqn)
        operation = Operation(eqn.primitive.name, operands, outputs, run, eqn, flops, groups)
        atoms, operation.keeps_bytes = kept_of_eqn(eqn)
        pairs = [(a, o) for a, o in zip(eqn.invars, operands, strict=True) if not isinstance(a, compat.Literal)]
        known: dict[Any, Operand] = dict([*pairs, *zip(eqn.outvars, outputs, strict=True)])
        operation.keeps = [v for a in atoms if isinstance(v := known.get(a), Value)]
        self._append(operation)
        return operation

    def _iterations(self, eqn: Eqn, operands: list[Operand], groups: tuple[int, ...], flops: float) -> list[Operand]:
        """Adds one operation per loop iteration, and one per array that the iterations stack."""
        length: int = eqn.params["length"]
        consts, carried = compat.scan_counts(eqn)
        loop = OpenedLoop(eqn, operands[:consts], operands[consts + carried :], carried)
        carry = operands[consts : consts + carried]
        depends, (_, kept) = _union(operands), kept_of_eqn(eqn)
        for iteration in range(length):
            outputs = [Value(v.aval, depends) for v in eqn.outvars]
            for value in outputs[carried:]:
                value.part = 1 / length
            inputs = [*loop.consts, *carry, *loop.xs]
            made = Operation(
                "scan", inputs, outputs, _never, eqn, flops / length, groups, loop=loop, iteration=iteration
            )
            made.keeps_bytes = kept / length
            self._append(made)
            carry = [*outputs[:carried]]
            loop.made.append(outputs[carried:])
        stacked: list[Operand] = []
        for k, var in enumerate(eqn.outvars[carried:]):
            value = Value(var.aval, depends)
            inputs = [made[k] for made in loop.made]
            self._append(Operation("stack", inputs, [value], _never, eqn, groups=groups, loop=loop, stacks=k))
            stacked.append(value)
        return [*carry, *stacked]

    def _append(self, operation: Operation) -> None:
        for value in operation.outputs:
            value.maker = operation
        self.graph.operations.append(operation)


def _is_placed(eqn: Eqn) -> bool:
    sides = (eqn.params.get("in_shardings") or (), eqn.params.get("out_shardings") or ())
    return any(not compat.is_unspecified(s) for side in sides for s in side)


def _union(operands: Sequence[Operand]) -> int:
    depends = 0
    for operand in operands:
        if isinstance(operand, Value):
            depends |= operand.depends
    return depends


def _never(_: Sequence[Any]) -> Sequence[Any]:
    raise AssertionError("iterations are joined before they run")
