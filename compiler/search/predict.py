"""Predicts the time of a training step for one split, without compiling it: simulates the pipeline schedule with
estimated seconds for each stage. `rank.py` calls it for many splits. Pure functions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

from pathways.compiler.schedule import PROGRAM, SCHEDULES, ZERO_BUBBLE, Pipeline, Table
from pathways.compiler.schedule.timeline import Precedence, bubble, play
from pathways.compiler.search.stage_costs import StageCost
from pathways.dialect.call_labels import Action
from pathways.dialect.choice import SplitChoice


@dataclass(frozen=True)
class Prediction:
    """A predicted step: its seconds, and the fraction of them in which slices wait.

    `memory` is the bytes on a device of the fullest slice. `dcn_bytes` cross between islands. `collectives` is the
    seconds of collectives inside stages.
    """

    seconds: float
    bubble: float
    memory: float
    dcn_bytes: float
    collectives: float


@lru_cache(maxsize=4096)
def table_of_choice(slices: int, chunks: int, microbatches: int, schedule: str) -> Table:
    """Returns the table of a schedule for a pipeline of these sizes, made by `compiler/schedule/`."""
    stages = slices * chunks
    kinds = [("F", "W") if schedule == ZERO_BUBBLE and s == 0 else _kinds(schedule) for s in range(stages)]
    actions = [Action(s, kind, m) for s in range(stages) for kind in kinds[s] for m in range(microbatches)]
    pipeline = Pipeline(
        tuple(f"s{i}" for i in range(slices)),
        tuple(s % slices for s in range(stages)),
        microbatches,
        {action: (i,) for i, action in enumerate(actions)},
    )
    return SCHEDULES["gpipe" if schedule == PROGRAM else schedule](pipeline)


def _kinds(schedule: str) -> tuple[str, ...]:
    return ("F", "I", "W") if schedule == ZERO_BUBBLE else ("F", "B")


@lru_cache(maxsize=4096)
def in_flight(slices: int, chunks: int, microbatches: int, schedule: str) -> tuple[int, ...]:
    """Returns the maximum number of microbatches for which each stage keeps the inputs of backward at one time."""
    highest = [0] * (slices * chunks)
    for row in table_of_choice(slices, chunks, microbatches, schedule):
        now = [0] * len(highest)
        for action in row:
            now[action.stage] += {"F": 1, "I": 0}.get(action.kind, -1)
            highest[action.stage] = max(highest[action.stage], now[action.stage])
    return tuple(highest)


def memory_of_slices(costs: Sequence[StageCost], choice: SplitChoice, states: float) -> list[float]:
    """Returns the bytes on a device of each slice, with `states` bytes for each byte of parameters."""
    flying = in_flight(choice.stages, choice.chunks, choice.microbatches, choice.schedule)
    found = [0.0] * choice.stages
    for k, cost in enumerate(costs):
        kept = cost.taken * flying[k] + cost.kept if cost.again else (cost.kept + cost.taken) * flying[k]
        found[k % choice.stages] += cost.parameters * states + kept
    return found


def again_where_full(
    costs: Sequence[StageCost], choice: SplitChoice, states: float, limits: Sequence[float | None]
) -> list[StageCost]:
    """Lets slices that would be too full compute forward again, as `--remat auto` does."""
    full = [
        limit is not None and m > limit
        for m, limit in zip(memory_of_slices(costs, choice, states), limits, strict=True)
    ]
    return [replace(cost, again=full[k % choice.stages]) for k, cost in enumerate(costs)]


def least_seconds(costs: Sequence[StageCost], choice: SplitChoice) -> float:
    """Returns a lower bound for every order, from the path of one microbatch and from the work of each slice."""
    total = choice.microbatches
    least = sum(cost.both + 2 * cost.sends for cost in costs)
    for row in range(choice.stages):
        mine = [k for k in range(len(costs)) if k % choice.stages == row]
        work = sum(costs[k].both for k in mine)
        ahead = sum(costs[k].forward + costs[k].sends for k in range(mine[0]))
        least = max(least, work * total + ahead)
    return least


def predict(costs: Sequence[StageCost], choice: SplitChoice, states: float) -> Prediction:
    """Simulates the schedule."""
    table = table_of_choice(choice.stages, choice.chunks, choice.microbatches, choice.schedule)
    graph, predecessors = _graph(costs, choice, table)
    timeline = play(graph, predecessors)
    waits = bubble(graph, timeline)
    count = choice.microbatches
    per_slice = [0.0] * choice.stages
    for k, cost in enumerate(costs):
        per_slice[k % choice.stages] += (cost.added + cost.added_back) * count
    crossing = 2 * count * sum(cost.crosses for cost in costs)
    return Prediction(
        max(timeline.ends, default=0.0),
        waits.fraction,
        max(memory_of_slices(costs, choice, states)),
        crossing,
        max(per_slice),
    )


def _graph(costs: Sequence[StageCost], choice: SplitChoice, table: Table) -> tuple[Precedence, list[Sequence[int]]]:
    """Returns actions and transfers in the order of the dataflow, and for each action the one before it in its row."""
    stages, split = len(costs), choice.schedule == ZERO_BUBBLE
    numbers: dict[Action | tuple[str, int, int], int] = {}
    waits: list[Sequence[int]] = []
    slices: list[int] = []
    seconds: list[float] = []

    def node(key: Action | tuple[str, int, int], before: Sequence[int], where: int, takes: float) -> int:
        numbers[key] = len(waits)
        waits.append(before)
        slices.append(where)
        seconds.append(takes)
        return numbers[key]

    for m in range(choice.microbatches):
        arrives: list[int] = []
        for k, cost in enumerate(costs):
            made = node(Action(k, "F", m), arrives, k % choice.stages, cost.forward)
            arrives = [node(("sent", k, m), [made], -1, cost.sends)] if k + 1 < stages else [made]
        for k in range(stages - 1, -1, -1):
            cost = costs[k]
            first = "W" if split and k == 0 else "I" if split else "B"
            whole = cost.backward
            later = cost.of_weights if split and k else 0.0  # the first stage's backward is one action
            made = node(Action(k, first, m), [*arrives, numbers[Action(k, "F", m)]], k % choice.stages, whole - later)
            if split and k:
                node(Action(k, "W", m), [made], k % choice.stages, later)
            if k:
                arrives = [node(("back", k, m), [made], -1, costs[k - 1].sends)]
    predecessors: list[Sequence[int]] = [()] * len(waits)
    for row in table:
        for before, action in pairwise(row):
            predecessors[numbers[action]] = (numbers[before],)
    return Precedence(waits, slices, seconds), predecessors
