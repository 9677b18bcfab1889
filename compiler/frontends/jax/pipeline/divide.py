"""Where to cut a spine: dynamic programming over the slowest stage, then over the bytes that cross.

Pure arithmetic on the spine's sums. First the least time of the slowest stage that any cut has; of the cuts that come
close to it, one whose middle stages are alike (they become one computation, compiled once), or else that over which
the fewest bytes flow.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pathways.compiler.frontends.jax.pipeline.alike import alike_cuts
from pathways.compiler.frontends.jax.pipeline.costs import Costs, Demands
from pathways.compiler.frontends.jax.pipeline.spine import Spine

CLOSE = 1.08
"""How much slower than the least its slowest stage may be, of a cut over which fewer bytes flow."""
CLOSE_ALIKE = 1.20
"""The same of a cut whose middle stages are alike."""
_MOST_PLACES = 700
"""Of more places than this, those with few bytes are tried."""


@dataclass(frozen=True)
class Cut:
    """`places[k]` to `places[k + 1]` are the positions of stage k; `how` says why; `runner_up` is the next best."""

    places: tuple[int, ...]
    how: str
    runner_up: tuple[int, ...] = ()


def best_cut(spine: Spine, demands: Demands) -> Cut | None:
    """The cut to take; None where no cut fits the memory."""
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
        """Bytes that come in, in parts of what is usual; of equally many, the more even cut."""
        seconds = costs.seconds(i, j, stage) / (CLOSE * least)
        return np.where(seconds > 1, np.inf, spine.crossing[i] / usual + seconds**2)

    few = _solve(costs, places, moved, np.add) or even
    alike = alike_cuts(spine, costs, CLOSE_ALIKE * least, costs.widest(few))
    if alike:
        return Cut(alike[0], "middle stages are alike", few if few != alike[0] else even)
    how = f"fewest bytes, within {CLOSE - 1:.0%} of the least time" if few != even else "the least time"
    return Cut(few, how, even if few != even else ())


def least_memory(spine: Spine, demands: Demands) -> tuple[int, ...]:
    """The cut whose fullest stage needs the least memory."""
    costs = Costs(spine, replace(demands, memory=(None,) * demands.stages))
    return _solve(costs, _places(spine), costs.bytes, np.maximum) or (0, len(spine))


def _places(spine: Spine) -> Any:
    """Places that may be cut at: not right behind what computes nothing and makes no value go away."""
    count = len(spine)
    inner = np.arange(1, count)
    if len(inner) > _MOST_PLACES:
        crossing = spine.crossing[1:count]
        inner = inner[crossing <= np.quantile(crossing, _MOST_PLACES / count)]
    return np.concatenate([[0], inner, [count]])


def _solve(costs: Costs, places: Any, cost: Any, join: Any) -> tuple[int, ...] | None:
    """The cut at some of `places` with the least cost, where `join` makes one cost of those of its stages."""
    stages, count = costs.demands.stages, len(places)
    best = np.full((stages + 1, count), np.inf)
    came = np.zeros((stages + 1, count), int)
    best[0, 0] = 0
    for k in range(1, stages + 1):
        limit = costs.demands.memory[k - 1]
        for j in range(k, count):
            starts = places[:j]
            found = cost(starts, places[j], k - 1)
            if limit is not None:
                found = np.where(costs.bytes(starts, places[j], k - 1) > limit, np.inf, found)
            found = join(best[k - 1, :j], found)
            came[k, j] = least = int(np.argmin(found))
            best[k, j] = found[least]
    if not np.isfinite(best[stages, count - 1]):
        return None
    at, taken = count - 1, [int(places[-1])]
    for k in range(stages, 0, -1):
        at = came[k, at]
        taken.append(int(places[at]))
    return tuple(taken[::-1])
