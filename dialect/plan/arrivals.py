"""In which order values come to a host from others, as far as the plan says so. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pathways.dialect.plan.instructions import Recv, Send
from pathways.dialect.plan.nouns import Plan
from pathways.dialect.plan.order import Joined, linearize


@dataclass(frozen=True, slots=True)
class Coming:
    """A value that comes to a host: `bit` is its own, `behind` has those of values that it has had whenever this comes,
    `sent` those of values that it has sent (`bits`).

    Of plans with thousands of values sets of bits are small, and sets of numbers are not.
    """

    bit: int = 0
    behind: int = 0
    sent: int = 0


ALONE = Coming()
"""Of which nothing is said."""


def bits(sent: Collection[int]) -> Mapping[int, int]:
    """A bit for each of the channels by which a host sends values."""
    return {channel: 1 << number for number, channel in enumerate(sorted(sent))}


def arrivals_of(plan: Plan, received: Collection[int], sent: Collection[int] = ()) -> Mapping[int, Coming]:
    """What comes to a host by each of the channels by which it receives values, and by which it sends them.

    `plan` is the whole plan, or a body. What a computation makes of a value is made when that has come; of a branch,
    which may need some of its operands alone, nothing is said.
    """
    held: dict[tuple[int, int], tuple[int, int]] = {}
    """By slot, which values that came and that were sent it depends on; below, by channel."""
    under_way: dict[int, tuple[int, int]] = {}
    found: dict[int, Coming] = {}
    leaving = bits(sent)
    for at, what in linearize(plan):
        for stream, part in what.parts if isinstance(what, Joined) else ((at, what),):
            reads, writes, _ = part.effects
            came = left = 0
            for slot in () if isinstance(what, Joined) else reads:
                more = held.get((stream, slot), (0, 0))
                came, left = came | more[0], left | more[1]
            if isinstance(part, Send):
                under_way[part.channel] = came, left | leaving.get(part.channel, 0)
            elif isinstance(part, Recv):
                came, left = under_way.get(part.channel, (0, 0))
                if part.channel in received:
                    found[part.channel] = Coming(1 << len(found), came, left)
                    came |= found[part.channel].bit
            held.update(((stream, slot), (came, left)) for slot in writes)
    return found
