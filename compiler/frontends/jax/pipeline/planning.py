"""Holds the topology and the schedule for which losses are cut into pipeline stages. `cli` and `pathways/api` set them
for a block of code. From them it computes the speed, links and memory of each stage, which `plan_stages.py` needs to
choose the cuts.
"""

import contextlib
from collections import Counter
from collections.abc import Generator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass

from jax.sharding import Mesh

from pathways.compiler.frontends.jax.meshes import slice_mesh
from pathways.compiler.frontends.jax.pipeline.costs import Demands
from pathways.compiler.frontends.jax.pipeline.shardings import BATCH_AXIS
from pathways.compiler.machines import Machines
from pathways.dialect.topology import Topology

_FEW_IN_FLIGHT = frozenset({"1f1b", "interleaved", "zero-bubble"})
"""Schedules under which stage k of K keeps activations of K - k microbatches, and not of all."""


@dataclass(frozen=True)
class Target:
    """The topology, None if it is not known yet, and the name of the schedule.

    `microbatches` replaces the number that losses state; 0 keeps it.
    """

    topology: Topology | None = None
    schedule: str = ""
    microbatches: int = 0

    @staticmethod
    def of(topology: Topology | None, schedule: str, microbatches: int = 0) -> "Target":
        """Returns the target without the properties that cuts do not depend on. Equal targets give equal cuts."""
        islands = topology.islands if topology is not None else ()
        if all(i.memory is None for i in islands):
            schedule = ""
            if any(i.flops is None for i in islands):
                topology = None
        return Target(topology, schedule, microbatches)


compiling_for: ContextVar[Target | None] = ContextVar("pathways_compiling_for", default=None)
"""The target of programs that are traced in this context."""


@contextlib.contextmanager
def compiling(target: Target) -> Generator[None]:
    """Sets the target for losses that are cut in a `with` block."""
    before = compiling_for.set(target)
    try:
        yield
    finally:
        compiling_for.reset(before)


def demands_of(meshes: Sequence[Mesh], microbatches: int) -> Demands:
    """Returns the demands of the stages on these meshes. A slice with several stages gives each an equal share."""
    target = compiling_for.get() or Target()
    owners = [slice_mesh(m, "pw.pipeline", None).slice.number for m in meshes]
    repeats = Counter(owners)
    machines = Machines(target.topology or Topology(()))
    islands = machines.topology.islands
    flops = [machines.rate(i) for i in islands if i.flops is not None]
    known = bool(islands) and len(flops) == len(islands)
    limits = [i.memory for i in islands if i.memory is not None]
    limit = max(limits) if limits and len(limits) == len(islands) else None
    link = _link(machines.topology) if known else 0.0
    stages = len(meshes)
    few = target.schedule in _FEW_IN_FLIGHT
    return Demands(
        tuple(m.size * (min(flops) if known else 1.0) / repeats[o] for m, o in zip(meshes, owners, strict=True)),
        (0.0, *(link for _ in meshes[1:])),
        tuple(None if limit is None else limit / repeats[o] for o in owners),
        tuple(min(microbatches, stages - k) if few else microbatches for k in range(stages)),
        tuple(m.shape.get(BATCH_AXIS, 1) for m in meshes),
    )


def _link(topology: Topology) -> float:
    """Returns the bytes per second between stages: over the network, if there are several islands."""
    if len(topology.islands) > 1:
        return topology.dcn_gbps * 1e9
    return min(i.ici_gbps for i in topology.islands) * 1e9
