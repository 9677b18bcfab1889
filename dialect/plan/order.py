"""Merges the instruction lists of all islands into one order, in which a controller can enqueue them. It refuses a plan
whose islands would wait for each other forever. Hosts, viz and `pwc check` call it. Pure functions.

Each island keeps the order of its stream. A receive is after its send. A branch is placed when all of its islands have
reached it. Otherwise the lower step is first. A plan whose streams wait for each other in a circle is refused before it
runs.
"""

import heapq
from collections import Counter
from dataclasses import dataclass
from typing import TypeAlias

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.errors import UnsafePlan
from pathways.dialect.plan.instructions import Branch, Instruction, Recv, Send
from pathways.dialect.plan.nouns import Plan


@dataclass(frozen=True)
class Joined:
    """A branch with its instructions on all islands, as (stream index, instruction).

    `is_shared`: other hosts execute this branch, too.
    """

    parts: tuple[tuple[int, Branch], ...]
    is_shared: bool = False

    @property
    def branch(self) -> Branch:
        return self.parts[0][1]


Ordered: TypeAlias = tuple[int, Instruction | Joined]
"""A stream index (for a branch, the first one) with an instruction or branch."""


def linearize(plan: Plan, path: str = "plan") -> list[Ordered]:
    """Lists all instructions in the order in which they are enqueued. Raises PWC0604 if no such order exists."""
    positions = [0] * len(plan.streams)
    sent: set[int] = set()
    parked: dict[int, int] = {}
    missing = Counter(i.step for s in plan.streams for i in s.instructions if isinstance(i, Branch))
    joining: dict[int, list[tuple[int, Branch]]] = {}
    ready: list[tuple[int, int]] = []
    order: list[Ordered] = []

    def offer(stream: int) -> None:
        instructions = plan.streams[stream].instructions
        if positions[stream] == len(instructions):
            return
        following = instructions[positions[stream]]
        if isinstance(following, Recv) and following.channel not in sent:
            parked[following.channel] = stream
            return
        if isinstance(following, Branch):
            joining.setdefault(following.step, []).append((stream, following))
            missing[following.step] -= 1
            if missing[following.step]:
                return
        heapq.heappush(ready, (following.step, stream))

    for stream in range(len(plan.streams)):
        offer(stream)
    while ready:
        _, stream = heapq.heappop(ready)
        instruction = plan.streams[stream].instructions[positions[stream]]
        parts = tuple(joining.pop(instruction.step)) if isinstance(instruction, Branch) else ()
        order.append((stream, instruction) if not parts else (parts[0][0], Joined(parts)))
        for moved in [at for at, _ in parts] or [stream]:
            positions[moved] += 1
            offer(moved)
        if isinstance(instruction, Send):
            sent.add(instruction.channel)
            if instruction.channel in parked:
                offer(parked.pop(instruction.channel))
    if parked or joining:
        waits = [f"{plan.streams[s].island} waits for channel {c}" for c, s in sorted(parked.items())]
        waits += [f"{plan.streams[p[0][0]].island} waits at step {step}" for step, p in sorted(joining.items())]
        rule = "streams that can finish: every receive has a send that does not wait for it"
        raise PathwaysError(UnsafePlan(path=path, problem=", ".join(waits), rule=rule))
    placed = sum(len(i.parts) if isinstance(i, Joined) else 1 for _, i in order)
    stated = sum(len(s.instructions) for s in plan.streams)
    if placed != stated:  # two instructions share the number of a channel, or of a step
        have, rule = f"{placed} of {stated} instructions can be put in order", "all of them, each once"
        raise PathwaysError(UnsafePlan(path=path, problem=have, rule=rule))
    return order
