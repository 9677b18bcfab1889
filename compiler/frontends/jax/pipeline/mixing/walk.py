"""Walks two traces of a loss equation by equation: for the whole batch and for one microbatch. For each equation it
finds how the two results relate. `analyze.py` and `hoist.py` call it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from pathways.compiler.frontends.jax import compat
from pathways.compiler.frontends.jax.compat import Eqn, body_of
from pathways.compiler.frontends.jax.pipeline.mixing import randomness
from pathways.compiler.frontends.jax.pipeline.mixing.constants import constant
from pathways.compiler.frontends.jax.pipeline.mixing.elementwise import elementwise
from pathways.compiler.frontends.jax.pipeline.mixing.equation_pair import EquationPair, Made
from pathways.compiler.frontends.jax.pipeline.mixing.relation import (
    KNOWN_LIMIT,
    NO_CAUSES,
    Form,
    Relation,
    Site,
    Why,
)
from pathways.compiler.frontends.jax.pipeline.mixing.rules import CALLS, IN_CALLS, RULES
from pathways.compiler.frontends.jax.pipeline.mixing.soundness import checked

_any_np = cast("Any", np)
_AXES = (
    "dimension_numbers",
    "axes",
    "axis",
    "dimension",
    "dimensions",
    "permutation",
    "broadcast_dimensions",
    "reverse",
)
"""Parameters that name the axes of an equation. They must be equal in both traces: einsum may choose them by size."""
_BY_JAX = ("/jax/_src/", "/jax/")
"""Parts of the paths of functions that JAX itself wrote. For these, the user's line is that of the call."""


class ProgramsDiffer(Exception):
    """The loss is another program for another number of examples.

    It differs from `site` on, or only at its end if `site` is None.
    """

    def __init__(self, site: Site | None) -> None:
        self.site = site


class Walk:
    """One walk over a loss.

    `count` is the number of microbatches. `batches` holds the numbers of examples in both traces.
    """

    def __init__(self, count: int, batches: frozenset[tuple[int, int]]) -> None:
        self.count = count
        self._batches = batches
        self._calls: tuple[tuple[Eqn, bool], ...] = ()
        self._sites: dict[tuple[int, ...], Site] = {}
        self._axes: dict[Any, int] = {}
        self.backward: list[Site] = []
        """Custom derivatives, except JAX's own: they may mix examples in the backward pass alone."""

    def site(self, eqn: Eqn) -> Site:
        """Returns the place of an equation within the calls that are walked now."""
        key = (id(eqn), *(id(call) for call, _ in self._calls))
        return self._sites.setdefault(key, Site(eqn, self._calls))

    def batch_sizes(self) -> frozenset[tuple[int, int]]:
        """Returns the numbers of examples in both traces, one pair for each kind of batch array."""
        return self._batches

    def new_axis(self) -> int:
        """Returns a dimension below zero that no digit has yet."""
        return self.named_axis(object())

    def named_axis(self, name: Any) -> int:
        """Returns the dimension below zero of a mesh axis."""
        return self._axes.setdefault(name, -1 - len(self._axes))

    def body(self, whole: Any, part: Any, ins: Sequence[Relation]) -> list[Relation]:
        """Walks one jaxpr in both traces. Raises ProgramsDiffer if their equations differ."""
        a, b = body_of(whole), body_of(part)
        env: dict[Any, Relation] = dict(zip(a.invars, ins, strict=True))
        twins: dict[Any, Any] = dict(zip((*a.constvars, *a.invars), (*b.constvars, *b.invars), strict=False))
        for var, x, y in zip(a.constvars, a.consts, b.consts, strict=False):
            env[var] = closed_over(x, y)

        def read(x: Any, y: Any, eqn: Eqn | None) -> Relation:
            are_literals = isinstance(x, compat.Literal), isinstance(y, compat.Literal)
            if all(are_literals):
                return _literal(x, y)
            if any(are_literals) or twins.get(x) is not y:
                raise ProgramsDiffer(None if eqn is None else self.site(eqn))
            return env[x]

        for one, other in zip(a.eqns, b.eqns, strict=False):
            if one.primitive is not other.primitive or axis_counts(one) != axis_counts(other):
                raise ProgramsDiffer(self.site(one))
            if not works_along_same_axes(one.params, other.params):
                raise ProgramsDiffer(self.site(one))
            operands = [read(x, y, one) for x, y in zip(one.invars, other.invars, strict=True)]
            env.update(zip(one.outvars, self.equation(one, other, operands), strict=True))
            twins.update(zip(one.outvars, other.outvars, strict=True))
        if len(a.eqns) != len(b.eqns):
            raise ProgramsDiffer(None)
        return [read(x, y, None) for x, y in zip(a.outvars, b.outvars, strict=True)]

    def equation(self, whole: Eqn, part: Eqn, ins: list[Relation]) -> list[Relation]:
        """Returns the relations of an equation's results, with all causes of its operands."""
        name = whole.primitive.name
        if name in CALLS and CALLS[name] in whole.params:
            return self._call(whole, part, CALLS[name], ins)
        step = EquationPair(self, whole, part, ins)
        if name in IN_CALLS:
            step = step.with_ins([_as_numbers(step, r) for r in ins])
            with_body = self._inside(whole, is_of_jax=False)
            try:
                made = _listed(RULES[name](step), step)
            finally:
                self._calls = with_body
            is_pure = _are_pure(ins)
            if name == "scan" and not is_pure:  # each result has its own purity
                return made
            return [r if r.is_pure is is_pure else replace(r, is_pure=is_pure) for r in made]
        made = _listed(self._rule(step), step)
        if not all(r.form is Form.CONST for r in ins):
            made = checked(step, made)
        if any(r.own for i, r in enumerate(ins) if not _is_index(name, i)) and not any(r.own for r in made):
            ins = [_as_numbers(step, r) for r in ins]
        causes, is_pure = NO_CAUSES.union(*(r.causes for r in ins)), _are_pure(ins)
        return [
            r if r.is_pure is is_pure and r.causes >= causes else replace(r, causes=r.causes | causes, is_pure=is_pure)
            for r in made
        ]

    def _rule(self, step: EquationPair) -> Made:
        if any(r.adds_up for r in step.ins):
            if step.name in RULES and RULES[step.name] is elementwise:
                return elementwise(step)
            return step.lost(Why.ORDER, "a number is carried from example to example")
        if all(r.form is Form.CONST for r in step.ins) and step.name not in randomness.RULES:
            return constant(step, RULES)
        if any(r.form is Form.LOST for r in step.ins):
            return Relation(Form.LOST, has_data=True)
        return RULES[step.name](step) if step.name in RULES else step.unknown()

    def _call(self, whole: Eqn, part: Eqn, parameter: str, ins: list[Relation]) -> list[Relation]:
        inner = whole.params[parameter]
        is_of_jax = is_written_by_jax(inner)
        is_custom = whole.primitive.name.startswith(("custom_vjp", "custom_jvp"))
        if is_custom and not is_of_jax:
            self.backward.append(self.site(whole))
        outer = self._inside(whole, is_of_jax=is_of_jax)
        try:
            return self.body(inner, part.params[parameter], ins)
        finally:
            self._calls = outer

    def _inside(self, eqn: Eqn, *, is_of_jax: bool) -> tuple[tuple[Eqn, bool], ...]:
        """Enters a call; returns the calls around it."""
        outer = self._calls
        self._calls = (*outer, (eqn, is_of_jax))
        return outer


def works_along_same_axes(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Whether two equations work along the same axes; sizes may differ."""
    return all(a[name] == b[name] for name in _AXES if name in a)


def axis_counts(eqn: Eqn) -> tuple[list[int], list[int]]:
    """Returns the numbers of axes of an equation's operands and results."""
    operands, results = ([len(getattr(v.aval, "shape", ())) for v in side] for side in (eqn.invars, eqn.outvars))
    return operands, results


def is_written_by_jax(jaxpr: Any) -> bool:
    """Returns whether JAX itself wrote the function that a jaxpr was traced from."""
    source = compat.func_source(jaxpr)
    return any(path in source for path in _BY_JAX)


def _is_index(name: str, operand: int) -> bool:
    return operand == 1 and name.startswith(("gather", "scatter"))


def _as_numbers(step: EquationPair, relation: Relation) -> Relation:
    """Returns indices that are used as numbers: the examples' own numbers are other numbers in a microbatch."""
    if not relation.own:
        return relation
    return replace(relation, own=frozenset(), causes=relation.causes | {step.cause(Why.POSITION)})


def _are_pure(ins: Sequence[Relation]) -> bool:
    return all(r.is_pure for r in ins)


def _listed(made: Made, step: EquationPair) -> list[Relation]:
    return made if isinstance(made, list) else [made] * len(step.outs)


def _literal(x: Any, y: Any) -> Relation:
    return _known(compat.as_literal_value(x), compat.as_literal_value(y))


def closed_over(x: Any, y: Any) -> Relation:
    """Returns the relation of an array that the loss closes over. It is known if it is small and holds numbers."""
    shapes: list[Any] = [tuple(getattr(a, "shape", ())) for a in (x, y)]
    is_array = isinstance(x, np.ndarray | np.generic | int | float | complex) or compat.is_concrete(x)
    is_key = is_array and compat.is_key(compat.aval_of(x))
    if is_array and not is_key and math.prod(shapes[0]) <= KNOWN_LIMIT:
        return _known(x, y)
    is_comparable = is_array and not is_key and shapes[0] == shapes[1]
    is_same = x is y or (is_comparable and bool(_any_np.array_equal(x, y)))
    return Relation(is_even=is_same, is_pure=True)


def _known(x: Any, y: Any) -> Relation:
    try:
        return Relation(known=(np.asarray(x), np.asarray(y)), is_pure=True)
    except (TypeError, ValueError, RuntimeError):  # keys, and arrays that were donated
        return Relation(is_pure=True)
