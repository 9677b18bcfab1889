"""Estimates the cost of each pipeline stage of a split: seconds of forward, backward and communication, and bytes of
memory. `rank.py` calls it for `pw.search`.

Times are those of `compiler/machines.py`, as in a simulation of the compiled plan.

* Work: flops, or the passes over memory below if they take longer; and a fixed time for each call.
* Model axis: a ring adds up products over it: 2 (n - 1) / n of the bytes on each device. Backward adds up as much
  once more.
* Data axis: each backward adds up the gradients of the stage's parameters over the rows' devices. That happens for
  every microbatch, since a stage is a jit whose results are whole.
* Parameters: each forward reads all of the stage's: one pass over that much memory. Each backward reads them and
  writes as many gradients: two passes. Except for the first, these are then added to the sums: three more passes.
  Therefore, many small microbatches are slow.
* Memory: states of the parameters, and the values kept of each microbatch in flight.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from pathways.compiler.computations.collectives import ring
from pathways.compiler.machines import Machines
from pathways.compiler.search.profile import Profile
from pathways.dialect.choice import SplitChoice
from pathways.dialect.topology import Island, Topology

_READ_PASSES, _WRITE_PASSES, _ADD_PASSES = 1, 1, 3
"""Passes over the memory of parameters or gradients. Products read parameters or make gradients. An addition reads
two gradients and writes their sum."""


@dataclass(frozen=True)
class StageCost:
    """The cost of one stage and one microbatch. `sends`: seconds to the next stage, and again for the gradient back.

    `added` and `added_back`: seconds in which the devices of the slice add up their terms of an array. `crosses`: bytes
    to another island, one way. `again`: whether its backward computes its forward again.
    """

    work: float
    checkpointed: float
    """Seconds of the forward that the user's checkpoints repeat."""
    added: float
    added_back: float
    read: float
    """Seconds to read its parameters once."""
    written: float
    """Seconds to write the gradients of its parameters."""
    accumulated: float
    """Seconds to add them up."""
    call: float
    sends: float
    crosses: float
    parameters: float
    kept: float
    taken: float
    """Bytes of the inputs: the only bytes kept if the forward is computed again."""
    again: bool = False

    @property
    def forward(self) -> float:
        return max(self.work, self.read) + self.added + self.call

    @property
    def backward(self) -> float:
        return (
            max(2 * self.work + self.checkpointed, self.read + self.written)
            + self.added_back
            + self.accumulated
            + self.call
            + (self.forward if self.again else 0.0)
        )

    @property
    def of_weights(self) -> float:
        """The part of the backward pass that makes the gradients of parameters."""
        return max(self.work, self.written) + self.accumulated

    @property
    def both(self) -> float:
        return self.forward + self.backward


def stage_costs(profile: Profile, places: Sequence[int], choice: SplitChoice, machine: Machines) -> list[StageCost]:
    """Returns the cost of each stage of a cut at `places`."""
    spine, topology = profile.spine, machine.topology
    width, stages = choice.data * choice.model, len(places) - 1
    islands = [_island(topology, choice, k) for k in range(stages)]
    added_up = _ADD_PASSES * (choice.microbatches - 1) / choice.microbatches
    found: list[StageCost] = []
    for k, (a, b) in enumerate(pairwise(places)):
        island = islands[k]
        rate = width * machine.rate(island)
        link = topology.dcn_gbps * 1e9 if width > island.size else island.ici_gbps * 1e9
        added = _ring(float(profile.reduced[b] - profile.reduced[a]) / choice.data, choice.model, link)
        parameters = float(spine.parameters[b] - spine.parameters[a])
        once = parameters / machine.memory(island)
        after = float(spine.crossing[b]) * choice.model if k + 1 < stages else 0.0  # whole at each position of the axis
        near = k + 1 >= stages or islands[k + 1] is island
        found.append(
            StageCost(
                work=float(spine.flops[b] - spine.flops[a]) / rate,
                checkpointed=float(profile.again[b] - profile.again[a]) / rate,
                added=added,
                added_back=added + _ring(parameters, choice.data, link),
                read=_READ_PASSES * once,
                written=_WRITE_PASSES * once,
                accumulated=added_up * once,
                call=machine.call(island),
                sends=machine.inside(island, after, width) if near else machine.between(after),
                crosses=0.0 if near else after,
                parameters=parameters,
                kept=float(spine.kept[b] - spine.kept[a]) / choice.data,
                taken=float(spine.crossing[a]) / choice.data,
            )
        )
    return found


def _island(topology: Topology, choice: SplitChoice, stage: int) -> Island:
    return topology.island(choice.islands[stage % choice.stages]) if choice.islands else topology.islands[0]


def _ring(size: float, devices: int, link: float) -> float:
    """Returns the seconds to add up an array of `size` bytes over devices that each hold terms of it."""
    return ring("all_reduce", size, devices).bytes / link
