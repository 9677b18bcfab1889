"""Estimates the time of a step for numbers of microbatches that were not simulated, and decides which to simulate.
`pwc simulate --sweep --top` calls it. `SweepLine` collects the simulated times; the functions are pure.

A step of m microbatches takes about `a + b m + c / m` seconds: work that m does not change, the overheads of each
microbatch, and the waits at both ends of a pipeline, which are shorter for smaller microbatches. This formula is fitted
to the simulated numbers of a line. Its relative errors at these numbers are interpolated, so an estimate of a simulated
number is exact.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from pathways.compiler.simulate.figures import StepFigures
from pathways.dialect.late_imports import import_late

SIMULATED_PER_LINE = 4
"""Numbers of microbatches that are simulated on each line before any is estimated, if the line has as many."""
MAX_QUICK_MICROBATCHES = 64
"""The first simulations of a line use at most this many microbatches if the line has `SIMULATED_PER_LINE` such numbers,
since more take longer to compile. Greater numbers are simulated only if an estimate ranks them, or even greater ones,
among the fastest, or if all others are refused."""
MAX_EXTRAPOLATION = 2
"""A number above this multiple of the largest simulated one is simulated only after smaller ones."""
MAX_REFUSALS = 6
"""Refusals after which a line is estimated from the numbers that are simulated. Without a simulated number, the line is
abandoned."""
SHORTEST_S = 1e-12
"""Shorter times are taken as this one, since relative errors of zero seconds are infinite."""
Cell: TypeAlias = tuple[int, int]
"""The number of a line, and a number of microbatches."""


@dataclass(frozen=True)
class Estimated:
    """The estimated time of a step that was not simulated."""

    seconds: float


Outcome: TypeAlias = StepFigures | Estimated | str
"""The simulation of a combination, an estimate of it, or the text of its error."""


@dataclass(eq=False)
class SweepLine:
    """All numbers of microbatches of one schedule and placement, in order, and what is known of them."""

    counts: Sequence[int]
    seconds: dict[int, float] = field(default_factory=dict[int, float])
    """Seconds of a step, for the numbers that were simulated."""
    refused: set[int] = field(default_factory=set[int])
    """Numbers that the compiler refused."""

    @property
    def untried(self) -> list[int]:
        """The numbers that were not tried."""
        return [count for count in self.counts if count not in self.seconds and count not in self.refused]

    def next_to_simulate(self) -> int | None:
        """Returns the next number to simulate before the line is estimated; None if enough are known."""
        if len(self.seconds) >= SIMULATED_PER_LINE or len(self.refused) >= MAX_REFUSALS:
            return None
        quick = self.counts[: max(SIMULATED_PER_LINE, bisect_right(self.counts, MAX_QUICK_MICROBATCHES))]
        untried = set(self.untried)
        is_last = len(self.refused) == MAX_REFUSALS - 1 or untried.isdisjoint(quick)
        largest = self.counts[-1:] if is_last and not self.seconds else ()
        if ends := [count for count in (*largest, *quick[:1], *quick[-1:]) if count in untried]:
            return ends[0]
        tried = [math.log(count) for count in (*self.seconds, *self.refused)]
        left = (count for count in quick if count in untried)
        return max(left, key=lambda count: min(abs(math.log(count) - other) for other in tried), default=None)

    def next_towards(self, count: int) -> int:
        """Returns the number to simulate if `count` may be among the fastest: `count`, or a smaller untried number if
        `count` exceeds `MAX_EXTRAPOLATION` times the largest simulated one.

        Far beyond the simulated numbers an estimate is often wrong, and a compilation may take too long or too much
        memory.
        """
        largest = max(self.seconds)
        on_the_way = [other for other in self.untried if largest < other <= count]
        near = [other for other in on_the_way if other <= MAX_EXTRAPOLATION * largest]
        return near[-1] if near else min(on_the_way, default=count)

    def estimates(self) -> dict[int, float]:
        """Returns the estimated seconds of the numbers that were not tried; none if no number was simulated."""
        left = self.untried
        if not left or not self.seconds:
            return {}
        return dict(zip(left, map(float, fitted(self.seconds)(left)), strict=True))


def fitted(seconds: dict[int, float]) -> "Callable[[Sequence[int]], np.ndarray]":
    """Fits the formula to the seconds of some numbers of microbatches. Returns it as a function of other numbers."""
    counts = np.array(sorted(seconds), float)
    times = np.array([seconds[int(count)] for count in counts])
    times = np.maximum(times, SHORTEST_S)
    factors = _nonnegative(_terms(counts) / times[:, None])
    errors = np.log(times / (_terms(counts) @ factors))

    def estimate(wanted: Sequence[int]) -> np.ndarray:
        at = np.array(wanted, float)
        return _terms(at) @ factors * np.exp(np.interp(np.log(at), np.log(counts), errors))

    return estimate


def _terms(counts: np.ndarray) -> np.ndarray:
    return np.stack([np.ones_like(counts), counts, 1 / counts], axis=1)


def _nonnegative(terms: np.ndarray) -> np.ndarray:
    """Returns the factors from 0 for which the sums of the terms are the closest to 1."""
    optimize: Any = import_late("scipy.optimize")  # at its first use, since it takes long
    return optimize.nnls(terms, np.ones(len(terms)))[0]


def next_cell(lines: Sequence[SweepLine], top: int) -> Cell | None:
    """Returns what to simulate next; None when the `top` fastest of all, by the estimates, are simulated."""
    for number, line in enumerate(lines):
        if (count := line.next_to_simulate()) is not None:
            return number, count
    for _, (number, count), known in fastest(lines)[:top]:
        if not known:
            return number, lines[number].next_towards(count)
    return None


def fastest(lines: Sequence[SweepLine]) -> list[tuple[float, Cell, bool]]:
    """Lists all simulated and estimated cells with their seconds, the fastest first, and whether each is simulated."""
    found: list[tuple[float, Cell, bool]] = []
    for number, line in enumerate(lines):
        for known, times in ((True, line.seconds), (False, line.estimates())):
            found += [(seconds, (number, count), known) for count, seconds in times.items()]
    return sorted(found)
