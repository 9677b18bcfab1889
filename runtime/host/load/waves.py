"""Divides the instructions of a plan into groups (waves) that can be enqueued without waiting in between. Host
callbacks, data-dependent control flow and values from other hosts need further groups. `loaded_part.py` and `bodies.py`
call it.

The groups are those of the paper, section 4.5. The functions are pure. Instructions that wait for nothing are enqueued
before all others.

Some results are not known when their work is enqueued. These are results of *fallible* computations, which call back to
the host, and of branches, whose bodies depend on data. A collective with one bad shard hangs its gang forever. So
instructions that depend on such results are enqueued only when the results are known. Instructions that do not depend
on them go first, whatever their position in the order. Instructions that wait for one result do not wait for another.

A device runs its computations in the order in which they are enqueued. A computation whose operand other devices of the
island still compute would block those that are enqueued behind it. So it keeps the order of the schedule: it waits for
the values of other hosts that earlier computations of its devices wait for.
"""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from pathways.dialect.plan.inbound_values import PREFETCH
from pathways.dialect.plan.instructions import Copy, Instruction, Recv, Run, Send
from pathways.dialect.plan.nouns import Plan
from pathways.dialect.plan.order import Joined, Ordered

Awaitable: TypeAlias = Run | Recv | Joined
"""An instruction that waves may wait for: a fallible computation, a value from another host, or a branch."""


@dataclass(eq=False)
class Wave:
    """Instructions, in order, that may be enqueued when certain awaits have completed, and the awaits that then start.

    An await waits for an `Awaitable`. Bit n of `needs` stands for the await with number n. `asks`: the wave only pulls
    values from other hosts, ahead of their use.
    """

    needs: int
    steps: list[tuple[int, Instruction]] = field(default_factory=list[tuple[int, Instruction]])
    awaits: list[tuple[int, int, Awaitable]] = field(default_factory=list[tuple[int, int, Awaitable]])
    """The number of each await, the index of its stream, and what is awaited."""
    asks: bool = False


def is_fallible(plan: Plan, instruction: Instruction | Joined) -> bool:
    return isinstance(instruction, Run) and bool(plan.computations[instruction.computation].callbacks)


def defer(
    plan: Plan, order: Sequence[Ordered], *, everything: bool = False, received: Container[int] = ()
) -> list[Wave]:
    """Splits a plan into waves. A plan that awaits nothing is one wave.

    Waves that need fewer awaits come first. Waves that only pull values come last, so that dependents of a value that
    has arrived do not wait for those pulls.

    `everything`: wait for each computation before the next is enqueued (sequential dispatch, paper, Figure 4a).
    `received`: the channels from other hosts, whose values are awaited.
    """
    if everything:
        return list(_one_by_one(order, received))
    return _Deferring(plan, received).waves_of(order)


class _Deferring:
    def __init__(self, plan: Plan, received: Container[int]) -> None:
        self.plan = plan
        self.received = received
        self.inbound_awaits: list[int] = []
        """The numbers of the awaits of values from other hosts."""
        self.inbound = 0
        """The bits of these awaits."""
        self.waves: dict[tuple[int, bool], Wave] = {(0, False): Wave(0)}
        self.made: dict[tuple[int, int], int] = {}
        """By slot: the awaits that must complete before the slot holds its value."""
        self.touched: dict[tuple[int, int], int] = {}
        """By slot: the awaits that must complete before all its readers and writers so far are done."""
        self.sent: dict[int, int] = {}
        self.behind: dict[tuple[int, int], int] = {}
        """By device: the awaits that must complete before all its computations so far are enqueued."""
        self.copied: set[tuple[int, int]] = set()
        """Slots whose values come from other devices of the island."""
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
        if arrives and len(self.inbound_awaits) >= PREFETCH:
            needs |= 1 << self.inbound_awaits[-PREFETCH]
        devices = self._devices_of(at, instruction)
        if not self.copied.isdisjoint(reads):
            for device in devices:
                needs |= self.behind.get(device, 0) & self.inbound
        if isinstance(instruction, Recv):  # also sent by this host: a copy inside an island of several hosts
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
                self.inbound_awaits.append(self.awaits)
                self.inbound |= 1 << self.awaits
            after |= 1 << self.awaits
            done = after if isinstance(instruction, Joined) else needs
            self.awaits += 1
        for device in devices:
            self.behind[device] = self.behind.get(device, 0) | needs
        if isinstance(instruction, Copy | Recv) and not arrives:
            self.copied.update(writes)
        else:
            self.copied.difference_update(writes)
        if isinstance(instruction, Send):
            self.sent[instruction.channel] = needs
        for slot in reads:
            self.touched[slot] = self.touched.get(slot, 0) | done
        for slot in writes:
            self.made[slot] = after
            self.touched[slot] = self.touched.get(slot, 0) | after

    def _devices_of(self, at: int, instruction: Instruction | Joined) -> Sequence[tuple[int, int]]:
        """Returns the devices that execute a computation; none for other instructions."""
        if not isinstance(instruction, Run):
            return ()
        return [(at, device) for device in self.plan.meshes[instruction.mesh].devices]


def _one_by_one(order: Sequence[Ordered], received: Container[int]) -> Iterator[Wave]:
    """Makes one wave for each computation, branch and value from another host; each waits for the previous one."""
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
