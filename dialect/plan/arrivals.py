"""In which order values come to a host from others, as far as the plan says so. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pathways.dialect.plan.instructions import Recv, Send
from pathways.dialect.plan.nouns import Plan
from pathways.dialect.plan.order import Joined, linearize


@dataclass(frozen=True, slots=True)
class Coming:
    """A value that comes to a host: `bit` is its own, `behind` has those of values that it has had whenever this comes.

    Of plans with thousands of values sets of bits are small, and sets of numbers are not.
    """

    bit: int = 0
    behind: int = 0


ALONE = Coming()
"""Of which nothing is said."""


def arrivals_of(plan: Plan, received: Collection[int]) -> Mapping[int, Coming]:
    """What comes to a host by each of the channels by which it receives values.

    `plan` is the whole plan, or a body. What a computation makes of a value is made when that has come; of a branch,
    which may need some of its operands alone, nothing is said.
    """
    held: dict[tuple[int, int], int] = {}
    sent: dict[int, int] = {}
    found: dict[int, Coming] = {}
    for at, what in linearize(plan):
        for stream, part in what.parts if isinstance(what, Joined) else ((at, what),):
            reads, writes, _ = part.effects
            known = 0
            for slot in () if isinstance(what, Joined) else reads:
                known |= held.get((stream, slot), 0)
            if isinstance(part, Send):
                sent[part.channel] = known
            elif isinstance(part, Recv):
                known = sent.get(part.channel, 0)
                if part.channel in received:
                    found[part.channel] = Coming(1 << len(found), known)
                    known |= found[part.channel].bit
            held.update(((stream, slot), known) for slot in writes)
    return found
