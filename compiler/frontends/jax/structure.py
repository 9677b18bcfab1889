"""Whether groups of loose operations compute the same: operations with operands numbered in order of appearance."""

from collections.abc import Callable
from typing import Any

from pathways.compiler.frontends.jax import compat
from pathways.compiler.frontends.jax.graph import Operand, TracedValue
from pathways.compiler.frontends.jax.groups import Group
from pathways.dialect.memo import remembered_by_identity


class Structures:
    """Says what groups compute. Remembers what was said of equations: most occur in many groups."""

    def __init__(self) -> None:
        self._said: Callable[[compat.Eqn], tuple[Any, ...]] = remembered_by_identity(_said)

    def of(self, group: Group) -> tuple[Any, ...]:
        """Equal for groups that compute the same."""
        numbers: dict[TracedValue, int] = {}
        for value in group.inputs:
            numbers[value] = len(numbers)
        parts: list[Any] = [tuple(aval_text(v.aval) for v in group.inputs)]
        for loose in group.operations:
            parts.append((tuple(map(self._said, loose.eqns)), *(_operand(o, numbers) for o in loose.operands)))
            for value in loose.outputs:
                numbers[value] = len(numbers)
        return ("group", *parts, tuple(numbers[v] for v in group.outputs))


def _said(eqn: compat.Eqn) -> tuple[Any, ...]:
    """What an equation says beside its operands; equal for equations that compute the same."""
    params = tuple((k, _hashable(v)) for k, v in sorted(eqn.params.items()))
    return eqn.primitive.name, params, tuple(aval_text(v.aval) for v in eqn.outvars)


def _operand(operand: Operand, numbers: dict[TracedValue, int]) -> Any:
    if isinstance(operand, TracedValue):
        return numbers[operand]
    return "literal", str(operand.val), aval_text(operand.aval)


@remembered_by_identity
def aval_text(aval: compat.Aval) -> str:
    """A type with all that makes code differ, as JAX writes it."""
    return str(aval)


def _hashable(value: Any) -> Any:
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value
