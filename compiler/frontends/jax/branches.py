"""Traces `lax.cond`, `switch`, `while_loop` and `fori_loop` if their bodies call jits on several meshes. Each body
becomes a graph of its own. `flatten.py` calls it.

JAX has already turned values that a body closes over into operands. Small constants that remain belong to the body.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from jax import lax

from pathways.compiler.frontends.jax.alike import RunOfEquations
from pathways.compiler.frontends.jax.compat import (
    Eqn,
    JaxBody,
    as_function,
    body_of,
    struct,
    traced_jaxpr,
    where_of_equation,
)
from pathways.compiler.frontends.jax.graph import Constant, ControlFlow, Operand, TracedGraph, TracedValue
from pathways.compiler.frontends.jax.homes import aval_bytes
from pathways.compiler.frontends.jax.sink import sink, substitute
from pathways.dialect.ir.arguments import INLINE_LIMIT
from pathways.dialect.jax_api import numpy, optimization_barrier


class Walker(Protocol):
    """The methods that control flow needs from the graph walk in `flatten.py`."""

    run: RunOfEquations

    def inside(self, graph: TracedGraph) -> "Walker": ...
    def constant(self, array: Any, name: str = "") -> Constant: ...
    def as_value(self, operand: Operand) -> TracedValue: ...
    def inline(self, body: JaxBody, operands: Sequence[Operand], scope: str) -> list[Operand]: ...
    def traced(self, function: Callable[..., Any], operands: Sequence[Operand], scope: str) -> list[Operand]: ...


def branch(walker: Walker, eqn: Eqn, operands: Sequence[Operand], scope: str) -> list[Operand]:
    """Adds a `cond` or a `while` with placed calls inside to the graph, and returns its results."""
    values = [walker.as_value(o) for o in operands]
    kind: str = eqn.primitive.name
    if kind == "cond":
        bodies = [_choice(walker, jaxpr, values[1:], scope) for jaxpr in eqn.params["branches"]]
        first, fixed = values[:1], len(values) - 1
    else:
        bodies = _loop(walker, eqn.params, values, scope)
        first, fixed = [], eqn.params["cond_nconsts"] + eqn.params["body_nconsts"]
    large = _hoist(walker, bodies)
    taken, fixed = [*large, *values[len(first) :]], fixed + len(large)
    used = [i for i in range(len(taken)) if i >= fixed or any(b.inputs[i] in b.used() for b in bodies)]
    for body in bodies:
        body.inputs = [body.inputs[i] for i in used]
    outputs = [TracedValue(v.aval) for v in eqn.outvars]
    taken = [taken[i] for i in used]
    walker.run.add(ControlFlow(kind, bodies, [*first, *taken], outputs, where_of_equation(eqn)))
    return [*outputs]


def _hoist(walker: Walker, bodies: Sequence[TracedGraph]) -> list[TracedValue]:
    """Turns large constants of bodies into their first operands. The program then stores and counts each one once."""
    large = [[c for c in body.constants() if aval_bytes(c.aval) > INLINE_LIMIT] for body in bodies]
    outside: list[TracedValue] = list(dict.fromkeys(walker.constant(c.array, c.name) for found in large for c in found))
    for body, found in zip(bodies, large, strict=True):
        fresh = {outer: TracedValue(outer.aval) for outer in outside}
        copies: dict[TracedValue, TracedValue] = {c: fresh[walker.constant(c.array)] for c in found}
        for node in body.nodes:
            substitute(node, copies)
        body.inputs = [*fresh.values(), *body.inputs]
        body.outputs = [copies.get(v, v) for v in body.outputs]
    return outside


_Fill = Callable[[Walker, list[Operand]], Sequence[Operand]]


def _body(walker: Walker, taken: Sequence[TracedValue], fill: _Fill) -> TracedGraph:
    """Builds the graph of one body over values of the types of `taken`."""
    graph = TracedGraph([TracedValue(v.aval) for v in taken])
    inner = walker.inside(graph)
    graph.outputs = [inner.as_value(o) for o in fill(inner, [*graph.inputs])]
    graph.prune()
    sink(graph)
    return graph


def _choice(walker: Walker, jaxpr: Any, taken: Sequence[TracedValue], scope: str) -> TracedGraph:
    return _body(walker, taken, lambda inner, values: inner.inline(body_of(jaxpr), values, scope))


def _loop(walker: Walker, params: dict[str, Any], taken: Sequence[TracedValue], scope: str) -> list[TracedGraph]:
    """Builds the graphs of a loop: the test, and the body."""
    n_cond, n_body = params["cond_nconsts"], params["body_nconsts"]
    test, step = body_of(params["cond_jaxpr"]), body_of(params["body_jaxpr"])
    many = len(test.outvars[0].aval.shape)

    def goes_on(inner: Walker, values: list[Operand]) -> list[Operand]:
        return inner.inline(test, [*values[:n_cond], *values[n_cond + n_body :]], scope)

    def any_goes_on(inner: Walker, values: list[Operand]) -> list[Operand]:
        return inner.traced(numpy.any, goes_on(inner, values), scope) if many else goes_on(inner, values)

    def once(inner: Walker, values: list[Operand]) -> list[Operand]:
        made = inner.inline(step, values[n_cond:], scope)
        if not many:
            return made
        # Under vmap, a loop runs until all examples are finished. Finished examples keep their values.
        (still,), old = goes_on(inner, values), values[n_cond + n_body :]
        return [inner.traced(_where, [still, a, b], scope)[0] for a, b in zip(made, old, strict=True)]

    return [_body(walker, taken, any_goes_on), _body(walker, taken, once)]


def fenced(eqn: Eqn) -> Eqn:
    """Ends each branch of a `cond` in a barrier. XLA rejects branches whose results are split differently."""
    branches: list[Any] = []
    for jaxpr in eqn.params["branches"]:
        values = [struct(v.aval) for v in body_of(jaxpr).invars]
        branches.append(traced_jaxpr(_fenced(as_function(jaxpr)), *values))
    return eqn.replace(params={**eqn.params, "branches": tuple(branches)})


def _fenced(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: optimization_barrier(function(*args))


def _where(condition: Any, yes: Any, no: Any) -> Any:
    spread = numpy.reshape(condition, condition.shape + (1,) * (yes.ndim - condition.ndim))
    return lax.select(numpy.broadcast_to(spread, yes.shape), yes, no)
