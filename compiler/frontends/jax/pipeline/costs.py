"""What each stage of a cut costs: time of its work, bytes that come in, memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from pathways.compiler.frontends.jax.pipeline.spine import Spine

FORWARD_AND_BACKWARD = 3.0
"""Operations of both passes, for each of the forward pass: the backward pass makes two products of each."""


@dataclass(frozen=True)
class Demands:
    """What a cut is made for: one entry a stage.

    `rates` in operations a second of its slice, of any unit where nothing is known; `links` in bytes a second of what
    comes in, 0 where not known; `memory` in bytes a device for this stage, None: not limited. `in_flight` are the
    microbatches that a stage keeps activations of, `split` the devices that their rows are split over. `states` is
    bytes of parameters, gradients and optimizer state for each byte of parameters.
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
    """What a stage from position i to j costs; i and j may be arrays."""

    def __init__(self, spine: Spine, demands: Demands) -> None:
        self.spine = spine
        self.demands = demands

    def seconds(self, i: Any, j: Any, stage: int) -> Any:
        work = FORWARD_AND_BACKWARD * (self.spine.flops[j] - self.spine.flops[i]) / self.demands.rates[stage]
        link = self.demands.links[stage]
        return np.maximum(work, 2 * self.spine.crossing[i] / link) if link else work

    def bytes(self, i: Any, j: Any, stage: int) -> Any:
        """Memory of a device: states of its parameters, and what it keeps of microbatches in flight."""
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
