"""Finds all computations of a plan that need the results of a given one. `hung_launches.py` calls it when a computation
hangs, to fail the computations that wait for it, too. Pure functions.
"""

from collections.abc import Iterator

from pathways.dialect.plan.instructions import Copy, Recv, Run, Send
from pathways.dialect.plan.nouns import Plan
from pathways.dialect.plan.order import Joined, linearize


def dependents(plan: Plan, run: Run) -> Iterator[Run]:
    """Yields, in order, the computations that need results of `run`, directly or not.

    All results of a branch depend on all of its operands.
    """
    tainted: set[tuple[int, int]] = set()
    channels: set[int] = set()
    for at, instruction in linearize(plan):
        parts = instruction.parts if isinstance(instruction, Joined) else ((at, instruction),)
        reads = any((stream, slot) in tainted for stream, part in parts for slot in part.effects[0])
        taints = reads or instruction is run
        if isinstance(instruction, Send):
            (channels.add if reads else channels.discard)(instruction.channel)
        elif isinstance(instruction, Recv):
            taints = instruction.channel in channels
        elif isinstance(instruction, Run) and reads and instruction is not run:
            yield instruction
        if isinstance(instruction, Run | Recv | Copy | Joined):
            for stream, part in parts:
                for slot in part.effects[1]:
                    (tainted.add if taints else tainted.discard)((stream, slot))
