"""Turns arrays that a jitted function closes over into operands of its StableHLO module. Otherwise the text of the
module would contain their values. `lower.py` and `flatten.py` call it.

`jax.make_jaxpr` keeps the consts of an inner jit inside it. Lowering would print a 1 MiB weight as 1 MiB of text. This
module lists the consts of a callee and of the jits inside it. `apply` evaluates the callee with these consts as
operands. Consts of a jit inside a *loop* of the callee stay in its module.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from pathways.compiler.frontends.jax import compat
from pathways.compiler.frontends.jax.compat import Eqn, JaxBody, body_of, is_unspecified
from pathways.dialect.jax_api import jit


def hoisted_consts(jaxpr: Any) -> list[Any]:
    """Returns the arrays that a jaxpr and the jits inside it close over, in the order in which `apply` takes them."""
    body = body_of(jaxpr)
    found = list(body.consts)
    for eqn in body.eqns:
        if _is_jit(eqn):
            found += hoisted_consts(eqn.params["jaxpr"])
    return found


def apply(jaxpr: Any, consts: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
    """Evaluates a jaxpr with its hoisted constants taken from `consts`."""
    return _apply(body_of(jaxpr), iter(consts), arguments)


def _apply(body: JaxBody, consts: Iterator[Any], arguments: Sequence[Any]) -> list[Any]:
    env: dict[Any, Any] = dict(zip(body.invars, arguments, strict=True))
    for var in body.constvars:
        env[var] = next(consts)

    def read(atom: Any) -> Any:
        return compat.as_literal_value(atom) if isinstance(atom, compat.Literal) else env[atom]

    for eqn in body.eqns:
        values = [read(a) for a in eqn.invars]
        own = hoisted_consts(eqn.params["jaxpr"]) if _is_jit(eqn) else []
        out = _jit_with_consts(eqn, [next(consts) for _ in own], values) if own else compat.bind(eqn, values)
        env.update(zip(eqn.outvars, out, strict=True))
    return [read(a) for a in body.outvars]


def _is_jit(eqn: Eqn) -> bool:
    return eqn.primitive.name in ("jit", "pjit")


def _jit_with_consts(eqn: Eqn, consts: list[Any], values: list[Any]) -> list[Any]:
    """Calls an inner jit with its consts as operands. Keeps its shardings and its name."""
    params = eqn.params

    def inner(consts: list[Any], *values: Any) -> list[Any]:
        return apply(params["jaxpr"], consts, values)

    inner.__name__ = params["name"]
    ins = tuple(None if is_unspecified(s) else s for s in params["in_shardings"])
    outs = [None if is_unspecified(s) else s for s in params["out_shardings"]]
    return jit(inner, in_shardings=(None, *ins), out_shardings=outs)(consts, *values)
