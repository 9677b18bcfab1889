"""Joins many small equations of a traced program into one graph node, so that later steps of the front end are faster.
It joins equations outside of the user's placed jits that depend on results of the same placed calls. The walks that
build the graph add their nodes through it.

A loop over microbatches adds hundreds of gradients in every iteration. Results of the same calls on the same mesh, in
one run of equations, have the same home mesh (homes.py) and the same ancestors. If the equations of a node turn out to
differ, the node is split again. For example, one equation is unused, or reads a value that the others do not wait for.
"""

from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

from pathways.compiler.frontends.jax.compat import Eqn
from pathways.compiler.frontends.jax.graph import (
    Call,
    ControlFlow,
    ExplicitMove,
    Loose,
    Operand,
    TracedGraph,
    TracedValue,
)
from pathways.compiler.frontends.jax.meshes import SliceMesh
from pathways.dialect.diagnostics import Where

FEWEST = 8
"""Minimum number of equations to join into one node. Smaller programs keep the order in which they were written."""


@dataclass(eq=False, slots=True)
class _Origin:
    """The source of values, compared by identity: a placed call, or equations with the same origins."""

    mesh: SliceMesh | None
    """The mesh of the values; None if more than one mesh is possible."""
    members: "list[Single]" = field(default_factory=list["Single"])


class Single(NamedTuple):
    """One unplaced equation: the parts of its node."""

    eqn: Eqn
    operands: list[Operand]
    outputs: list[TracedValue]
    scope: str
    where: Where | None

    def node(self) -> Loose:
        return Loose((self.eqn,), self.operands, self.outputs, self.scope, self.where)


class RunOfEquations:
    """Adds nodes to a graph. Holds unplaced equations back until the next placed node."""

    def __init__(self, graph: TracedGraph, *, join: bool) -> None:
        self._graph = graph
        self._join = join
        self._origins: dict[TracedValue, _Origin] = {}
        self._pending: list[Single] = []
        self._unplaced: list[Single] = []
        self._open: dict[Any, _Origin] = {}

    def add(self, node: Call | ExplicitMove | ControlFlow) -> None:
        """Ends the run, and adds a node after it."""
        self.end()
        self._graph.nodes.append(node)
        if self._join:
            origin = _Origin(None if isinstance(node, ControlFlow) else node.mesh)
            self._origins.update(dict.fromkeys(node.outputs, origin))

    def loose(
        self, eqn: Eqn, operands: list[Operand], outputs: list[TracedValue], scope: str, where: Where | None
    ) -> None:
        """Adds an equation to the run."""
        single = Single(eqn, operands, outputs, scope, where)
        if not self._join:
            self._graph.nodes.append(single.node())
            return
        self._pending.append(single)
        known = self._origins
        found = frozenset([known[v] for v in operands if isinstance(v, TracedValue) and v in known])
        if not found:
            self._unplaced.append(single)
            return
        key = found, scope, id(where), bool(eqn.effects)
        origin = self._open.get(key)
        if origin is None:
            mesh, *others = {o.mesh for o in found}
            origin = self._open[key] = _Origin(None if others or eqn.effects else mesh)
        origin.members.append(single)
        for value in outputs:
            known[value] = origin

    def end(self) -> None:
        """Adds all equations that were held back, in program order or grouped by origin."""
        opened = self._open.values()
        if any(_is_worth_it(origin) for origin in opened):
            nodes = self._graph.nodes
            nodes += [single.node() for single in self._unplaced]
            for origin in opened:
                nodes += [joined(origin.members)] if _is_worth_it(origin) else [m.node() for m in origin.members]
        else:
            self._graph.nodes += [single.node() for single in self._pending]
        for origin in opened:
            origin.members = []
        self._pending, self._unplaced, self._open = [], [], {}


def _is_worth_it(origin: _Origin) -> bool:
    return origin.mesh is not None and len(origin.members) >= FEWEST


def joined(members: list[Single]) -> Loose:
    """Joins several equations into one node. No equation may read a result of another."""
    eqns, operands, outputs, scopes, lines = zip(*members, strict=True)
    return Loose(eqns, [*chain.from_iterable(operands)], [*chain.from_iterable(outputs)], scopes[0], lines[0])
