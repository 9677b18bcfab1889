"""Phase `trace`: a Python function over virtual devices becomes a module of phase `trace`."""

import contextvars
import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from pathways.compiler.collector import collector_paused
from pathways.compiler.errors import BadArguments, NotTraceable
from pathways.compiler.frontend import compat
from pathways.compiler.frontend.emit import Emitted, Names, emit
from pathways.compiler.frontend.flatten import flatten
from pathways.compiler.frontend.homes import find_homes
from pathways.compiler.frontend.jax_errors import translate
from pathways.compiler.frontend.lower import Lowering, symbol_of
from pathways.compiler.frontend.sink import sink
from pathways.dialect.diagnostics import PathwaysError, Where
from pathways.dialect.jax_api import tree_util
from pathways.dialect.mlir import make_context
from pathways.dialect.program import Program
from pathways.dialect.sources import Sources
from pathways.dialect.trees import DEEPEST, Tree, describe_tree
from pathways.dialect.verify import verify

tracing: contextvars.ContextVar[str | None] = contextvars.ContextVar("pathways_tracing", default=None)
"""The program that this thread traces just now."""


@dataclass(frozen=True)
class Traced:
    """The module with its constants, and what the pytree of results looks like."""

    emitted: Emitted
    out_tree: Any


def trace(
    function: Callable[..., Any],
    arguments: Sequence[Any],
    leaf_names: list[str],
    donated: frozenset[int],
    *,
    name: str,
    platform: str,
    lowering_platform: str,
    where: Where | None,
) -> Traced:
    """Traces `function(*arguments)`, whose arguments are pytrees of `ShapeDtypeStruct`s.

    `leaf_names` names each leaf; `donated` are positions of leaves that the caller gives up. Raises coded errors at
    the user's line.
    """
    trees: list[Any] = []

    @functools.wraps(function)  # JAX names the function it traces in its messages: the user's
    def flat(*args: Any) -> list[Any]:
        out = function(*args)
        leaves, tree = tree_util.tree_flatten_with_path(out)
        trees.append(([f"out{tree_util.keystr(path)}" for path, _ in leaves], tree))
        return [leaf for _, leaf in leaves]

    begin = time.perf_counter()
    token = tracing.set(name)
    try:
        jaxpr = _make_jaxpr(flat, arguments, name, where)
    finally:
        tracing.reset(token)
    traced = time.perf_counter()
    names = Names(
        name,
        leaf_names,
        trees[-1][0],
        donated,
        where,
        _described("arguments", tree_util.tree_structure(tuple(arguments)), name, where),
        _described("results", trees[-1][1], name, where),
    )
    sources = Sources("" if where is None else where.file)
    lowering = Lowering(platform, lowering_platform, symbol_of(name), sources)
    with collector_paused():
        emitted = _emitted(jaxpr, names, lowering)
    own = time.perf_counter() - traced - lowering.seconds
    emitted.timing.update({"jax trace": traced - begin, "jax lower": lowering.seconds, "trace": own})
    return Traced(emitted, trees[-1][1])


def _described(what: str, treedef: Any, name: str, where: Where | None) -> Tree:
    try:
        return describe_tree(treedef)
    except ValueError as error:
        problem, rule = f"the {what} of {name} are nested too deep", f"at most {DEEPEST} levels"
        advice = "a list in place of a chain of tuples or nodes"
        wrong = BadArguments(problem=problem, have_=str(error), rule=rule, advice=advice, where=where)
        raise PathwaysError(wrong) from None


def _emitted(jaxpr: Any, names: Names, lowering: Lowering) -> Emitted:
    """From the jaxpr to the module, verified."""
    graph = flatten(jaxpr, names.program, names.where)
    sink(graph)
    homes = find_homes(graph)
    emitted = emit(graph, homes, names, lowering, make_context())
    verify(Program(emitted.module))
    return emitted


_UNTRACEABLE: tuple[tuple[type[Exception], str, str], ...] = (
    (
        jax.errors.ConcretizationTypeError,
        "it uses the value of an array to decide what to do",
        "use jnp.where or lax.cond inside a placed function, or mark the argument in static_argnums",
    ),
    (
        jax.errors.UnexpectedTracerError,
        "a traced value was kept outside of the function that made it",
        "return all values from the functions of a program",
    ),
    (
        jax.errors.TracerArrayConversionError,
        "it gives the value of an array to something that is not JAX",
        "use jax.numpy in place of numpy",
    ),
)
"""What JAX says of functions it cannot trace: the error, what it means, what to do."""


def _make_jaxpr(flat: Callable[..., Any], arguments: Sequence[Any], name: str, where: Where | None) -> Any:
    try:
        return compat.make_jaxpr(flat, *arguments)
    except tuple(cls for cls, _, _ in _UNTRACEABLE) as error:
        problem, advice = next((p, a) for cls, p, a in _UNTRACEABLE if isinstance(error, cls))
        raise _not_traceable(name, problem, error, advice, where) from error
    except TypeError as error:
        if "valid JAX type" not in str(error):
            raise
        problem = "a value in it is not an array"
        raise _not_traceable(name, problem, error, "pass arrays as arguments and return arrays", where) from error
    except PathwaysError:
        raise
    except Exception as error:
        if found := translate(error, where, lambda: compat.make_jaxpr(flat, *arguments)):
            raise PathwaysError(*found) from error
        raise


def _not_traceable(name: str, problem: str, error: Exception, advice: str, where: Where | None) -> PathwaysError:
    first = str(error).strip().splitlines()[0]
    line = compat.where_of_exception(error) or where
    return PathwaysError(NotTraceable(program=name, problem=problem, have_=first, advice=advice, where=line))
