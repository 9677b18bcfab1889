"""Estimates the cost of each part of a loss for any number of examples, from traces with two or three batch sizes.
`pw.search` reads it for every split that it considers.

Flops and bytes of most losses grow linearly with the rows of the batch. So a loss is traced with two numbers of rows.
Numbers in between are interpolated, and a third trace checks this. A loss that compares the rows of its batch with each
other is not linear: it is traced again for each number.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pathways.compiler.frontends.jax.pipeline.graph import PARAMETER, LossGraph
from pathways.compiler.frontends.jax.pipeline.open import open_loss
from pathways.compiler.frontends.jax.pipeline.spine import Spine, spine_of
from pathways.compiler.search.checkpoints import computed_again
from pathways.compiler.search.split_parameters import Ask, Split, split_parameters
from pathways.compiler.search.subject import SearchedLoss

_SUMS = ("flops", "parameters", "kept", "crossing")
_CLOSE = 1e-6


@dataclass(frozen=True, eq=False)
class Profile:
    """A spine, and more sums over its operations (as in Spine).

    `again` are flops that the user's checkpoints compute twice. `reduced` are bytes that products add up over the model
    axis.
    """

    spine: Spine
    again: Any
    reduced: Any

    def on_line(self, other: "Profile", at: float) -> "Profile":
        """Interpolates between this profile (at 0) and another (at 1)."""
        sums = {name: _line(getattr(self.spine, name), getattr(other.spine, name), at) for name in _SUMS}
        again = _line(self.again, other.again, at)
        return Profile(replace(self.spine, **sums), again, _line(self.reduced, other.reduced, at))

    def is_like(self, other: "Profile") -> bool:
        """Whether both profiles have the same operations."""
        mine, others = ([(o.name, len(o.groups)) for o in p.spine.operations] for p in (self, other))
        return mine == others

    def is_close(self, other: "Profile") -> bool:
        pairs = [(getattr(self.spine, n), getattr(other.spine, n)) for n in _SUMS]
        pairs += [(self.again, other.again), (self.reduced, other.reduced)]
        return all(np.allclose(a, b, rtol=_CLOSE, atol=1.0) for a, b in pairs)


class Profiles:
    """The profiles of a loss, by rows of a microbatch and by devices of the model axis. `traces` counts traces."""

    def __init__(self, subject: SearchedLoss, rows: Sequence[int], stages: int, ask: Ask | None = None) -> None:
        self.traces = 0
        self._subject = subject
        self._stages = stages
        self._ask = ask
        self._traced: dict[int, tuple[Any, LossGraph]] = {}
        self._made: dict[tuple[int, int], Profile] = {}
        self._splits: dict[int, Split] = {}
        known = sorted(set(rows)) or [1]
        self._ends = known[0], known[-1]
        self.linear = len(known) <= 2 or self._is_linear(known)

    def split(self, model: int) -> Split:
        """Returns the split of the parameters over `model` devices."""
        if model not in self._splits:
            jaxpr, _ = self._trace(self._ends[0])
            self._splits[model] = split_parameters(jaxpr, self._subject.data, model, self._ask)
        return self._splits[model]

    @property
    def splits(self) -> bool:
        """Whether there are parameters to split over a model axis."""
        return bool(self.split(2).dims)

    def at(self, rows: int, model: int = 1) -> Profile:
        key = rows, model
        if key not in self._made:
            low, high = self._ends
            if self.linear and rows not in (low, high):
                share = (rows - low) / (high - low)
                self._made[key] = self.at(low, model).on_line(self.at(high, model), share)
            else:
                self._made[key] = self._measured(rows, model)
        return self._made[key]

    def _is_linear(self, known: Sequence[int]) -> bool:
        low, high = self._ends
        first, last = self._measured(low, 1), self._measured(high, 1)
        middle = known[len(known) // 2]
        between = self._measured(middle, 1)
        if not first.is_like(last) or not first.is_like(between):
            return False
        return first.on_line(last, (middle - low) / (high - low)).is_close(between)

    def _trace(self, rows: int) -> tuple[Any, LossGraph]:
        if rows not in self._traced:
            jaxpr = self._subject.jaxpr_at(rows)
            self._traced[rows] = jaxpr, open_loss(jaxpr, self._subject.data, self._stages)
            self.traces += 1
        return self._traced[rows]

    def _measured(self, rows: int, model: int) -> Profile:
        jaxpr, graph = self._trace(rows)
        split = Split(model) if model == 1 else split_parameters(jaxpr, self._subject.data, model, self._ask)
        parts = _divide(graph, split)
        spine = spine_of(graph)
        for value, part in parts:
            value.part = part
        again = [computed_again(o, graph.checkpoints) for o in spine.operations]
        return Profile(spine, _summed(again), _summed([_reduced(o, split) for o in spine.operations]))


def _divide(graph: LossGraph, split: Split) -> list[tuple[Any, float]]:
    """Counts split values as their share on one device. Returns the values with their former shares."""
    before: list[tuple[Any, float]] = []
    for value in graph.arguments:
        if value.depends == PARAMETER and value.argument in split.dims:
            before.append((value, value.part))
            value.part /= split.model
    for operation in graph.operations:
        if not operation.is_iteration and id(operation.eqn) in split.divided:
            for value in operation.outputs:
                before.append((value, value.part))
                value.part /= split.model
    return before


def _reduced(operation: Any, split: Split) -> float:
    total = split.reduced.get(id(operation.eqn), 0.0)
    if operation.stacks >= 0:  # counted in the iterations of its loop
        return 0.0
    return total / operation.loop.length if operation.is_iteration else total


def _summed(values: Sequence[float]) -> Any:
    return np.concatenate([[0.0], np.cumsum(np.array(values, float))])


def _line(a: Any, b: Any, at: float) -> Any:
    return a + (b - a) * at
