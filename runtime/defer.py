"""What must wait, and for what: everything else is enqueued before it (paper, section 4.5). Pure.

Some results are not known to be good when they are enqueued: those of *fallible* computations, which call back to the
host. A collective with one bad shard hangs its gang for good; so whatever depends on them is enqueued only when they
are known good, and all that does not depend on them goes first, whatever its place in the order.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pathways.dialect.plan import Instruction, Plan, Recv, Run, Send
from pathways.runtime.validate import effects


@dataclass(frozen=True)
class Await:
    """Wait for a computation that was enqueued; what depends on it comes behind."""

    run: Run


Ordered: TypeAlias = tuple[int, Instruction | Await]
"""The index of a stream, and what to do there."""


def is_fallible(plan: Plan, instruction: Instruction) -> bool:
    return isinstance(instruction, Run) and bool(plan.computations[instruction.computation].callbacks)


def defer(plan: Plan, order: Sequence[tuple[int, Instruction]], *, everything: bool = False) -> list[Ordered]:
    """The order with awaits in it; as it was where nothing is fallible. `everything`: wait for each computation before
    the next is enqueued (sequential dispatch, paper, Figure 4a)."""
    if everything:
        return list(_one_by_one(order))
    if not any(c.callbacks for c in plan.computations):
        return list(order)
    levels: list[list[Ordered]] = [[]]
    """What may be enqueued when so many awaits are over."""
    made: dict[tuple[int, int], int] = {}
    read: dict[tuple[int, int], int] = {}
    sent: dict[int, int] = {}
    for at, instruction in order:
        reads, writes, drops = effects(instruction)
        level = max((made.get((at, slot), 0) for slot in reads), default=0)
        level = max(level, max((read.get((at, slot), 0) for slot in drops), default=0))
        if isinstance(instruction, Recv):
            level = max(level, sent[instruction.channel])
        levels[level].append((at, instruction))
        for slot in reads:
            read[at, slot] = max(read.get((at, slot), 0), level)
        if isinstance(instruction, Send):
            sent[instruction.channel] = level
        known = level
        if isinstance(instruction, Run) and is_fallible(plan, instruction):
            levels.append([(at, Await(instruction))])
            known = len(levels) - 1
        made.update(((at, slot), known) for slot in writes)
    return list(_in_order(levels))


def _one_by_one(order: Sequence[tuple[int, Instruction]]) -> Iterator[Ordered]:
    for at, instruction in order:
        yield at, instruction
        if isinstance(instruction, Run):
            yield at, Await(instruction)


def _in_order(levels: Sequence[Sequence[Ordered]]) -> Iterator[Ordered]:
    for level in levels:
        yield from level
