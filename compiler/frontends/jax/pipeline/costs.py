"""Estimates the cost of each pipeline stage for a given cut of a loss: compute time, bytes received, memory.
`divide.py` and `alike.py` choose the cut by these costs, and reports show them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from pathways.compiler.frontends.jax.pipeline.spine import Spine

FORWARD_AND_BACKWARD = 3.0
"""Operations of both passes per operation of the forward pass: the backward pass computes two products for each."""


@dataclass(frozen=True)
class Demands:
    """The requirements that a cut must meet. Each tuple has one entry per stage.

    `rates` are operations per second of the stage's slice, in any unit if the topology gives no flop/s. `links` are
    bytes per second into the stage, 0 if unknown. `memory` is the limit in bytes per device, None if there is no limit.
    `in_flight` is the number of microbatches whose activations the stage keeps. `split` is the number of devices that
    their rows are split over. `states` is bytes of parameters, gradients and optimizer state per byte of parameters.
    """

    rates: tuple[float, ...]
    links: tuple[float, ...]
    memory: tuple[float | None, ...]
    in_flight: tuple[int, ...]
    split: tuple[int, ...]
    states: float = 4.0

    @property
    def stages(self) -> int:
        return len(self.rates)


class Costs:
    """Computes the cost of a stage from position i to position j; i and j may be arrays."""

    def __init__(self, spine: Spine, demands: Demands) -> None:
        self.spine = spine
        self.demands = demands

    def seconds(self, i: Any, j: Any, stage: int) -> Any:
        work = FORWARD_AND_BACKWARD * (self.spine.flops[j] - self.spine.flops[i]) / self.demands.rates[stage]
        link = self.demands.links[stage]
        return np.maximum(work, 2 * self.spine.crossing[i] / link) if link else work

    def bytes(self, i: Any, j: Any, stage: int) -> Any:
        """Returns the memory per device: parameter states, and activations of the microbatches in flight."""
        parameters = self.spine.parameters[j] - self.spine.parameters[i]
        kept = self.spine.kept[j] - self.spine.kept[i] + self.spine.crossing[i]
        demands = self.demands
        return parameters * demands.states + kept * demands.in_flight[stage] / demands.split[stage]

    def slowest(self, places: Sequence[int]) -> float:
        return max(float(self.seconds(a, b, k)) for k, (a, b) in enumerate(pairwise(places)))

    def fits(self, places: Sequence[int]) -> bool:
        stages = enumerate(pairwise(places))
        return all((m := self.demands.memory[k]) is None or self.bytes(a, b, k) <= m for k, (a, b) in stages)

    def widest(self, places: Sequence[int]) -> float:
        return max(float(self.spine.crossing[p]) for p in places[1:-1])

    def moved(self, places: Sequence[int]) -> float:
        return float(sum(self.spine.crossing[p] for p in places[1:-1]))
