"""Joins many small equations of a traced program into one graph node, so that later steps of the front end are faster.
It joins equations outside of the user's placed jits that depend on results of the same placed calls. The walks that
build the graph add their nodes through it.

A loop over microbatches adds hundreds of gradients in every iteration. Results of the same calls on the same mesh, in
one run of equations, have the same home mesh (homes.py) and the same ancestors. If the equations of a node turn out to
differ, the node is split again. For example, one equation is unused, or reads a value that the others do not wait for.

The first two iterations of a loop add its equations one by one. Later iterations add each row of them at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby
from typing import Any, NamedTuple

from pathways.compiler.frontends.jax.compat import Eqn, Literal, Var
from pathways.compiler.frontends.jax.graph import (
    Call,
    Constant,
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
    members: "list[HeldBack]" = field(default_factory=list["HeldBack"])


class HeldBack(NamedTuple):
    """One unplaced equation, or a row of them: the parts of a node."""

    eqns: tuple[Eqn, ...]
    operands: list[Operand]
    outputs: list[TracedValue]
    scope: str
    where: Where | None

    def nodes(self) -> list[Loose]:
        """Returns one node per equation."""
        return Loose(*self).apart()


class RowOfEquations(NamedTuple):
    """Consecutive equations of a loop's body that had the same origins in an iteration. Each has one result."""

    eqns: tuple[Eqn, ...]
    invars: list[Var]
    outvars: list[Var]
    width: int
    """The number of operands of each equation."""


class RunOfEquations:
    """Adds nodes to a graph. Holds unplaced equations back until the next placed node."""

    def __init__(self, graph: TracedGraph, *, join: bool) -> None:
        self._graph = graph
        self._join = join
        self._origins: dict[TracedValue, _Origin] = {}
        self._pending: list[HeldBack] = []
        self._unplaced: list[HeldBack] = []
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
        single = HeldBack((eqn,), operands, outputs, scope, where)
        if not self._join:
            self._graph.nodes += single.nodes()
            return
        known = self._origins
        found = frozenset([known[v] for v in operands if isinstance(v, TracedValue) and v in known])
        self._hold_back(single, found, has_effects=bool(eqn.effects))

    def add_row(
        self, row: RowOfEquations, operands: list[Operand], scope: str, where: Where | None
    ) -> list[TracedValue] | None:
        """Adds a row of equations of a later iteration, and returns their results.

        Returns None, and adds nothing, if the equations have different origins in this iteration, or none.
        """
        if not _VALUES.issuperset(map(type, operands)):
            return None
        columns = [set(map(self._origins.get, operands[i :: row.width])) for i in range(row.width)]
        found = frozenset([origin for column in columns for origin in column if origin is not None])
        if not found or any(len(column) > 1 for column in columns):
            return None
        outputs = [TracedValue(var.aval) for var in row.outvars]
        self._hold_back(HeldBack(row.eqns, operands, outputs, scope, where), found, has_effects=False)
        return outputs

    def _hold_back(self, single: HeldBack, found: frozenset[_Origin], *, has_effects: bool) -> None:
        """Adds equations with these origins to the run."""
        self._pending.append(single)
        if not found:
            self._unplaced.append(single)
            return
        key = found, single.scope, id(single.where), has_effects
        origin = self._open.get(key)
        if origin is None:
            mesh, *others = {o.mesh for o in found}
            origin = self._open[key] = _Origin(None if others or has_effects else mesh)
        origin.members.append(single)
        self._origins.update(dict.fromkeys(single.outputs, origin))

    def find_rows(self, walked: Sequence[tuple[int, Eqn, list[TracedValue]]]) -> list[RowOfEquations]:
        """Finds the rows of equations that had the same origins in this iteration.

        `walked` gives the number of each equation in its body, and its results.
        """
        simple = [(n, eqn, made[0]) for n, eqn, made in walked if len(made) == 1 and _is_simple(eqn)]

        def row_of(one: tuple[int, tuple[int, Eqn, TracedValue]]) -> tuple[int, int, int]:
            rank, (number, eqn, made) = one
            return number - rank, id(self._origins.get(made)), len(eqn.invars)

        found: list[RowOfEquations] = []
        for (_, _, width), row in groupby(enumerate(simple), row_of):
            members = list(row)
            _, (_, _, made) = members[0]
            if len(members) >= FEWEST and made in self._origins:
                eqns = tuple(eqn for _, (_, eqn, _) in members)
                invars = [var for eqn in eqns for var in eqn.invars]
                found.append(RowOfEquations(eqns, invars, [eqn.outvars[0] for eqn in eqns], width))
        return found

    def end(self) -> None:
        """Adds all equations that were held back, in program order or grouped by origin."""
        opened = self._open.values()
        if any(_is_worth_it(origin) for origin in opened):
            nodes = self._graph.nodes
            nodes += _nodes(self._unplaced)
            for origin in opened:
                nodes += [joined(origin.members)] if _is_worth_it(origin) else _nodes(origin.members)
        else:
            self._graph.nodes += _nodes(self._pending)
        for origin in opened:
            origin.members = []
        self._pending, self._unplaced, self._open = [], [], {}


_VALUES = frozenset({TracedValue, Constant})


def _is_simple(eqn: Eqn) -> bool:
    """Whether an equation has operands, all of which are values, and no effect."""
    return bool(eqn.invars) and not eqn.effects and not any(isinstance(a, Literal) for a in eqn.invars)


def _is_worth_it(origin: _Origin) -> bool:
    return origin.mesh is not None and sum(len(member.eqns) for member in origin.members) >= FEWEST


def _nodes(members: list[HeldBack]) -> list[Loose]:
    """Returns one node per equation."""
    return [node for member in members for node in member.nodes()]


def joined(members: list[HeldBack]) -> Loose:
    """Joins several equations into one node. No equation may read a result of another."""
    eqns, operands, outputs, scopes, lines = zip(*members, strict=True)
    values = [*chain.from_iterable(operands)], [*chain.from_iterable(outputs)]
    return Loose((*chain.from_iterable(eqns),), *values, scopes[0], lines[0])
