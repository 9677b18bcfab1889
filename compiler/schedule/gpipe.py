"""Implements the GPipe schedule (Huang et al., 2019): all microbatches run forward, and then all run backward. It keeps
every activation until then, so it needs much memory.
"""

from pathways.compiler.schedule.table import Pipeline, Table
from pathways.dialect.call_labels import Action


def gpipe(pipeline: Pipeline) -> Table:
    """Orders all microbatches forward, then all backward."""
    rows: list[list[Action]] = []
    for row in range(len(pipeline.slices)):
        stages = pipeline.stages_of(row)
        forward = [Action(s, "F", m) for s in stages for m in range(pipeline.microbatches)]
        backward = [Action(s, "B", m) for s in reversed(stages) for m in range(pipeline.microbatches)]
        rows.append(forward + backward)
    return pipeline.table(rows)
