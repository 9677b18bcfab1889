"""Implements the 1F1B schedule (PipeDream-flush; Narayanan et al., 2021). One backward follows each forward. It keeps
only as many microbatches in memory as the last stage needs to stay busy.
"""

from pathways.compiler.schedule.table import Pipeline, Table, one_stage_a_slice
from pathways.dialect.call_labels import Action


def one_f_one_b(pipeline: Pipeline) -> Table:
    """Orders forward actions until the pipeline is full, then one backward for every forward."""
    one_stage_a_slice("1f1b", pipeline, "--schedule interleaved is 1F1B for several stages per slice")
    rows: list[list[Action]] = []
    count = pipeline.microbatches
    for stage in range(pipeline.stages):
        ahead = min(count, pipeline.stages - stage - 1)
        row = [Action(stage, "F", m) for m in range(ahead)]
        for m in range(count):
            if ahead + m < count:
                row.append(Action(stage, "F", ahead + m))
            row.append(Action(stage, "B", m))
        rows.append(row)
    return pipeline.table(rows)
