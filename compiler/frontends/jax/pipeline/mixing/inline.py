"""Inlines the calls of `jax.jit` in a jaxpr, so that all equations are in one list. `hoist.py` and `totals.py` use it
to run only a part of a loss.
"""

from collections.abc import Callable, Sequence
from typing import Any

from pathways.compiler.frontends.jax import compat
from pathways.compiler.frontends.jax.compat import Eqn, JaxBody, body_of
from pathways.compiler.frontends.jax.pipeline.work import JITS
from pathways.dialect.jax_api import numpy


def with_jits_opened(jaxpr: Any) -> JaxBody:
    """Returns the body of a jaxpr with its `jax.jit` calls inlined.

    Variables get new names, since a call may occur twice.
    """
    body = body_of(jaxpr)
    constvars, consts = list(body.constvars), list(body.consts)
    eqns: list[Eqn] = []

    def walk(inner: JaxBody, names: dict[Any, Any]) -> list[Any]:
        def read(atom: Any) -> Any:
            return atom if isinstance(atom, compat.Literal) else names.get(atom, atom)

        for eqn in inner.eqns:
            operands = [read(atom) for atom in eqn.invars]
            called = eqn.params.get("jaxpr") if eqn.primitive.name in JITS else None
            if called is not None:
                callee = body_of(called)
                inside = dict(zip(callee.invars, operands, strict=True))
                for var, const in zip(callee.constvars, callee.consts, strict=True):
                    inside[var] = compat.variable(var.aval)
                    constvars.append(inside[var])
                    consts.append(const)
                names.update(zip(eqn.outvars, walk(callee, inside), strict=True))
            elif inner is body:
                eqns.append(eqn.replace(invars=operands))
            else:
                fresh = [compat.variable(v.aval) for v in eqn.outvars]
                names.update(zip(eqn.outvars, fresh, strict=True))
                eqns.append(eqn.replace(invars=operands, outvars=fresh))
        return [read(atom) for atom in inner.outvars]

    results = walk(body, {})
    return JaxBody(constvars, consts, body.invars, eqns, results)


def reads_of(eqn: Eqn) -> list[Any]:
    """Returns the variables that an equation reads."""
    return [atom for atom in eqn.invars if not isinstance(atom, compat.Literal)]


def needed_for(body: JaxBody, targets: Sequence[Any], stop: Callable[[Any], bool]) -> list[int]:
    """Returns the positions of the equations that compute `targets`, in order.

    `stop(variable)` is true if the variable is already available.
    """
    need = {v for v in targets if not isinstance(v, compat.Literal) and not stop(v)}
    found: list[int] = []
    for position in reversed(range(len(body.eqns))):
        eqn = body.eqns[position]
        if need.intersection(eqn.outvars):
            found.append(position)
            need.update(v for v in reads_of(eqn) if not stop(v))
    return found[::-1]


class Values:
    """The values of the variables of a body while it is evaluated."""

    def __init__(self, body: JaxBody, arguments: Sequence[Any]) -> None:
        self._given: set[Any] = set()
        self._values: dict[Any, Any] = dict(zip(body.constvars, body.consts, strict=True))
        self._values.update(zip(body.invars, arguments, strict=True))

    def __contains__(self, variable: Any) -> bool:
        return variable in self._values

    def read(self, atom: Any) -> Any:
        return compat.as_literal_value(atom) if isinstance(atom, compat.Literal) else self._values[atom]

    def result(self, atom: Any) -> Any:
        """Returns the value of a body's result, as an array even if it is a literal."""
        value = self.read(atom)
        return numpy.asarray(value, atom.aval.dtype) if isinstance(atom, compat.Literal) else value

    def give(self, variables: Sequence[Any], values: Sequence[Any]) -> None:
        """Sets values that stay: equations that compute the same variables do not overwrite them."""
        self._given.update(variables)
        self._values.update(zip(variables, values, strict=True))

    def write(self, variables: Sequence[Any], values: Sequence[Any]) -> None:
        self._values.update((v, x) for v, x in zip(variables, values, strict=True) if v not in self._given)

    def run(self, eqn: Eqn) -> None:
        """Evaluates one equation, under its own source line."""
        self.write(eqn.outvars, compat.bind(eqn, [self.read(atom) for atom in eqn.invars]))
