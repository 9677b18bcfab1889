"""Represents one equation of a loss in two traces, for the whole batch and for one microbatch. For each operand it also
holds how the two values relate. `walk.py` makes one for each equation, and the function for that primitive reads it.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeAlias

from pathways.compiler.frontends.jax.compat import Eqn
from pathways.compiler.frontends.jax.pipeline.mixing.layout import BOTH, Layout, Shapes
from pathways.compiler.frontends.jax.pipeline.mixing.relation import (
    NO_CAUSES,
    Form,
    MixingCause,
    Relation,
    Site,
    Why,
    is_close,
)


class Walking(Protocol):
    """The interface of a walk that rules use."""

    count: int
    """The number of microbatches."""

    def site(self, eqn: Eqn) -> Site:
        """Returns the place of an equation in the loss."""
        ...

    def body(self, whole: Any, part: Any, ins: Sequence[Relation]) -> list[Relation]:
        """Returns the relations of the results of an inner jaxpr."""
        ...

    def new_axis(self) -> int:
        """Returns a dimension below zero, for a digit that is not an axis of an array."""
        ...

    def named_axis(self, name: Any) -> int:
        """Returns the dimension below zero of a mesh axis."""
        ...


BY_PLACE = "rows are selected by their position in the batch"
Made: TypeAlias = Relation | list[Relation]


class EquationPair:
    """One equation in both traces, with the relations of its operands."""

    __slots__ = ("ins", "name", "outs", "part", "shapes", "walk", "whole")

    def __init__(self, walk: Walking, whole: Eqn, part: Eqn, ins: list[Relation]) -> None:
        self.walk = walk
        self.whole = whole
        self.part = part
        self.ins = ins
        self.name: str = whole.primitive.name
        self.shapes: list[Shapes] = [
            (tuple(a.aval.shape), tuple(b.aval.shape)) for a, b in zip(whole.invars, part.invars, strict=True)
        ]
        self.outs: list[Shapes] = [
            (tuple(a.aval.shape), tuple(b.aval.shape)) for a, b in zip(whole.outvars, part.outvars, strict=True)
        ]

    @property
    def params(self) -> dict[str, Any]:
        return self.whole.params

    @property
    def both(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns the parameters in both traces."""
        return self.whole.params, self.part.params

    @property
    def here(self) -> Site:
        return self.walk.site(self.whole)

    @property
    def rows(self) -> list[Relation]:
        return [r for r in self.ins if r.form is Form.ROWS]

    def with_ins(self, ins: list[Relation]) -> "EquationPair":
        """Returns the same equation with other relations of its operands."""
        return EquationPair(self.walk, self.whole, self.part, ins)

    def rank(self, operand: int = 0) -> int:
        return len(self.shapes[operand][0])

    def is_whole_axis(self, dim: int) -> bool:
        """Returns whether a gather or a dynamic slice takes all of an axis of its operand, in both traces."""
        return all(self.both[t]["slice_sizes"][dim] == self.shapes[0][t][dim] for t in BOTH)

    def cause(self, why: Why, text: str = "", source: Site | None = None) -> MixingCause:
        return MixingCause(why, self.here, text or why.value, source)

    def back(self, statistic: Relation) -> MixingCause:
        return self.cause(Why.BACK, source=statistic.origin)

    def lost(self, why: Why, text: str = "") -> Relation:
        return Relation(Form.LOST, causes=frozenset({self.cause(why, text)}), has_data=True)

    def unknown(self, text: str = "") -> Relation:
        return self.lost(Why.UNKNOWN, text or f"there is no rule for {self.name}")

    def combines(self) -> Relation:
        return self.lost(Why.PAIRS, "examples are combined with examples in another order or on another axis")

    def with_layout(self, rows: Relation, layout: Layout | None, **more: Any) -> Relation:
        """Returns the same rows in another layout, or a lost relation if there is none."""
        if layout is None:
            return self.lost(Why.UNKNOWN, f"{self.name} splits the batch in an unknown way")
        return replace(rows, layout=layout, known=None, own=frozenset(), **more)

    def touched(self, relation: Relation, dims: set[int], why: Why, text: str) -> Relation:
        """Returns the relation, with a cause if the equation works along an axis that numbers examples."""
        relation = replace(relation, known=None, own=frozenset())
        if relation.form is Form.ROWS and any(d.dim in dims for d in relation.layout):
            return replace(relation, causes=relation.causes | {self.cause(why, text)})
        return relation

    def misplaced(self) -> MixingCause:
        """Returns the cause for a constant that differs, or may differ, from row to row."""
        if all(r.known is not None or r.is_even for r in self.ins if r.form is Form.CONST):
            return self.cause(Why.POSITION)
        return self.cause(Why.UNKNOWN, "it is not known whether a number depends on the position of an example")

    def unscaled(self, relation: Relation) -> Relation:
        """Returns rows with scale one. Rows with another scale get a cause."""
        if relation.form is not Form.ROWS or is_close(relation.scale, 1):
            return relation
        return replace(relation, scale=1.0, causes=relation.causes | {self.cause(Why.SIZE)}, has_data=True)

    def one_scale(self, ins: Sequence[Relation]) -> tuple[float | None, frozenset[MixingCause]]:
        """Returns the scale of all rows and constants, and a cause if they have several."""
        found = [r.factor for r in ins if r.form in (Form.ROWS, Form.CONST) and not r.is_zero]
        if all(is_close(scale, found[0]) for scale in found):
            return (found[0] if found else 1.0), NO_CAUSES
        return 1.0, frozenset({self.cause(Why.SIZE)})


Rule: TypeAlias = Callable[[EquationPair], Made]
"""Returns the relations of an equation's results. One relation stands for all results."""
