"""Compares computations by structure before they are lowered, so that equal ones are lowered only once. `lower.py` and
`common_parts.py` use it.
"""

from collections.abc import Callable
from itertools import chain
from typing import Any

from pathways.compiler.frontends.jax import compat
from pathways.compiler.frontends.jax.graph import Operand, TracedValue
from pathways.compiler.frontends.jax.groups import Group
from pathways.dialect.memo import remembered_by_identity


class Structures:
    """Describes the computation of groups. Keeps the descriptions of equations, since most occur in many groups."""

    def __init__(self) -> None:
        self._describe: Callable[[compat.Eqn], tuple[Any, ...]] = remembered_by_identity(_describe)
        self._known: dict[Any, tuple[Group, tuple[Any, ...]]] = {}
        """The descriptions of groups by the identities of their parts, with a group that keeps these parts alive."""

    def of(self, group: Group) -> tuple[Any, ...]:
        """Returns a key that is equal for groups that compute the same."""
        made = chain.from_iterable([loose.outputs for loose in group.operations])
        numbers = {value: number for number, value in enumerate(chain(group.inputs, made))}
        operands = chain.from_iterable([loose.operands for loose in group.operations])
        key = (
            tuple([id(v.aval) for v in group.inputs]),
            tuple([loose.eqns for loose in group.operations]),
            tuple([numbers[o] if isinstance(o, TracedValue) else -id(o) for o in operands]),
            tuple(map(numbers.__getitem__, group.outputs)),
        )
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = group, self._description(group, numbers)
        return known[1]

    def _description(self, group: Group, numbers: dict[TracedValue, int]) -> tuple[Any, ...]:
        parts: list[Any] = [tuple(aval_text(v.aval) for v in group.inputs)]
        for loose in group.operations:
            for eqn, operands, _ in loose.equations():  # how they are joined makes no difference
                parts.append((self._describe(eqn), *(_operand(o, numbers) for o in operands)))
        return ("group", *parts, tuple(numbers[v] for v in group.outputs))


def _describe(eqn: compat.Eqn) -> tuple[Any, ...]:
    """Describes an equation without its operands; equal for equations that compute the same."""
    params = tuple((k, _hashable(v)) for k, v in sorted(eqn.params.items()))
    return eqn.primitive.name, params, tuple(aval_text(v.aval) for v in eqn.outvars)


def _operand(operand: Operand, numbers: dict[TracedValue, int]) -> Any:
    if isinstance(operand, TracedValue):
        return numbers[operand]
    return "literal", str(operand.val), aval_text(operand.aval)


@remembered_by_identity
def aval_text(aval: compat.Aval) -> str:
    """Returns JAX's text of a type, with every detail that affects code."""
    return str(aval)


def _hashable(value: Any) -> Any:
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value
