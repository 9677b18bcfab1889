"""Implements the zero-bubble schedule H1 (Qi et al., 2024). The backward pass is split in two, and weight gradients
fill the gaps of 1F1B. It needs no more activations in memory than 1F1B.

A backward is two actions: I, which the stage before waits for, and W, which no stage waits for. The schedule is
simulated in unit times. A free slice takes a ready F if its number in flight allows it, else a ready I, else a ready W.
"""

import heapq

from pathways.compiler.schedule.table import Pipeline, Table, one_stage_a_slice
from pathways.dialect.call_labels import Action


def zero_bubble(pipeline: Pipeline) -> Table:
    """Orders 1F1B with backward in two parts, weight gradients in the gaps (H1)."""
    one_stage_a_slice("zero-bubble", pipeline, "--schedule interleaved, or one slice for each stage")
    return pipeline.table(_play(pipeline.stages, pipeline.microbatches))


def _play(stages: int, count: int) -> list[list[Action]]:
    rows: list[list[Action]] = [[] for _ in range(stages)]
    done = [{"F": 0, "I": 0, "W": 0} for _ in range(stages)]
    arrived = [{"F": count if s == 0 else 0, "I": 0} for s in range(stages)]
    """Microbatches that each slice could process by now, according to the progress of its neighbors."""

    def choose(s: int) -> str | None:
        mine = done[s]
        if mine["F"] < arrived[s]["F"] and mine["F"] - mine["W"] < stages and mine["F"] - mine["I"] < stages - s:
            return "F"
        if mine["I"] < min(arrived[s]["I"], mine["F"]):
            return "I"
        return "W" if mine["W"] < mine["I"] else None

    events = [(0, s) for s in range(stages)]
    """The times at which to check a slice again."""
    free_at = [0] * stages
    pending: list[tuple[int, int, str]] = []
    while events:
        now, _ = events[0]
        while pending and pending[0][0] <= now:
            _, s, kind = heapq.heappop(pending)
            arrived[s][kind] += 1
        _, s = heapq.heappop(events)
        if free_at[s] > now or done[s]["W"] == count or (kind := choose(s)) is None:
            continue
        rows[s].append(Action(s, kind, done[s][kind]))
        done[s][kind] += 1
        free_at[s] = now + 1
        heapq.heappush(events, (now + 1, s))
        target = {"F": s + 1, "I": s - 1}.get(kind)
        if kind == "F" and s == stages - 1:
            target = s
        if target is not None and target >= 0:
            heapq.heappush(pending, (now + 1, target, "I" if kind == "I" or target == s else "F"))
            heapq.heappush(events, (now + 1, target))
    return rows
