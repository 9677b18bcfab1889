"""Groups instructions by what they must wait for: all others are enqueued before them (paper, section 4.5). Pure.

Some results are not known when they are enqueued: those of *fallible* computations, which call back to the host, and
those of branches, whose bodies are data. A collective with one bad shard hangs its gang for good; so whatever depends
on them is enqueued only when they are known, and all that does not depend on them goes first, whatever its place in the
order. Instructions that wait for one thing do not wait for another.
"""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from pathways.dialect.plan.instructions import Instruction, Recv, Run, Send
from pathways.dialect.plan.nouns import Plan
from pathways.dialect.plan.order import Joined, Ordered

Awaitable: TypeAlias = Run | Recv | Joined
"""A computation that may fail, a value from another host, or a branch."""


@dataclass(eq=False)
class Wave:
    """Instructions, in order, that may be enqueued when certain awaits are over, and the awaits that begin behind them.

    Bit n of `needs`: the await with number n. An await is of a computation that was enqueued, or of a branch. `asks`:
    all of it asks for values from other hosts, ahead of their use.
    """

    needs: int
    steps: list[tuple[int, Instruction]] = field(default_factory=list[tuple[int, Instruction]])
    awaits: list[tuple[int, int, Awaitable]] = field(default_factory=list[tuple[int, int, Awaitable]])
    """The number of each await, the index of its stream, and what is awaited."""
    asks: bool = False


def is_fallible(plan: Plan, instruction: Instruction | Joined) -> bool:
    return isinstance(instruction, Run) and bool(plan.computations[instruction.computation].callbacks)


PREFETCH = 2
"""How many values from other hosts are asked for before those ahead of them have arrived: each takes memory."""


def defer(
    plan: Plan, order: Sequence[Ordered], *, everything: bool = False, received: Container[int] = ()
) -> list[Wave]:
    """Splits a plan into waves: one where nothing is awaited. A wave comes behind those that need less, and behind all
    others where it only asks for values to come: what depends on one that has come is not to wait for that.

    `everything`: wait for each computation before the next is enqueued (sequential dispatch, paper, Figure 4a).
    `received` are the channels that come from other hosts: what they bring is awaited.
    """
    if everything:
        return list(_one_by_one(order, received))
    return _Deferring(plan, received).waves_of(order)


class _Deferring:
    def __init__(self, plan: Plan, received: Container[int]) -> None:
        self.plan = plan
        self.received = received
        self.arrivals: list[int] = []
        """The awaits that are arrivals from other hosts."""
        self.waves: dict[tuple[int, bool], Wave] = {(0, False): Wave(0)}
        self.made: dict[tuple[int, int], int] = {}
        """Awaits that must be over for a slot to hold its value."""
        self.touched: dict[tuple[int, int], int] = {}
        """Awaits that must be over for all readers and writers of a slot so far to be done with it."""
        self.sent: dict[int, int] = {}
        self.awaits = 0

    def waves_of(self, order: Sequence[Ordered]) -> list[Wave]:
        for at, instruction in order:
            self._place(at, instruction)
        return sorted(self.waves.values(), key=lambda w: (w.asks, w.needs.bit_count()))

    def _place(self, at: int, instruction: Instruction | Joined) -> None:
        parts = instruction.parts if isinstance(instruction, Joined) else ((at, instruction),)
        reads: list[tuple[int, int]] = []
        writes: list[tuple[int, int]] = []
        drops: list[tuple[int, int]] = []
        for stream, part in parts:
            for slots, found in zip((reads, writes, drops), part.effects, strict=True):
                slots += [(stream, slot) for slot in found]
        needs = 0
        for slot in reads:
            needs |= self.made.get(slot, 0)
        for slot in (*drops, *writes):
            needs |= self.touched.get(slot, 0)
        arrives = isinstance(instruction, Recv) and instruction.channel in self.received
        if arrives and len(self.arrivals) >= PREFETCH:
            needs |= 1 << self.arrivals[-PREFETCH]
        if isinstance(instruction, Recv):  # sent by this host: of what arrives, a copy that its partners have a part of
            needs |= self.sent.get(instruction.channel, 0)
        asks = arrives and needs != 0
        wave = self.waves.setdefault((needs, asks), Wave(needs, asks=asks))
        after = done = needs
        if not isinstance(instruction, Joined):
            wave.steps.append((at, instruction))
        fallible = isinstance(instruction, Run) and is_fallible(self.plan, instruction)
        if fallible or arrives or isinstance(instruction, Joined):
            assert isinstance(instruction, Run | Recv | Joined)
            wave.awaits.append((self.awaits, at, instruction))
            if arrives:
                self.arrivals.append(self.awaits)
            after |= 1 << self.awaits
            done = after if isinstance(instruction, Joined) else needs
            self.awaits += 1
        if isinstance(instruction, Send):
            self.sent[instruction.channel] = needs
        for slot in reads:
            self.touched[slot] = self.touched.get(slot, 0) | done
        for slot in writes:
            self.made[slot] = after
            self.touched[slot] = self.touched.get(slot, 0) | after


def _one_by_one(order: Sequence[Ordered], received: Container[int]) -> Iterator[Wave]:
    """Makes a wave of each computation, and of each value from another host, each behind the one before."""
    number, wave = 0, Wave(0)
    for at, instruction in order:
        if not isinstance(instruction, Joined):
            wave.steps.append((at, instruction))
        arrives = isinstance(instruction, Recv) and instruction.channel in received
        if arrives or isinstance(instruction, Run | Joined):
            assert isinstance(instruction, Run | Recv | Joined)
            wave.awaits.append((number, at, instruction))
            yield wave
            wave = Wave(1 << number)
            number += 1
    if wave.steps or not number:
        yield wave
