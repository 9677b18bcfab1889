"""Chooses where to cut a loss into pipeline stages, by dynamic programming. The slowest stage may take a little longer
than the least time, if fewer bytes then flow between stages or middle stages become identical. `plan_stages.py` and
`compiler/search` call it.

First it finds the least time of the slowest stage over all cuts. Of the cuts close to that time, it prefers one whose
middle stages are identical: they become one computation, compiled once. Otherwise it takes the one over which the
fewest bytes flow.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pathways.compiler.frontends.jax.pipeline.alike import alike_cuts
from pathways.compiler.frontends.jax.pipeline.costs import Costs, Demands
from pathways.compiler.frontends.jax.pipeline.spine import Spine

MAX_SLOWDOWN = 1.08
"""Largest time of the slowest stage, relative to the least time, of a cut over which fewer bytes flow."""
MAX_SLOWDOWN_ALIKE = 1.20
"""The same limit for a cut whose middle stages are identical."""
_MAX_CUT_POSITIONS = 700
"""If there are more positions than this, only those with few crossing bytes are tried."""


@dataclass(frozen=True)
class Cut:
    """The stages of a cut: stage k has positions `places[k]` to `places[k + 1]`.

    `how` is the reason for the cut, and `runner_up` is the next best cut.
    """

    places: tuple[int, ...]
    how: str
    runner_up: tuple[int, ...] = ()


def best_cut(spine: Spine, demands: Demands) -> Cut | None:
    """Returns the cut to use; None if no cut fits the memory."""
    costs = Costs(spine, demands)
    count = len(spine)
    if demands.stages == 1:
        return Cut((0, count), "the only stage") if costs.fits((0, count)) else None
    places = _places(spine)
    even = _solve(costs, places, costs.seconds, np.maximum)
    if even is None:
        return None
    least = costs.slowest(even)

    usual = costs.moved(even) / (demands.stages - 1) or 1.0

    def moved(i: Any, j: Any, stage: int) -> Any:
        """Returns the bytes that enter a stage, relative to the usual bytes.

        For equal bytes, the more even cut costs less.
        """
        seconds = costs.seconds(i, j, stage) / (MAX_SLOWDOWN * least)
        return np.where(seconds > 1, np.inf, spine.crossing[i] / usual + seconds**2)

    few = _solve(costs, places, moved, np.add) or even
    alike = alike_cuts(spine, costs, MAX_SLOWDOWN_ALIKE * least, costs.widest(few))
    if alike:
        return Cut(alike[0], "middle stages are alike", few if few != alike[0] else even)
    how = f"fewest bytes, within {MAX_SLOWDOWN - 1:.0%} of the least time" if few != even else "the least time"
    return Cut(few, how, even if few != even else ())


def least_memory(spine: Spine, demands: Demands) -> tuple[int, ...]:
    """Returns the cut whose fullest stage needs the least memory."""
    costs = Costs(spine, replace(demands, memory=(None,) * demands.stages))
    return _solve(costs, _places(spine), costs.bytes, np.maximum) or (0, len(spine))


def _places(spine: Spine) -> Any:
    """Returns the positions to try as cuts. Of very many positions, it keeps those with the fewest crossing bytes."""
    count = len(spine)
    inner = np.arange(1, count)
    if len(inner) > _MAX_CUT_POSITIONS:
        crossing = spine.crossing[1:count]
        inner = inner[crossing <= np.quantile(crossing, _MAX_CUT_POSITIONS / count)]
    return np.concatenate([[0], inner, [count]])


def _solve(costs: Costs, places: Any, cost: Any, join: Any) -> tuple[int, ...] | None:
    """Returns the cut at some of `places` with the least cost; None if none fits the memory.

    `join` combines the costs of the stages.
    """
    stages, count = costs.demands.stages, len(places)
    best = np.full((stages + 1, count), np.inf)
    predecessor = np.zeros((stages + 1, count), int)
    best[0, 0] = 0
    for k in range(1, stages + 1):
        limit = costs.demands.memory[k - 1]
        for j in range(k, count):
            starts = places[:j]
            found = cost(starts, places[j], k - 1)
            if limit is not None:
                found = np.where(costs.bytes(starts, places[j], k - 1) > limit, np.inf, found)
            found = join(best[k - 1, :j], found)
            predecessor[k, j] = least = int(np.argmin(found))
            best[k, j] = found[least]
    if not np.isfinite(best[stages, count - 1]):
        return None
    at, taken = count - 1, [int(places[-1])]
    for k in range(stages, 0, -1):
        at = predecessor[k, at]
        taken.append(int(places[at]))
    return tuple(taken[::-1])
