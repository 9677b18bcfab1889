"""Simulates an ordered program to find when each call starts, and how long devices wait (bubbles). Schedules,
estimates, search and viz use it.

All functions are linear in calls and dependencies: none tests whether a path leads from one call to another.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Precedence:
    """Work and its dependencies. Nodes are numbers, in a topological order of `waits` alone.

    `slices[i]` is the slice of node i; -1 if it has none, like a transfer. `seconds[i]` may be in any unit of time.
    """

    waits: Sequence[Sequence[int]]
    slices: Sequence[int]
    seconds: Sequence[float]


@dataclass(eq=False)
class Cycle(Exception):  # not frozen: Python sets attributes of a raised exception
    """Nodes of which each waits for the next, and the last for the first."""

    nodes: tuple[int, ...]


@dataclass(frozen=True)
class Timeline:
    """`starts[i]` and `ends[i]` of every node."""

    starts: list[float]
    ends: list[float]


def play(graph: Precedence, predecessors: Sequence[Sequence[int]] = ()) -> Timeline:
    """Computes when each node starts, if it starts as soon as all its dependencies are done.

    `predecessors[i]` are further dependencies of node i, from the order of its slice. Raises `Cycle`.
    """
    count = len(graph.waits)
    extra: Sequence[Sequence[int]] = predecessors or [()] * count
    waiting = [len(graph.waits[i]) + len(extra[i]) for i in range(count)]
    users: list[list[int]] = [[] for _ in range(count)]
    for i in range(count):
        for j in (*graph.waits[i], *extra[i]):
            users[j].append(i)
    starts, ends = [0.0] * count, [0.0] * count
    ready = [i for i in range(count) if not waiting[i]]
    done = 0
    while ready:
        i = ready.pop()
        done += 1
        ends[i] = end = starts[i] + graph.seconds[i]
        for j in users[i]:
            starts[j] = max(starts[j], end)
            waiting[j] -= 1
            if not waiting[j]:
                ready.append(j)
    if done < count:
        raise Cycle(_cycle(graph, extra, waiting))
    return Timeline(starts, ends)


def _cycle(graph: Precedence, extra: Sequence[Sequence[int]], waiting: Sequence[int]) -> tuple[int, ...]:
    """Returns a cycle among nodes that never became ready: each waits for another such node."""
    at = next(i for i, n in enumerate(waiting) if n)
    path: list[int] = []
    seen: dict[int, int] = {}
    while at not in seen:
        seen[at] = len(path)
        path.append(at)
        at = next(j for j in (*extra[at], *graph.waits[at]) if waiting[j])
    return tuple(path[seen[at] :])


@dataclass(frozen=True)
class Bubble:
    """The fraction of the time in which slices wait, and the least possible fraction for this work on these slices."""

    seconds: float
    fraction: float
    bound: float


def bubble(graph: Precedence, timeline: Timeline, members: Sequence[int] | None = None) -> Bubble:
    """Returns the bubble over the slices that `members` (default: all nodes) run on.

    The bound of a slice is the sum of three times: the earliest start of its first node if slices were unlimited, its
    own work, and all work that must follow its last node.
    """
    nodes = [i for i in (range(len(graph.slices)) if members is None else members) if graph.slices[i] >= 0]
    busy: dict[int, float] = {}
    for i in nodes:
        busy[graph.slices[i]] = busy.get(graph.slices[i], 0.0) + graph.seconds[i]
    busy = {s: work for s, work in busy.items() if work > 0}
    working = [i for i in nodes if graph.seconds[i] > 0]
    seconds = max((timeline.ends[i] for i in working), default=0.0)
    if not seconds or not busy:
        return Bubble(0.0, 0.0, 0.0)
    heads, tails = _heads(graph), _tails(graph)
    first, last = dict[int, float](), dict[int, float]()
    for i in working:
        s = graph.slices[i]
        first[s] = min(first.get(s, heads[i]), heads[i])
        last[s] = min(last.get(s, tails[i]), tails[i])
    least = max(first[s] + work + last[s] for s, work in busy.items())
    total = sum(busy.values())
    return Bubble(seconds, 1 - total / (len(busy) * seconds), max(0.0, 1 - total / (len(busy) * least)))


def _heads(graph: Precedence) -> list[float]:
    """Returns the earliest possible start of each node."""
    heads: list[float] = []
    for waits in graph.waits:
        heads.append(max((heads[j] + graph.seconds[j] for j in waits), default=0.0))
    return heads


def _tails(graph: Precedence) -> list[float]:
    """Returns the time from the end of each node until everything that depends on it is done."""
    tails = [0.0] * len(graph.waits)
    for i in range(len(tails) - 1, -1, -1):
        for j in graph.waits[i]:
            tails[j] = max(tails[j], tails[i] + graph.seconds[i])
    return tails
