"""Estimates the idle time (bubble) and the duration of a scheduled program. It does so for equal stages, and for the
flops and bytes of the program on its machines. The pass `order-calls` calls it.
"""

from collections.abc import Sequence

from pathways.compiler.computations.flops import flops_of
from pathways.compiler.placement.cost import ASSUMED_FLOPS
from pathways.compiler.schedule.arrange import Arranged
from pathways.compiler.schedule.timeline import Bubble, Precedence, bubble, play
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.schedule_figures import Schedule


def describe_schedule(program: ProgramIR, name: str, arranged: Arranged) -> Schedule:
    """Returns the schedule of a program as the plan states it."""
    pipeline = arranged.pipeline
    if pipeline is None:
        return Schedule(name, arranged.note)
    inside = [call for calls in pipeline.calls.values() for call in calls]
    equal = bubble(arranged.graph, arranged.timeline, inside)
    real = estimated(program, arranged)
    return Schedule(
        name,
        arranged.note,
        stages=pipeline.stages,
        slices=len(pipeline.slices),
        microbatches=pipeline.microbatches,
        bubble=equal.fraction,
        bound=equal.bound,
        estimated_bubble=real.fraction,
        estimated_bound=real.bound,
        estimated_seconds=real.seconds,
    )


def estimated(program: ProgramIR, arranged: Arranged) -> Bubble:
    """Estimates the bubble of the whole program on the pipeline's slices, by the cost model of docs/placement.md."""
    graph = Precedence(arranged.graph.waits, arranged.graph.slices, seconds_of(program))
    predecessors: list[Sequence[int]] = [()] * len(graph.waits)
    last: dict[int, int] = {}
    for node in arranged.order:
        at = graph.slices[node]
        if at >= 0:
            predecessors[node] = (last[at],) if at in last else ()
            last[at] = node
    return bubble(graph, play(graph, predecessors))


def seconds_of(program: ProgramIR) -> list[float]:
    """Returns the seconds of each node: calls by their flops, transfers by their bytes."""
    dcn = program.module.operation.attributes["pw.dcn_gbps"].value * 1e9
    ici = min((i.ici_gbps or 100.0 for i in program.islands.values()), default=100.0) * 1e9
    rates = {name: island.flops or ASSUMED_FLOPS for name, island in program.islands.items()}
    calls: dict[tuple[str, str], float] = {}
    seconds: list[float] = []
    for node in program.flow.nodes:
        if not node.is_call and not node.is_transfer:
            seconds.append(0.0)  # its duration depends on data
            continue
        if node.is_transfer:
            rate = dcn if node.op.route == "dcn" else ici
            seconds.append((node.op.bytes or 0) / rate)
            continue
        key = node.callee, node.mesh
        if key not in calls:
            work = flops_of(program.computations[node.callee])
            calls[key] = work / (program.mesh(node.mesh).size * rates[program.island_of(node.mesh)])
        seconds.append(calls[key])
    return seconds
