"""One order in which a single controller enqueues the streams of all islands. Pure.

Every island keeps the order of its stream; a receive comes after its send; otherwise the lower step goes first. A
plan whose streams wait for each other in a circle is refused before anything runs.
"""

import heapq

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.errors import UnsafePlan
from pathways.dialect.plan import Instruction, Plan, Recv, Send


def linearize(plan: Plan, path: str = "plan") -> list[tuple[int, Instruction]]:
    """(index of the island's stream, instruction), in the order to enqueue. Raises PWC0604."""
    positions = [0] * len(plan.streams)
    sent: set[int] = set()
    parked: dict[int, int] = {}
    ready: list[tuple[int, int]] = []
    order: list[tuple[int, Instruction]] = []

    def offer(stream: int) -> None:
        instructions = plan.streams[stream].instructions
        if positions[stream] == len(instructions):
            return
        following = instructions[positions[stream]]
        if isinstance(following, Recv) and following.channel not in sent:
            parked[following.channel] = stream
        else:
            heapq.heappush(ready, (following.step, stream))

    for stream in range(len(plan.streams)):
        offer(stream)
    while ready:
        _, stream = heapq.heappop(ready)
        instruction = plan.streams[stream].instructions[positions[stream]]
        order.append((stream, instruction))
        positions[stream] += 1
        if isinstance(instruction, Send):
            sent.add(instruction.channel)
            if instruction.channel in parked:
                offer(parked.pop(instruction.channel))
        offer(stream)
    if parked:
        stuck = ", ".join(f"{plan.streams[s].island} waits for channel {c}" for c, s in sorted(parked.items()))
        rule = "streams that can finish: every receive has a send that does not wait for it"
        raise PathwaysError(UnsafePlan(path=path, problem=stuck, rule=rule))
    return order
