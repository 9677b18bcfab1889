"""Computes a loss that is a function of sums over the batch, such as a ratio of two sums. The sums are added up over
the microbatches first, and the function is applied once. `handling.py` calls it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pathways.compiler.frontends.jax import compat
from pathways.compiler.frontends.jax.compat import Eqn
from pathways.compiler.frontends.jax.pipeline.mixing.hoist import HoistingWalk, Hoists, run_with_extras
from pathways.compiler.frontends.jax.pipeline.mixing.inline import Values, needed_for, reads_of
from pathways.compiler.frontends.jax.pipeline.mixing.relation import Form, Relation


class NotASum(Exception):
    """This equation of the loss depends on all examples, but not through sums over them."""

    def __init__(self, eqn: Eqn) -> None:
        super().__init__()
        self.eqn = eqn


@dataclass(frozen=True, eq=False)
class Totals:
    """The sums of a loss: their variables in both bodies, and their scales relative to sums over microbatches."""

    hoists: Hoists
    whole: Sequence[Any]
    part: Sequence[Any]
    scales: Sequence[float]
    loss: Any

    @property
    def both(self) -> tuple[Sequence[Any], Sequence[Any]]:
        return self.whole, self.part

    def of_microbatch(self, arguments: Sequence[Any], extras: Sequence[Any]) -> list[Any]:
        """Returns the sums over the examples of one microbatch."""
        return run_with_extras(self.hoists, 1, arguments, extras, self.part)

    def loss_of(self, totals: Sequence[Any], arguments: Sequence[Any], extras: Sequence[Any]) -> Any:
        """Returns the loss of the whole batch from the sums over the microbatches.

        `extras` are those of the whole batch.
        """
        body, used = self.hoists.whole, self.hoists.used
        values = Values(body, arguments)
        values.give([self.hoists.taken[v][0] for v, _ in used], extras[: len(used)])
        scaled = [(t * s).astype(v.aval.dtype) for t, s, v in zip(totals, self.scales, self.whole, strict=True)]
        values.give(self.whole, scaled)
        for i in needed_for(body, [self.loss], values.__contains__):
            values.run(body.eqns[i])
        return values.result(self.loss)


def totals_of(walk: HoistingWalk) -> Totals:
    """Returns the sums of the loss that was walked, which is the first result. Raises NotASum."""
    hoists = walk.hoists
    assert hoists is not None
    loss = hoists.whole.outvars[0]
    found = dict.fromkeys([loss] if _relation(walk, loss).form is Form.TOTAL else [])
    for i in reversed(needed_for(hoists.whole, [loss], lambda v: _is_there(walk, v))):
        eqn = hoists.whole.eqns[i]
        for variable in reads_of(eqn):
            relation = _relation(walk, variable)
            if relation.form is Form.TOTAL and relation.scale is not None:
                found[variable] = None
            elif relation.form not in (Form.CONST, Form.TAIL):
                raise NotASum(eqn)
    twins = {
        v: w
        for e, f in zip(hoists.whole.eqns, hoists.part.eqns, strict=True)
        for v, w in zip(e.outvars, f.outvars, strict=True)
    }
    scales = [_relation(walk, v).scale or 0.0 for v in found]
    return Totals(hoists, list(found), [twins[v] for v in found], scales, loss)


def _relation(walk: HoistingWalk, variable: Any) -> Relation:
    return walk.relations.get(variable, Relation()) if not isinstance(variable, compat.Literal) else Relation()


def _is_there(walk: HoistingWalk, variable: Any) -> bool:
    """Whether a variable need not be computed from the sums: it is a sum, or does not depend on sums."""
    return _relation(walk, variable).form is not Form.TAIL
