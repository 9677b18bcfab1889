"""Finds values in a loss that mix examples but depend on no parameter, such as a token count or noise. They are
computed once for the whole batch, outside of the microbatches. `handling.py` analyzes a loss with it, and
`whole_batch.py` runs the loss with it.

Such values are also the mean of the advantages, and inputs normalized by the batch. Each microbatch gets its rows of
such a value, or all of a statistic. The rest of the loss is then a sum over microbatches, for any schedule.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pathways.compiler.frontends.jax import compat
from pathways.compiler.frontends.jax.compat import Eqn, JaxBody
from pathways.compiler.frontends.jax.pipeline.mixing.analyze import Traces, arguments_of
from pathways.compiler.frontends.jax.pipeline.mixing.inline import Values, needed_for, reads_of, with_jits_opened
from pathways.compiler.frontends.jax.pipeline.mixing.layout import Digit, Shapes, grown_axes
from pathways.compiler.frontends.jax.pipeline.mixing.relation import (
    NO_CAUSES,
    Form,
    Relation,
    Why,
    is_close,
    is_level,
)
from pathways.compiler.frontends.jax.pipeline.mixing.walk import Walk
from pathways.compiler.frontends.jax.pipeline.work import REMATS
from pathways.dialect import jax_api

_any_lax: Any = jax_api.lax


@dataclass(frozen=True)
class Extra:
    """A value that the whole batch computes.

    Its rows go to the microbatches along `axis`. If `axis` is None, each microbatch gets the whole value.
    """

    axis: int | None

    @property
    def in_a_loop(self) -> "Extra":
        """Returns the same value stacked over all iterations of a loop."""
        return Extra(None if self.axis is None else self.axis + 1)


@dataclass(eq=False)
class Hoists:
    """Variables that are hoisted out of one body, in both traces, and out of its inner bodies.

    The walk fills it. Afterwards it does not change, so a microbatch's equations and extras are derived once.
    """

    whole: JaxBody
    part: JaxBody
    taken: dict[Any, tuple[Any, Extra]] = field(default_factory=dict[Any, tuple[Any, Extra]])
    """Maps a variable of the microbatch's body to the same variable of the whole batch's body, with its extra."""
    inner: dict[int, "Hoists"] = field(default_factory=dict[int, "Hoists"])
    """Maps the position of an equation with a body to the hoists of the body."""

    @property
    def both(self) -> tuple[JaxBody, JaxBody]:
        return self.whole, self.part

    @cached_property
    def main(self) -> list[int]:
        """Returns the positions of the equations that a microbatch runs, in order, including those with effects."""
        effects = [v for e in self.part.eqns if e.effects for v in reads_of(e)]
        needed = set(needed_for(self.part, [*self.part.outvars, *effects], self.taken.__contains__))
        return [i for i, e in enumerate(self.part.eqns) if i in needed or e.effects]

    @cached_property
    def used(self) -> list[tuple[Any, Extra]]:
        """Returns the hoisted variables that a microbatch gets, with their extras, in order of first read."""
        read = [v for i in self.main for v in reads_of(self.part.eqns[i])]
        read += [v for v in self.part.outvars if not isinstance(v, compat.Literal)]
        return [(v, self.taken[v][1]) for v in dict.fromkeys(read) if v in self.taken]

    @cached_property
    def loops(self) -> list[int]:
        """Returns the positions of the equations whose bodies get extras."""
        return [i for i in self.main if i in self.inner and self.inner[i].extras]

    @cached_property
    def extras(self) -> list[Extra]:
        """Returns all extras that a microbatch gets: those of this body first, then those of inner bodies."""
        own = [extra for _, extra in self.used]
        for i in self.loops:
            is_loop = self.part.eqns[i].primitive.name == "scan"
            own += [e.in_a_loop if is_loop else e for e in self.inner[i].extras]
        return own


class HoistingWalk(Walk):
    """A walk that records values that can be computed once for the whole batch, and continues as if they were given."""

    def __init__(self, count: int, batches: frozenset[tuple[int, int]], *, takes: bool = True) -> None:
        super().__init__(count, batches)
        self._takes = takes
        """Whether it hoists values. Otherwise it only inlines jits and records relations."""
        self.hoists: Hoists | None = None
        self.relations: dict[Any, Relation] = {}
        """Relations of the variables in the loss's own body, for the whole batch."""
        self._bodies: dict[int, JaxBody] = {}
        self._current: Hoists | None = None
        self._enters: int | None = -1
        """Position of the equation whose body is walked next; -1 for the loss itself, None for a body to skip."""

    def body(self, whole: Any, part: Any, ins: Sequence[Relation]) -> list[Relation]:
        outer, position = self._current, self._enters
        if position is None:
            return super().body(whole, part, ins)
        made = Hoists(self._inlined(whole), self._inlined(part))
        if outer is None:
            self.hoists = made
            self.relations.update(zip(made.whole.invars, ins, strict=True))
        else:
            outer.inner[position] = made  # the last walk of a loop counts: its state has settled
        self._current = made
        try:
            return super().body(made.whole, made.part, ins)
        finally:
            self._current, self._enters = outer, position

    def equation(self, whole: Eqn, part: Eqn, ins: list[Relation]) -> list[Relation]:
        current, outer = self._current, self._enters
        if current is None or outer is None:
            return super().equation(whole, part, ins)
        can_enter = whole.primitive.name in REMATS or _is_loop_over_others(whole, part, ins)
        self._enters = current.whole.eqns.index(whole) if can_enter else None
        try:
            made = super().equation(whole, part, ins)
            known = NO_CAUSES.union(*(r.causes for r in ins))
            if self._takes and any(c.why is Why.POSITION for r in made for c in r.causes - known):
                made = super().equation(whole, part, self._with_places(current, whole, part, ins))
        finally:
            self._enters = outer
        results = zip(whole.outvars, part.outvars, made, strict=True)
        made = [self._offered(current, x, y, relation) for x, y, relation in results]
        if current is self.hoists:
            self.relations.update(zip(whole.outvars, made, strict=True))
        return made

    def _with_places(self, current: Hoists, whole: Eqn, part: Eqn, ins: list[Relation]) -> list[Relation]:
        """Hoists constants that differ from row to row, so that each microbatch gets its rows of them."""
        found = list(ins)
        for i, (x, y, relation) in enumerate(zip(whole.invars, part.invars, ins, strict=True)):
            shapes = tuple(x.aval.shape), tuple(y.aval.shape)
            if relation.form is not Form.CONST or not relation.is_pure or is_level(relation, shapes):
                continue
            is_read_elsewhere = sum(v is y for e in current.part.eqns for v in e.invars) > 1
            grown = grown_axes(shapes)
            digit = self._digit(shapes, grown[0]) if len(grown) == 1 and not is_read_elsewhere else None
            if digit is not None:
                current.taken[y] = x, Extra(digit.dim)
                found[i] = Relation(Form.ROWS, (digit,), has_data=True, is_pure=True)
        return found

    def _inlined(self, jaxpr: Any) -> JaxBody:
        if id(jaxpr) not in self._bodies:
            self._bodies[id(jaxpr)] = with_jits_opened(jaxpr)
        return self._bodies[id(jaxpr)]

    def _offered(self, current: Hoists, whole: Any, part: Any, relation: Relation) -> Relation:
        """Hoists a value if that helps. Returns its new relation, or the given relation if it is not hoisted."""
        if not self._takes or not relation.is_pure or relation.adds_up or _is_clean(relation):
            return relation
        shapes = tuple(whole.aval.shape), tuple(part.aval.shape)
        grown = grown_axes(shapes)
        if not grown:
            current.taken[part] = whole, Extra(None)
            return Relation(is_pure=True)
        digit = self._digit(shapes, grown[0]) if len(grown) == 1 else None
        if digit is None:
            return relation
        current.taken[part] = whole, Extra(digit.dim)
        return Relation(Form.ROWS, (digit,), has_data=True, is_pure=True)

    def _digit(self, shapes: Shapes, dim: int) -> Digit | None:
        """Returns the digit of the one axis that grows. Its examples are the most significant part."""
        whole, part = shapes[0][dim], shapes[1][dim]
        for examples in self.batch_sizes():
            inner = whole // examples[0]
            if (whole, part) == (examples[0] * inner, examples[1] * inner) and whole == part * self.count:
                return Digit(dim, (inner, inner), examples)
        return None


def _is_loop_over_others(whole: Eqn, part: Eqn, ins: Sequence[Relation]) -> bool:
    """Whether an equation is a loop over layers or time, whose iterations are not examples."""
    if whole.primitive.name != "scan" or whole.params["length"] != part.params["length"]:
        return False
    stacked = ins[sum(compat.scan_counts(whole)) :]
    return not any(d.dim == 0 for r in stacked if r.form is Form.ROWS for d in r.layout)


def _is_clean(relation: Relation) -> bool:
    """Whether the microbatch's own trace computes the right value."""
    if relation.causes or relation.is_partial:
        return False
    is_constant = relation.form is Form.CONST
    return relation.form is Form.ROWS or (is_constant and (relation.known is not None or is_close(relation.scale, 1)))


def hoisted(traces: Traces, *, takes: bool = True) -> tuple[list[Relation], HoistingWalk]:
    """Relates a loss's results. Hoists values if it `takes`. Raises ProgramsDiffer."""
    ins, sizes = arguments_of(traces)
    walk = HoistingWalk(traces.count, sizes, takes=takes)
    return walk.body(traces.whole, traces.part, ins), walk


def made_once(hoists: Hoists, arguments: Sequence[Any]) -> list[Any]:
    """Computes all extras from the whole batch's arguments, in the order of `Hoists.extras`."""
    body = hoists.whole
    values = Values(body, arguments)
    targets = [hoists.taken[v][0] for v, _ in hoists.used]
    loops = hoists.loops
    for i in loops:
        targets += _reads_of_extras(body.eqns[i], hoists.inner[i])
    for i in needed_for(body, targets, values.__contains__):
        values.run(body.eqns[i])
    found = [values.read(hoists.taken[v][0]) for v, _ in hoists.used]
    for i in loops:
        found += _made_in_body(body.eqns[i], hoists.inner[i], values)
    return found


def _reads_of_extras(eqn: Eqn, inner: Hoists) -> list[Any]:
    """Returns the variables around an equation with a body that the body's extras depend on."""
    counts = compat.scan_counts(eqn) if eqn.primitive.name == "scan" else (0, 0)
    pairs = zip(eqn.invars, _needs(inner, *counts), strict=True)
    return [v for v, is_needed in pairs if is_needed and _is_variable(v)]


def _is_variable(atom: Any) -> bool:
    return not isinstance(atom, compat.Literal)


def _needs(inner: Hoists, consts: int, carried: int) -> list[bool]:
    """Returns which arguments of a body its extras depend on. For a loop, the inputs of its needed state count, too."""
    body = inner.whole
    targets = [inner.taken[v][0] for v, _ in inner.used]
    for i in inner.loops:
        targets += _reads_of_extras(body.eqns[i], inner.inner[i])
    while True:
        positions = needed_for(body, targets, _never)
        read = {*targets, *(v for i in positions for v in reads_of(body.eqns[i]))}
        needed = [v in read for v in body.invars]
        state = [v for v, need in zip(body.outvars[:carried], needed[consts : consts + carried], strict=True) if need]
        if all(v in targets for v in state if _is_variable(v)):
            return needed
        targets += [v for v in state if _is_variable(v)]


def _never(_: Any) -> bool:
    return False


def _known(eqn: Eqn, around: Values, needed: Sequence[bool]) -> list[Any]:
    """Returns the operands of an equation that are needed, with None in place of the others."""
    return [around.read(a) if is_needed else None for a, is_needed in zip(eqn.invars, needed, strict=True)]


def _made_in_body(eqn: Eqn, inner: Hoists, around: Values) -> list[Any]:
    """Returns the extras of a body; for a loop, those of all iterations."""
    if eqn.primitive.name != "scan":
        return made_once(inner, _known(eqn, around, _needs(inner, 0, 0)))
    consts, carried = compat.scan_counts(eqn)
    needed = _needs(inner, consts, carried)
    known = _known(eqn, around, needed)
    state = [i for i in range(carried) if needed[consts + i]]

    def iteration(carry: Sequence[Any], given: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        arguments = [*known[:consts], *([None] * carried), *given]
        for i, value in zip(state, carry, strict=True):
            arguments[consts + i] = value
        values = Values(inner.whole, arguments)
        after = [inner.whole.outvars[i] for i in state]
        for position in needed_for(inner.whole, after, values.__contains__):
            values.run(inner.whole.eqns[position])
        return [values.read(v) for v in after], made_once(inner, arguments)

    first = [known[consts + i] for i in state]
    options = {name: eqn.params[name] for name in ("length", "reverse", "unroll")}
    _, made = _any_lax.scan(iteration, first, known[consts + carried :], **options)
    return list(made)


def run_with_extras(
    hoists: Hoists, t: int, arguments: Sequence[Any], extras: Sequence[Any], results: Sequence[Any] | None = None
) -> list[Any]:
    """Computes a loss's results, or other variables of its body, from arguments and extras.

    `t` is 0 for the whole batch, with all of the extras, and 1 for one microbatch, with its part of the extras.
    """
    body, used = hoists.both[t], hoists.used
    values = Values(body, arguments)
    values.give([hoists.taken[v][0] if t == 0 else v for v, _ in used], extras[: len(used)])
    rest = list(extras[len(used) :])
    loops = set(hoists.loops)
    for i in hoists.main:
        eqn = body.eqns[i]
        if i in loops:
            inner = hoists.inner[i]
            count = len(inner.extras)
            given, rest = rest[:count], rest[count:]
            values.write(eqn.outvars, _run_body(eqn, inner, t, [values.read(a) for a in eqn.invars], given))
        else:
            values.run(eqn)
    return [values.result(v) for v in (body.outvars if results is None else results)]


def _run_body(eqn: Eqn, inner: Hoists, t: int, arguments: list[Any], extras: list[Any]) -> list[Any]:
    if eqn.primitive.name != "scan":

        def body(given: list[Any], more: list[Any]) -> list[Any]:
            return run_with_extras(inner, t, given, more)

        options = {name: eqn.params[name] for name in ("prevent_cse", "policy")}
        return jax_api.checkpoint(body, **options)(arguments, extras)
    consts, carried = compat.scan_counts(eqn)

    def iteration(carry: Sequence[Any], given: tuple[Sequence[Any], Sequence[Any]]) -> tuple[list[Any], list[Any]]:
        made = run_with_extras(inner, t, [*arguments[:consts], *carry, *given[0]], given[1])
        return made[:carried], made[carried:]

    options = {name: eqn.params[name] for name in ("length", "reverse", "unroll")}
    stacked = arguments[consts + carried :], extras
    state, made = _any_lax.scan(iteration, arguments[consts : consts + carried], stacked, **options)
    return [*state, *made]
