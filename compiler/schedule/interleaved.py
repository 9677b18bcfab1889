"""Implements the interleaved 1F1B schedule (Narayanan et al., 2021, section 2.2). Each slice of devices holds several
parts of the model, so pipeline bubbles are shorter.

Stage s is on slice s mod S. The bubble shrinks by the number of chunks. With one chunk it is 1F1B.
"""

from pathways.compiler.schedule.one_f_one_b import one_f_one_b
from pathways.compiler.schedule.table import Pipeline, Table, refuse
from pathways.dialect.call_labels import Action


def interleaved(pipeline: Pipeline) -> Table:
    """Orders actions as 1F1B over several chunks a slice: stage s on slice s mod S."""
    ranks, count = len(pipeline.slices), pipeline.microbatches
    if pipeline.stages == ranks:
        return one_f_one_b(pipeline)
    if pipeline.rows != tuple(s % ranks for s in range(pipeline.stages)) or pipeline.stages % ranks:
        have = f"stages 0 to {pipeline.stages - 1} on slices {', '.join(pipeline.slices[r] for r in pipeline.rows)}"
        need = f"stage s on slice s mod {ranks}, the same number of stages on each slice"
        refuse("interleaved", have, need, "repeat the list of slices (slices * 2), or use --schedule gpipe")
    chunks = pipeline.stages // ranks
    rounds = max(1, count // ranks)
    if count % rounds:
        less = count - count % rounds
        more = min(less + rounds, ranks * (rounds + 1))  # the number of rounds may grow with the microbatches
        have, need = f"{count} microbatches, {ranks} slices", f"a multiple of {rounds} microbatches"
        refuse("interleaved", have, need, f"{less} or {more} microbatches")
    return pipeline.table(_row(rank, ranks, chunks, count, count // rounds) for rank in range(ranks))


def _row(rank: int, ranks: int, chunks: int, count: int, group: int) -> list[Action]:
    """Orders one slice: `group` microbatches go through one chunk before the next chunk starts."""
    total = chunks * count
    ahead = min(total, (chunks - 1) * group + 2 * (ranks - rank - 1))

    def action(number: int, kind: str) -> Action:
        chunk = number // group % chunks
        if kind == "B":
            chunk = chunks - 1 - chunk
        microbatch = number // (group * chunks) * group + number % group
        return Action(chunk * ranks + rank, kind, microbatch)

    row = [action(n, "F") for n in range(ahead)]
    for number in range(total):
        if ahead + number < total:
            row.append(action(ahead + number, "F"))
        row.append(action(number, "B"))
    return row
