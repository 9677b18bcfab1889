"""Handles scan, while and cond for the analysis of losses over microbatches. It finds how their results for the whole
batch relate to those for a microbatch. Loop bodies are analyzed again until the carried values settle. `rules.py`
registers its functions.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pathways.compiler.frontends.jax import compat
from pathways.compiler.frontends.jax.compat import JaxBody, body_of
from pathways.compiler.frontends.jax.pipeline.mixing.elementwise import of_totals
from pathways.compiler.frontends.jax.pipeline.mixing.equation_pair import EquationPair, Made, Rule
from pathways.compiler.frontends.jax.pipeline.mixing.layout import Digit, Shapes, merged
from pathways.compiler.frontends.jax.pipeline.mixing.relation import (
    CONST,
    Form,
    MixingCause,
    Relation,
    Tail,
    Why,
    fill_of,
    filled,
    is_level,
    is_same_everywhere,
    tiles,
)

_MAX_ROUNDS = 12
"""After this many passes over a loop body, the state of the loop counts as not settled."""
_OF_SIZE = "a loop runs more often for more examples"
_CARRIED = "a number is carried from example to example"


def either_of(step: EquationPair, a: Relation, b: Relation, shapes: Shapes) -> Relation:
    """Returns the relation of a value that is either of two."""
    made, is_pure = _joined(step, a, b, shapes), a.is_pure and b.is_pure
    return made if made.is_pure is is_pure else replace(made, is_pure=is_pure)


def _joined(step: EquationPair, a: Relation, b: Relation, shapes: Shapes) -> Relation:
    causes = a.causes | b.causes
    if a.adds_up or b.adds_up:
        return _joined_sums(step, a, b, causes)
    if a.form is b.form is Form.CONST:
        return _joined_constants(a, b, shapes, causes)
    if Form.LOST in (a.form, b.form):
        return Relation(Form.LOST, causes=causes, has_data=True)
    if Form.ROWS in (a.form, b.form):
        return _joined_rows(step, a, b, shapes, causes)
    if Form.TAIL in (a.form, b.form):
        is_condition = {a.tail, b.tail} <= {None, Tail.ANY} and Form.TOTAL not in (a.form, b.form)
        tail = a.tail if a.tail is b.tail else Tail.ANY if is_condition else Tail.OTHER
        return Relation(Form.TAIL, tail=tail, origin=a.origin or b.origin, causes=causes)
    made = of_totals(step, [a, b], "add")
    return replace(made, causes=made.causes | causes)


def _joined_sums(step: EquationPair, a: Relation, b: Relation, causes: frozenset[MixingCause]) -> Relation:
    if a.adds_up and b.adds_up:
        if a.scale == b.scale or a.scale == 0:
            return replace(b, causes=causes)
    elif a.form is b.form is Form.CONST:
        return replace(a if a.adds_up else b, causes=causes)
    made = step.lost(Why.ORDER, _CARRIED)
    return replace(made, causes=made.causes | causes)


def _joined_constants(a: Relation, b: Relation, shapes: Shapes, causes: frozenset[MixingCause]) -> Relation:
    both = [] if a.known is None or b.known is None else list(zip(a.known, b.known, strict=True))
    if both and all(np.array_equal(x, y) for x, y in both):
        return replace(a, causes=causes)
    scales = [r.factor for r in (a, b) if not r.is_zero] or [1.0]
    is_even = is_level(a, shapes) and is_level(b, shapes)
    scale = scales[0] if is_same_everywhere(scales) else None
    return Relation(scale=scale, causes=causes, is_even=is_even, has_data=a.has_data or b.has_data)


def _joined_rows(
    step: EquationPair, a: Relation, b: Relation, shapes: Shapes, causes: frozenset[MixingCause]
) -> Relation:
    rows, other = (a, b) if a.form is Form.ROWS else (b, a)
    more = set[MixingCause]()
    if other.form is Form.ROWS and other.layout != rows.layout:
        made = step.lost(Why.PAIRS, "examples are combined in a loop")
        return replace(made, causes=made.causes | causes)
    if other.is_statistic:
        more.add(step.back(other))
    if other.form is Form.CONST and not tiles(other, shapes, rows.layout):
        more.add(step.misplaced())
    scale, sizes = step.one_scale([a, b])
    return Relation(
        Form.ROWS,
        rows.layout,
        scale,
        causes=causes | more | sizes,
        has_data=a.has_data or b.has_data,
        is_partial=a.is_partial or b.is_partial,
    )


def _is_settled(before: Sequence[Relation], after: Sequence[Relation]) -> bool:
    """Whether an iteration leaves the state of a loop as it was. The equality of relations ignores known numbers, which
    an iteration can only remove.
    """
    pairs = zip(before, after, strict=True)
    return all(a == b and (a.known is None) is (b.known is None) for a, b in pairs)


class _Scan:
    """One scan in both traces. If the loop runs over the examples, one digit is the loop iteration."""

    def __init__(self, step: EquationPair) -> None:
        self.step = step
        consts, carried = compat.scan_counts(step.whole)
        self.consts = step.ins[:consts]
        self.carry = list(step.ins[consts : consts + carried])
        self.first = consts
        self.is_over_batch = step.both[0]["length"] != step.both[1]["length"]
        self.axis: int | None = None
        self.digit: Digit | None = None
        inputs = zip(step.ins[consts + carried :], step.shapes[consts + carried :], strict=True)
        self.iterations = [self._one_iteration(r, shapes) for r, shapes in inputs]
        depends_on_size = self.is_over_batch and self.axis is None
        self.of_size = {step.cause(Why.SIZE, _OF_SIZE)} if depends_on_size else set[MixingCause]()
        """The cause for a loop that is longer for more examples, but does not run over them."""
        self.sums = set[int]()
        """Positions in the carry that hold sums over the examples."""

    def _one_iteration(self, relation: Relation, shapes: Shapes) -> Relation:
        """Relates the part of a stacked input that one iteration gets."""
        if relation.form is Form.ROWS:
            found = next((d for d in relation.layout if d.dim == 0), None)
            if found is not None:
                if self.axis is None:
                    self.axis, self.digit = self.step.walk.new_axis(), found
                covers = found.inner == (1, 1) and found.n == (shapes[0][0], shapes[1][0])
                if not covers or found != self.digit:
                    return self.step.lost(Why.PAIRS, "a loop over the batch in two different orders")
            return replace(relation, layout=self._inside(relation), known=None, own=frozenset())
        if relation.form is not Form.CONST:
            return relation
        known = filled(relation, (shapes[0][1:], shapes[1][1:]))
        is_level_over_iterations = is_level(relation, shapes)
        uneven = self.is_over_batch and known is None and (relation.known is not None or not relation.is_even)
        causes = (
            {self.step.cause(Why.POSITION, "a loop over the batch counts its rows")} if uneven else set[MixingCause]()
        )
        return replace(
            relation,
            known=known,
            scale=relation.factor,
            is_even=is_level_over_iterations and not uneven,
            causes=relation.causes | causes,
        )

    def _inside(self, relation: Relation) -> tuple[Digit, ...]:
        axis = self.axis or 0
        return tuple(
            replace(d, dim=axis, inner=(1, 1)) if d.dim == 0 else replace(d, dim=d.dim - (d.dim > 0))
            for d in relation.layout
        )

    def outside(self, relation: Relation, shapes: Shapes) -> Relation:
        """Returns the relation of a result that is stacked over the iterations."""
        if relation.adds_up:
            return self.step.lost(Why.ORDER, _CARRIED)
        if relation.form is not Form.ROWS:
            inner = shapes[0][1:], shapes[1][1:]
            is_even = is_level(relation, inner)
            return replace(relation, known=filled(relation, shapes), scale=relation.factor, is_even=is_even)
        inner = self.digit.inner if self.digit is not None else (1, 1)
        layout = merged(
            [
                replace(d, dim=0, inner=inner) if d.dim == self.axis else replace(d, dim=d.dim + (d.dim >= 0))
                for d in relation.layout
            ]
        )
        return replace(relation, layout=layout, known=None, own=frozenset())

    def settled(self) -> list[Relation] | None:
        """Walks the body until the carry settles. Returns the body's results, or None after `_MAX_ROUNDS` walks."""
        whole, part = (p["jaxpr"] for p in self.step.both)
        body = body_of(whole)
        for _ in range(_MAX_ROUNDS):
            made = self.step.walk.body(whole, part, [*self.consts, *self.carry, *self.iterations])
            carry = [self._carried(i, made[i], body) for i in range(len(self.carry))]
            if _is_settled(self.carry, carry):
                return made
            self.carry = carry
        return None

    def _carried(self, i: int, made: Relation, body: JaxBody) -> Relation:
        before = self.carry[i]
        is_loop = self.is_over_batch or self.axis is not None
        is_per_iteration = made.form is Form.ROWS and any(d.dim == self.axis for d in made.layout)
        if is_loop and is_per_iteration and i not in self.sums and before.form in (Form.CONST, Form.TOTAL):
            self.sums.add(i)
            return Relation(adds_up=True, scale=0.0, causes=before.causes, is_pure=before.is_pure and made.is_pure)
        is_handed_on = body.outvars[i] is body.invars[self.first + i]
        if self.is_over_batch and made.form is Form.CONST and not made.adds_up and not is_handed_on:
            made = replace(made, is_even=False, known=None)
        return either_of(self.step, before, made, self.step.shapes[self.first + i])

    def results(self, made: list[Relation]) -> list[Relation]:
        count = len(self.carry)
        found = [self._sum(i, made[i]) if i in self.sums else self.carry[i] for i in range(count)]
        stacked = zip(made[count:], self.step.outs[count:], strict=True)
        found += [self.outside(r, shapes) for r, shapes in stacked]
        return [replace(r, causes=r.causes | self.of_size) for r in found] if self.of_size else found

    def _sum(self, i: int, made: Relation) -> Relation:
        if not made.adds_up:
            lost = self.step.lost(Why.ORDER, _CARRIED)
            return replace(lost, causes=lost.causes | made.causes)
        initial = self.step.ins[self.first + i]
        total = Relation(Form.TOTAL, scale=made.scale or 1.0, origin=self.step.here, causes=made.causes, has_data=True)
        if initial.is_zero:
            return total
        sums = of_totals(self.step, [initial, total], "add")
        return replace(sums, causes=sums.causes | total.causes | initial.causes)


def _scan(step: EquationPair) -> Made:
    scan = _Scan(step)
    made = scan.settled()
    return step.unknown("the analysis of a loop does not converge") if made is None else scan.results(made)


def _while(step: EquationPair) -> Made:
    conditions, constants = step.params["cond_nconsts"], step.params["body_nconsts"]
    of_condition, of_body = step.ins[:conditions], step.ins[conditions : conditions + constants]
    first = conditions + constants
    carry = list(step.ins[first:])
    for _ in range(_MAX_ROUNDS):
        made = step.walk.body(step.both[0]["body_jaxpr"], step.both[1]["body_jaxpr"], [*of_body, *carry])
        pairs = zip(carry, made, step.shapes[first:], strict=True)
        joint = [either_of(step, before, after, shapes) for before, after, shapes in pairs]
        if _is_settled(carry, joint):
            break
        carry = joint
    else:
        return step.unknown("the analysis of a loop does not converge")
    (test,) = step.walk.body(step.both[0]["cond_jaxpr"], step.both[1]["cond_jaxpr"], [*of_condition, *carry])
    causes = set(test.causes)
    if test.form is Form.TAIL and test.tail is Tail.ANY:
        text = "a loop runs until all examples are done: it is not known whether finished examples still change"
        causes.add(step.cause(Why.UNKNOWN, text, test.origin))
    elif test.is_statistic:
        causes.add(step.cause(Why.CONTROL, "how often a loop runs depends on the whole batch", test.origin))
    elif test.form is not Form.CONST:
        causes.add(step.cause(Why.UNKNOWN, "how often a loop runs depends on the batch"))
    elif not is_same_everywhere([test.factor, 1.0]):
        causes.add(step.cause(Why.SIZE, "how often a loop runs depends on the number of examples"))
    return [replace(r, causes=r.causes | causes) for r in carry]


def _cond(step: EquationPair) -> Made:
    test, operands = step.ins[0], step.ins[1:]
    if test.form is not Form.CONST and (passed := _passed_by_check(step, operands)) is not None:
        return passed
    pairs = zip(step.both[0]["branches"], step.both[1]["branches"], strict=True)
    cases = [step.walk.body(whole, part, operands) for whole, part in pairs]
    if test.form is Form.CONST and test.known is not None and (taken := _taken(test, len(cases))) is not None:
        return cases[taken]
    out = list(cases[0])
    for case in cases[1:]:
        out = [either_of(step, a, b, shapes) for a, b, shapes in zip(out, case, step.outs, strict=True)]
    causes = set(test.causes)
    if test.form is Form.ROWS:
        by_example = Relation(Form.ROWS, test.layout, has_data=True)
        shapes = zip(out, step.outs, strict=True)
        fits = (Form.CONST, Form.ROWS)
        made = [either_of(step, by_example, r, s) if r.form in fits else step.unknown() for r, s in shapes]
        return [replace(r, causes=r.causes | causes) for r in made]
    if test.form is Form.TAIL and test.tail is Tail.ANY:
        causes.add(step.cause(Why.UNKNOWN, "a branch runs if any, or all, examples meet a condition", test.origin))
    elif test.is_statistic:
        causes.add(step.cause(Why.CONTROL, "which branch runs depends on the whole batch", test.origin))
    elif test.form is Form.LOST:
        causes.add(step.cause(Why.UNKNOWN, "which branch runs depends on the batch"))
    elif test.known is None and not test.is_even:
        causes.add(step.misplaced())
    elif test.known is not None or not is_same_everywhere([test.factor, 1.0]):
        causes.add(step.cause(Why.SIZE, "which branch runs depends on the number of examples"))
    return [replace(r, causes=r.causes | causes) for r in out]


def _taken(test: Relation, cases: int) -> int | None:
    """Returns the branch that both traces take, if tracing already fixes it."""
    numbers = [fill_of(k) for k in test.known or ()]
    if any(n is None for n in numbers) or numbers[0] != numbers[1]:
        return None
    return min(max(int(numbers[0]), 0), cases - 1)


def _passed_by_check(step: EquationPair, operands: Sequence[Relation]) -> list[Relation] | None:
    """Returns the results of a check that raises: one branch returns its inputs, and the others call Python."""
    bodies = [body_of(b) for b in step.params["branches"]]
    passes = [not b.eqns and all(isinstance(v, compat.Literal) or v in b.invars for v in b.outvars) for b in bodies]
    if not any(passes) or not all(p or _calls_python(b) for p, b in zip(passes, bodies, strict=True)):
        return None
    body = bodies[passes.index(True)]
    return [CONST if isinstance(v, compat.Literal) else operands[body.invars.index(v)] for v in body.outvars]


def _calls_python(body: JaxBody) -> bool:
    inner = (body_of(j) for e in body.eqns for j in compat.sub_jaxprs(e))
    return any("callback" in e.primitive.name for e in body.eqns) or any(map(_calls_python, inner))


def _linear_solve(step: EquationPair) -> Made:
    """Relates the results of `jax.lax.custom_linear_solve`: its solver is walked for the right-hand sides."""
    counts, (whole, part) = step.params["const_lengths"], (p["jaxprs"].solve for p in step.both)
    before = counts.matvec + counts.vecmat
    constants = step.ins[before : before + counts.solve]
    sides = step.ins[sum(counts) :]
    return step.walk.body(whole, part, [*constants, *sides])


RULES: dict[str, Rule] = {"scan": _scan, "while": _while, "cond": _cond, "custom_linear_solve": _linear_solve}
