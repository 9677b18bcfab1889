"""Traces a Python function over virtual devices into the compiler's first IR (phase `trace`). It runs all steps of the
JAX front end in order. `pathways.api` calls `trace_program` for each new signature of a program.
"""

import functools
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import jax

from pathways.compiler.collector import collector_paused
from pathways.compiler.errors import EndlessCalls, NotTraceable
from pathways.compiler.frontends.jax import compat
from pathways.compiler.frontends.jax.content import Content, content_of
from pathways.compiler.frontends.jax.emit import Emitted, Names, emit
from pathways.compiler.frontends.jax.flatten import flatten
from pathways.compiler.frontends.jax.homes import find_homes
from pathways.compiler.frontends.jax.jax_errors import translate, untraceable
from pathways.compiler.frontends.jax.lower import Lowering
from pathways.compiler.frontends.jax.own_devices import Meshes, with_virtual_devices
from pathways.compiler.frontends.jax.pieces import cut_into_pieces
from pathways.compiler.frontends.jax.pipeline.table import StageTable, noted
from pathways.compiler.frontends.jax.scalars import copy_scalars
from pathways.compiler.frontends.jax.sink import sink
from pathways.compiler.frontends.jax.zeros import drop_added_zeros
from pathways.dialect import jax_api
from pathways.dialect.activities import Activity
from pathways.dialect.diagnostics import PathwaysError, Where
from pathways.dialect.errors import BadArguments
from pathways.dialect.ir.losses import LossNote, write_losses
from pathways.dialect.jax_api import tree_util
from pathways.dialect.plan.signature import Parameter
from pathways.dialect.sources import Sources
from pathways.dialect.trees import DEEPEST_TREE, Tree, describe_tree
from pathways.dialect.user_line import where_of_exception


@dataclass(frozen=True, eq=False)
class Traced:
    """A traced program, and the pytree of its results.

    `emitted` returns the program's IR, constants and slices. It makes them at the first call, and raises coded errors
    for code that cannot be placed. Only one thread may call it.
    """

    emitted: Callable[[], Emitted]
    out_tree: Any
    timing: dict[str, float]
    """Seconds of JAX's own tracing, of its lowering, and of the rest of the phase."""
    pipelines: tuple[StageTable, ...] = ()
    """The stage tables of the losses in the program."""
    in_types: tuple[jax.ShapeDtypeStruct, ...] = ()
    out_types: tuple[jax.ShapeDtypeStruct, ...] = ()
    content: Callable[[], Content | None] = lambda: None
    """Describes all that decides the IR; None if a part is not known."""
    files: Callable[[], dict[str, str]] = dict
    """Returns the paths on this machine of the files that the IR names."""


def trace_program(
    function: Callable[..., Any],
    arguments: Sequence[Any],
    leaf_names: list[str],
    donated: frozenset[int],
    *,
    name: str,
    platform: str,
    lowering_platform: str,
    where: Where | None,
    parameters: tuple[Parameter, ...] = (),
    meshes: Meshes = MappingProxyType({}),
) -> Traced:
    """Traces `function(*arguments)`, whose arguments are pytrees of `ShapeDtypeStruct`s.

    `leaf_names` names each leaf. `donated` are positions of leaves that the caller donates. `parameters` state how the
    function is called. `meshes` maps meshes of this process's own devices to the slices that they stand for. Raises
    coded errors at the user's line.
    """
    trees: list[Any] = []

    @functools.wraps(function)  # JAX's messages name the function that it traces: this is the user's name
    def flat(*args: Any) -> list[Any]:
        out = function(*args)
        leaves, tree = tree_util.tree_flatten_with_path(out)
        trees.append(([f"out{tree_util.keystr(path)}" for path, _ in leaves], tree))
        return [leaf for _, leaf in leaves]

    begin = time.perf_counter()
    tables: list[StageTable] = []
    noting = noted.set(tables)
    try:
        with Activity(f"tracing {name}"):
            made = compat.without_refs(_make_jaxpr(flat, arguments, name, where))
            jaxpr = with_virtual_devices(made, meshes)
    finally:
        noted.reset(noting)
    traced = time.perf_counter()
    names = Names(
        name,
        leaf_names,
        trees[-1][0],
        donated,
        where,
        _described("arguments", tree_util.tree_structure(tuple(arguments)), name, where),
        _described("results", trees[-1][1], name, where),
        parameters,
    )
    sources = Sources("" if where is None else where.file)
    lowering = Lowering(platform, lowering_platform, sources)
    cut = tuple(dict.fromkeys(tables))
    timing = {"jax trace": traced - begin}
    emission = _Emission(jaxpr, names, lowering, [note for table in cut for note in table.loss_notes], timing)
    if not all(hasattr(aval, "shape") for aval in jaxpr.out_avals):
        emission.emitted()  # refuses results that are not arrays
    types = tuple(tuple(map(compat.struct, avals)) for avals in (jaxpr.in_avals, jaxpr.out_avals))
    return Traced(
        emission.emitted, trees[-1][1], timing, cut, *types, content=emission.content, files=lowering.sources.files
    )


class _Emission:
    """Emits the IR of a jaxpr at first use, and then drops the jaxpr."""

    def __init__(
        self, jaxpr: Any, names: Names, lowering: Lowering, notes: list[LossNote], timing: dict[str, float]
    ) -> None:
        self._given: tuple[Any, Names, Lowering, list[LossNote]] | None = (jaxpr, names, lowering, notes)
        self._has_x64 = bool(jax_api.config.jax_enable_x64)
        self._mesh = compat.mesh_around()
        self._timing = timing
        self._made: Emitted | None = None

    def content(self) -> Content | None:
        """Describes the program, before it is emitted."""
        if self._given is None:
            return None
        jaxpr, names, lowering, notes = self._given
        with collector_paused():
            return content_of(jaxpr, names, notes, lowering.platform, lowering.dialect)

    def emitted(self) -> Emitted:
        """Returns the IR, made under the `jax_enable_x64` and the `jax.set_mesh` of the trace."""
        if self._made is None and self._given is not None:
            jaxpr, names, lowering, notes = self._given
            begin = time.perf_counter()
            now = compat.mesh_around()
            is_around = now is None or self._mesh is None or self._mesh == now
            mesh = nullcontext() if is_around else jax_api.set_mesh(self._mesh)
            wide = jax_api.enable_x64(self._has_x64)
            with collector_paused(), wide, jax.disable_jit(False), mesh, Activity(f"lowering {names.program}"):
                self._made = _emitted(jaxpr, names, lowering)
            write_losses(self._made.program.base, notes)
            own = time.perf_counter() - begin - lowering.seconds
            self._timing |= {"jax lower": lowering.seconds, "trace": own}
            self._given = None
        assert self._made is not None
        return self._made


def _described(what: str, treedef: Any, name: str, where: Where | None) -> Tree:
    try:
        return describe_tree(treedef)
    except ValueError as error:
        problem, rule = f"the {what} of {name} are nested too deep", f"at most {DEEPEST_TREE} levels"
        advice = "use one flat list in place of nested tuples or nodes"
        wrong = BadArguments(problem=problem, have_=str(error), rule=rule, advice=advice, where=where)
        raise PathwaysError(wrong) from None


def _emitted(jaxpr: Any, names: Names, lowering: Lowering) -> Emitted:
    """Turns the jaxpr into the verified program."""
    graph = flatten(jaxpr, names.program, names.where)
    names = replace(names, cut=cut_into_pieces(graph))
    drop_added_zeros(graph)
    sink(graph)
    homes = find_homes(graph)
    copy_scalars(graph, homes)
    return emit(graph, homes, names, lowering)


@dataclass(frozen=True)
class Outline:
    """A function as JAX traced it, with the types of its results and their pytree."""

    jaxpr: Any
    results: list[jax.ShapeDtypeStruct]
    out_tree: Any


def outline(function: Callable[..., Any], arguments: Sequence[Any], *, name: str, where: Where | None) -> Outline:
    """Traces `function(*arguments)` to find the types of its results. Raises the same errors as `trace_program`."""
    trees: list[Any] = []

    @functools.wraps(function)
    def flat(*args: Any) -> list[Any]:
        leaves, tree = tree_util.tree_flatten(function(*args))
        trees.append(tree)
        return leaves

    jaxpr = _make_jaxpr(flat, arguments, name, where)
    return Outline(jaxpr, [compat.struct(aval) for aval in jaxpr.out_avals], trees[-1])


def _make_jaxpr(flat: Callable[..., Any], arguments: Sequence[Any], name: str, where: Where | None) -> Any:
    try:
        return compat.traced_jaxpr(flat, *arguments)
    except PathwaysError as error:
        vars(error).pop("__notes__", None)  # JAX's, on its own removed frames: the error has the user's line
        raise
    except RecursionError as error:
        have = f"calls that are nested deeper than Python allows: {error}"
        line = where_of_exception(error) or where
        raise PathwaysError(EndlessCalls(program=name, have_=have, where=line)) from None
    except Exception as error:
        if words := untraceable(error):
            raise _not_traceable(name, error, *words, where) from error
        if found := translate(error, where, lambda: compat.traced_jaxpr(flat, *arguments)):
            raise PathwaysError(*found, also=(type(error),)) from error
        raise


def _not_traceable(name: str, error: Exception, problem: str, advice: str, where: Where | None) -> PathwaysError:
    first = str(error).strip().splitlines()[0]
    line = where_of_exception(error) or where
    failure = NotTraceable(program=name, problem=problem, have_=first, advice=advice, where=line)
    return PathwaysError(failure, also=(type(error),))
