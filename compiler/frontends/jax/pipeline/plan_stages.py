"""Plans the pipeline stages of a loss: traces it, expands what is too large, chooses the cuts, and assembles the
stages. It needs only the types of the arguments, and computes no values. `pipeline.py` calls it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from jax.sharding import Mesh

from pathways.compiler.frontends.jax.pipeline.assemble import Stages, assemble_stages, read
from pathways.compiler.frontends.jax.pipeline.by_hand import Cuts, cut_by_hand
from pathways.compiler.frontends.jax.pipeline.costs import Costs, Demands
from pathways.compiler.frontends.jax.pipeline.divide import Cut, best_cut, least_memory
from pathways.compiler.frontends.jax.pipeline.errors import CannotCut, NoCutFits
from pathways.compiler.frontends.jax.pipeline.graph import LossGraph, Operation, Value
from pathways.compiler.frontends.jax.pipeline.open import open_loss
from pathways.compiler.frontends.jax.pipeline.planning import demands_of
from pathways.compiler.frontends.jax.pipeline.shardings import axes_of
from pathways.compiler.frontends.jax.pipeline.spine import Spine, spine_of
from pathways.dialect.diagnostics import PathwaysError, Where
from pathways.dialect.jax_api import make_jaxpr, tree_util
from pathways.dialect.topology import readable

_STATE_RATIO_WITHOUT_OPTIMIZER = 2.0
"""Bytes of parameters and gradients per byte of parameters."""


@dataclass(frozen=True, eq=False)
class Planned:
    """A loss that is cut. `out_tree` is the pytree structure of its result."""

    spine: Spine
    cut: Cut
    demands: Demands
    assembled: Stages
    out_tree: Any


@dataclass(frozen=True)
class Subject:
    """The name and the source line of a loss, for errors."""

    name: str
    where: Where | None


def plan_stages(
    subject: Subject,
    flat: Callable[..., Any],
    avals: Sequence[Any],
    data: frozenset[int],
    meshes: Sequence[Mesh],
    microbatches: int,
    cuts: Cuts,
    shards: Callable[[int], int],
    known: tuple[Any, Any] | None = None,
) -> Planned:
    """Cuts `flat(*leaves)`, with leaves of the types `avals`, into one stage per mesh.

    `data` holds the positions of the batch's leaves. `shards(i)` returns the number of devices that leaf i is split
    over. `known` is the jaxpr of `flat` and the structure of its results, if it is already traced. Raises PWC0111 if
    the loss has no position to cut at, and PWC0113 if no cut fits the memory.
    """
    jaxpr, out_tree = _traced(flat, avals, meshes) if known is None else known
    graph = open_loss(jaxpr, data, len(meshes))
    for argument in graph.arguments:
        if argument.argument not in data:
            argument.part = 1 / shards(argument.argument)
    spine, demands = spine_of(graph), demands_of(meshes, microbatches)
    _check_divisible(subject, graph, spine, demands.stages)
    cut = cut_by_hand(spine, cuts, demands.stages) if cuts is not None else best_cut(spine, demands)
    if cut is None:  # it may fit without optimizer state: the compiler's later count decides
        demands = replace(demands, states=_STATE_RATIO_WITHOUT_OPTIMIZER)
        cut = best_cut(spine, demands)
    if cut is None:
        raise _no_cut_fits(subject, spine, demands)
    return Planned(spine, cut, demands, assemble_stages(graph, spine, cut.places), out_tree)


def _traced(flat: Callable[..., Any], avals: Sequence[Any], meshes: Sequence[Mesh]) -> tuple[Any, Any]:
    trees: list[Any] = []

    def traced(*leaves: Any) -> list[Any]:
        out, tree = tree_util.tree_flatten(flat(*leaves))
        trees.append(tree)
        return out

    with axes_of(meshes):
        return make_jaxpr(traced)(*avals), trees[-1]


def _check_divisible(subject: Subject, graph: LossGraph, spine: Spine, stages: int) -> None:
    """Raises PWC0111 if there are too few positions, or one operation has over 1.5 times the mean work of a stage."""
    share = graph.flops / stages
    large = max(graph.indivisible, key=lambda o: o.flops, default=None)
    if stages > 1 and large is not None and large.flops > 1.5 * share:
        have = f"one {large.name} with {large.flops / graph.flops:.0%} of the operations, which cannot be divided"
        rule = f"no operation with much more than {1 / stages:.0%} of the work, for {stages} stages"
        advice = "fewer slices, or apply it to each layer separately"
        raise PathwaysError(_cannot(subject, stages, have, rule, advice, large.where or subject.where))

    if len(spine) < stages:
        have = f"{len(spine)} operations that depend on both parameters and data"
        rule = f"at least {stages}, one per stage"
        advice = "fewer slices; batch_argnums must name the arguments that are data"
        raise PathwaysError(_cannot(subject, stages, have, rule, advice, subject.where))


def _cannot(subject: Subject, stages: int, have: str, rule: str, advice: str, where: Where | None) -> CannotCut:
    return CannotCut(loss=subject.name, stages=stages, have_=have, rule=rule, advice=advice, where=where)


def _no_cut_fits(subject: Subject, spine: Spine, demands: Demands) -> PathwaysError:
    """Returns PWC0113 with the cut that needs the least memory, and its stage that does not fit."""
    places, costs = least_memory(spine, demands), Costs(spine, demands)
    needs = [float(costs.bytes(a, b, k)) for k, (a, b) in enumerate(pairwise(places))]
    full = max(range(demands.stages), key=lambda k: needs[k] / (demands.memory[k] or math.inf))
    first, last = spine.operations[places[full]], spine.operations[places[full + 1] - 1]
    limit = demands.memory[full] or 0.0
    parameters = float(spine.parameters[places[full + 1]] - spine.parameters[places[full]])
    states = f"{readable(round(parameters * demands.states))} are parameters and their gradients"
    kept = f"the rest is activations of {demands.in_flight[full]} microbatches"
    lines = f"{_line(first)} to {_line(last)}"
    error = NoCutFits(
        loss=subject.name,
        stages=demands.stages,
        have_=f"in the best cut stage {full} ({lines}) needs {readable(round(needs[full]))} a device: {states}, {kept}",
        rule=f"at most {readable(round(limit))} a device for each stage",
        advice="more slices, param_specs, jax.checkpoint around layers, or schedule 1f1b with more microbatches",
        where=first.where or subject.where,
    )
    return PathwaysError(error)


def _line(operation: Operation) -> str:
    where = operation.where
    return operation.name if where is None else where.at


def result_values(planned: Planned, env: dict[Value, Any]) -> Any:
    """Returns the result of the loss, from the values of all stages."""
    leaves = [read(result, env) for result in planned.assembled.graph.results]
    return tree_util.tree_unflatten(planned.out_tree, leaves)
