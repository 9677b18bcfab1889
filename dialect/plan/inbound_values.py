"""Derives from a plan in which order the values of other hosts reach a host. Hosts call it when they load a plan, and
use the order while a run waits for such values. Pure functions.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pathways.dialect.plan.instructions import Recv, Send
from pathways.dialect.plan.nouns import Plan
from pathways.dialect.plan.order import Joined, linearize

PREFETCH = 2
"""Maximum number of values from other hosts that a host requests before the first one arrives. Each takes memory."""


@dataclass(frozen=True, slots=True)
class InboundValue:
    """An inbound value of a host. `bit` is its own bit.

    `after` has the bits of all inbound values that the host must have received before this one. `sent` has the bits
    (`bits`) of all values that the host must have sent before. Bit sets are used because plans have thousands of
    values, and sets of numbers would be large.
    """

    bit: int = 0
    after: int = 0
    sent: int = 0


UNORDERED = InboundValue()
"""An inbound value about which the plan determines nothing."""


def bits(sent: Collection[int]) -> Mapping[int, int]:
    """Assigns a bit to each channel on which a host sends values."""
    return {channel: 1 << number for number, channel in enumerate(sorted(sent))}


def inbound_values_of(plan: Plan, received: Collection[int], sent: Collection[int] = ()) -> Mapping[int, InboundValue]:
    """Returns the inbound value of each channel on which a host receives; `sent` are the channels on which it sends.

    `plan` is the whole plan, or a body. An output of a computation exists only after all inputs have arrived. A branch
    may need only some of its operands, so its results depend on nothing.
    """
    held: dict[tuple[int, int], tuple[int, int]] = {}
    """By slot: the bits of the received and of the sent values that it depends on. `under_way`: the same by channel."""
    under_way: dict[int, tuple[int, int]] = {}
    found: dict[int, InboundValue] = {}
    leaving = bits(sent)
    for at, what in linearize(plan):
        for stream, part in what.parts if isinstance(what, Joined) else ((at, what),):
            reads, writes, _ = part.effects
            arrived = left = 0
            for slot in () if isinstance(what, Joined) else reads:
                more = held.get((stream, slot), (0, 0))
                arrived, left = arrived | more[0], left | more[1]
            if isinstance(part, Send):
                under_way[part.channel] = arrived, left | leaving.get(part.channel, 0)
            elif isinstance(part, Recv):
                arrived, left = under_way.get(part.channel, (0, 0))
                if part.channel in received:
                    found[part.channel] = InboundValue(1 << len(found), arrived, left)
                    arrived |= found[part.channel].bit
            held.update(((stream, slot), (arrived, left)) for slot in writes)
    return found
