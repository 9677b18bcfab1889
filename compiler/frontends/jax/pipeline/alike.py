"""Finds ways to cut a loss into pipeline stages such that all middle stages run the same operations. Such stages share
one XLA executable, which is compiled once. `divide.py` and `segments.py` use it.
"""

from itertools import pairwise, takewhile
from typing import Any

import numpy as np

from pathways.compiler.frontends.jax.pipeline.costs import Costs
from pathways.compiler.frontends.jax.pipeline.spine import Spine

_CONTEXT_OPS = 12
"""Two positions may be the same place of two layers if this many operations before and after them are equal."""
_MAX_CUTS_PER_STEP = 64
"""Largest number of compared cuts that have the same number of layers per stage."""
_MAX_SLOWDOWN = 1.12
"""Largest time of the slowest stage, relative to the best identical cut, for a cut between modules."""
_MODULUS = (1 << 61) - 1
_BASE = 1_000_003


def alike_cuts(spine: Spine, costs: Costs, slowest: float, widest: float) -> list[tuple[int, ...]]:
    """Returns cuts in which no stage takes longer than `slowest`, the best first; empty if no layers repeat.

    The first and the last stage also hold the operations before and after the layers. Two stages have no middle stage,
    so the result is empty.
    """
    stages = costs.demands.stages
    if stages < 3:
        return []
    hashes = RangeHashes(spine.tokens)
    found: list[tuple[tuple[int, float, float], tuple[int, ...]]] = []
    for places in _classes(spine, widest * (1 + 1e-4)):
        for step in range(1, (len(places) - 1) // (stages - 2) + 1):
            count = len(places) - step * (stages - 2)
            chosen = np.stack([places[k * step : k * step + count] for k in range(stages - 1)], axis=1)
            ends = np.full((count, 1), len(spine))
            cuts = np.concatenate([np.zeros((count, 1), int), chosen, ends], axis=1)
            seconds = np.max([costs.seconds(cuts[:, k], cuts[:, k + 1], k) for k in range(stages)], axis=0)
            for row in np.flatnonzero(seconds <= slowest)[:_MAX_CUTS_PER_STEP]:
                cut = tuple(int(p) for p in cuts[row])
                middles = {hashes.of(a, b) for a, b in pairwise(cut[1:-1])}
                if costs.fits(cut):
                    found.append(((len(middles), costs.moved(cut), float(seconds[row])), cut))
    found.sort()
    return _between_modules(spine, found)


def _between_modules(
    spine: Spine, found: list[tuple[tuple[int, float, float], tuple[int, ...]]]
) -> list[tuple[int, ...]]:
    """Returns the cuts, with the one that cuts the fewest modules moved to the front.

    Only cuts that move as few bytes as the first cut, and are nearly as even, can move to the front.
    """
    if not found:
        return []
    (distinct, moved, seconds), _ = found[0]
    near = [(cost, cut) for cost, cut in found if cost[:2] == (distinct, moved) and cost[2] <= seconds * _MAX_SLOWDOWN]
    inside = min(near, key=lambda one: (sum(_modules_around(spine, p) for p in one[1][1:-1]), one[0][2]))[1]
    return [inside, *(cut for _, cut in found if cut != inside)]


def _modules_around(spine: Spine, place: int) -> int:
    """Returns the number of modules that enclose a position."""
    before, after = (spine.operations[p].scope.split("/") for p in (place - 1, place))
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False)))


def _classes(spine: Spine, max_bytes: float) -> list[Any]:
    """Groups positions with equal operations around them. Leaves out positions where more than `max_bytes` cross."""
    by_around: dict[Any, list[int]] = {}
    tokens = spine.tokens
    for place in range(_CONTEXT_OPS, len(spine) - _CONTEXT_OPS + 1):
        if spine.crossing[place] <= max_bytes:
            around = tuple(tokens[place - _CONTEXT_OPS : place + _CONTEXT_OPS])
            by_around.setdefault(around, []).append(place)
    return [np.array(places) for places in by_around.values() if len(places) > 1]


class RangeHashes:
    """Hashes any range of tokens in constant time; equal ranges have equal hashes."""

    def __init__(self, tokens: list[int]) -> None:
        self._sums, self._powers = [0], [1]
        for token in tokens:
            self._sums.append((self._sums[-1] * _BASE + token + 1) % _MODULUS)
            self._powers.append(self._powers[-1] * _BASE % _MODULUS)

    def of(self, i: int, j: int) -> tuple[int, int]:
        return j - i, (self._sums[j] - self._sums[i] * self._powers[j - i]) % _MODULUS
