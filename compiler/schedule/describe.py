"""Describes the schedule of an ordered program, with its idle time (bubble) for equal stages. The pass `order-calls`
calls it.
"""

from pathways.compiler.schedule.arrange import Arranged
from pathways.compiler.schedule.timeline import bubble
from pathways.dialect.schedule_figures import Schedule


def describe_schedule(name: str, arranged: Arranged) -> Schedule:
    """Returns the schedule of a program as the plan states it."""
    pipeline = arranged.pipeline
    if pipeline is None:
        return Schedule(name, arranged.note)
    inside = [call for calls in pipeline.calls.values() for call in calls]
    equal = bubble(arranged.graph, arranged.timeline, inside)
    return Schedule(
        name,
        arranged.note,
        stages=pipeline.stages,
        slices=len(pipeline.slices),
        microbatches=pipeline.microbatches,
        bubble=equal.fraction,
        bound=equal.bound,
    )
