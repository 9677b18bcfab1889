"""Tests that the enqueue order respects the plan's data, in any order of inbound values and branch decisions."""

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.random_programs import INPUTS, SHAPE, draw, draw_irregular

import pathways as pw
from pathways.dialect.plan.inbound_values import PREFETCH
from pathways.dialect.plan.instructions import Recv
from pathways.dialect.plan.nouns import Plan
from pathways.dialect.plan.order import Joined, Ordered
from pathways.dialect.plan.part import PlanPart, part_of
from pathways.runtime.host.load.waves import defer
from pathways.runtime.host.run.frame import Frame
from pathways.runtime.host.run.progress import PreparedWave, drive

PROGRAMS, FEW_PROGRAMS = 16, 6


@dataclass(eq=False)
class Awaited:
    """An inbound value or a branch decision, known once the test sets `known`."""

    what: Any
    log: list[tuple[str, Any]]
    known: bool = False

    def start(self, frame: Frame, run: Any) -> Iterator[Sequence["Awaited"]]:
        self.log.append(("begun", self.what))
        while not self.known:
            yield (self,)
        self.log.append(("over", self.what))

    def is_known(self) -> bool:
        return self.known

    def wait(self) -> None:
        raise AssertionError("nothing waits here")


@dataclass(eq=False)
class Enqueued:
    """Records the enqueued steps, in order."""

    log: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])

    def enqueue(self, part: Any, frame: Frame, *, last: bool) -> None:
        self.log += [("step", step) for step in part.steps]


def enqueued(part: PlanPart, rng: random.Random, *, sequential: bool) -> list[tuple[str, Any]]:
    """Enqueues a partition whose awaits complete in a random order, several at a time; returns the event log."""
    run = Enqueued()
    waves = [
        PreparedWave(
            wave.needs,
            [SimpleNamespace(steps=[wave.steps[k] for k in range(len(wave.steps))])],  # pyright: ignore
            [(number, Awaited((at, what), run.log)) for number, at, what in wave.awaits],  # pyright: ignore
        )
        for wave in defer(part.plan, part.order, everything=sequential, received=part.received)
    ]
    for pendings in drive(waves, Frame(0, ()), run):  # pyright: ignore
        for pending in rng.sample(list(pendings), rng.randint(1, len(pendings))):
            pending.known = True  # pyright: ignore
        asked = sum(isinstance(p.what[1], Recv) for p in pendings)  # pyright: ignore
        assert asked <= PREFETCH or sequential
    return run.log


@pytest.mark.parametrize("seed", range(20))
def test_the_first_ready_wave_is_enqueued_first(seed: int) -> None:
    """All 30 tasks begin at once and complete in a random order; each wave waits for up to three of them."""
    rng, run = random.Random(seed), Enqueued()
    needs = [0, *(sum(1 << n for n in rng.sample(range(30), rng.randint(0, 3))) for _ in range(60))]
    tasks: list[Any] = [(n, Awaited(n, run.log)) for n in range(30)]
    waves: list[Any] = [
        PreparedWave(need, [SimpleNamespace(steps=[at])], [] if at else tasks)  # pyright: ignore
        for at, need in enumerate(needs)
    ]
    left, over = list(range(len(needs))), 0
    want: list[tuple[str, Any]] = []
    for pendings in drive(waves, Frame(0, ()), run):  # pyright: ignore
        pending: Any = rng.choice(list(pendings))
        pending.known = True
    for event, what in run.log:
        over |= 1 << what if event == "over" else 0
        if event == "step":
            first = next(at for at in left if not needs[at] & ~over)
            left.remove(first)
            want.append(("step", first))
    assert [one for one in run.log if one[0] == "step"] == want and not left


def check(part: PlanPart, log: list[tuple[str, Any]]) -> None:
    """Checks that each instruction occurs once and that every slot is used in a valid order.

    No slot is read before it is written, or overwritten or dropped before all its readers have read it.
    """
    begins: dict[int, int] = {}
    ends: dict[int, int] = {}
    for time, (event, (_, what)) in enumerate(log):
        if event != "over":
            begins.setdefault(id(what), time)
        ends[id(what)] = time
    steps = [id(what) for event, (_, what) in log if event == "step"]
    assert sorted(steps) == sorted(id(what) for _, what in part.order if not isinstance(what, Joined))
    made: dict[tuple[int, int], Ordered] = {}
    used: dict[tuple[int, int], list[Ordered]] = defaultdict(list)
    for one in part.order:
        at, what = one
        parts = what.parts if isinstance(what, Joined) else ((at, what),)
        effects = [(stream, instruction.effects) for stream, instruction in parts]
        for stream, (reads, writes, drops) in effects:
            for slot in reads:
                maker = made.get((stream, slot))
                assert maker is None or ends[id(maker[1])] < begins[id(what)]
            for slot in (*writes, *drops):
                for user in used[stream, slot]:
                    assert user[1] is what or ends[id(user[1])] < begins[id(what)]
        for stream, (reads, writes, drops) in effects:
            for slot in reads:
                used[stream, slot].append(one)
            for slot in writes:
                made[stream, slot] = one
                used[stream, slot] = [one]
            for slot in drops:
                made.pop((stream, slot), None)


@pytest.fixture(scope="module")
def random_plans(thorough: bool) -> list[Plan]:
    values = [np.zeros(SHAPE, np.float32)] * INPUTS
    seeds = range(PROGRAMS if thorough else FEW_PROGRAMS)
    drawn = [draw(seed)[0] for seed in seeds] + [draw_irregular(seed)[0] for seed in seeds]
    programs = [pw.program(program).lower(*values) for program in drawn]
    return [lowered.compile("islands=4,devices=8", merge=seed % 2 == 0).plan for seed, lowered in enumerate(programs)]


@pytest.mark.parametrize("sequential", [False, True])
def test_the_enqueue_order_respects_data_in_any_order_of_inbound_values(
    random_plans: list[Plan], sequential: bool
) -> None:
    awaited = 0
    for seed, plan in enumerate(random_plans):
        rng = random.Random(seed)
        hosts: list[set[str]] = [set() for _ in range(rng.randint(2, 4))]
        for stream in plan.streams:
            rng.choice(hosts).add(stream.island)
        for islands in filter(None, hosts):
            whole = part_of(plan, islands)
            for part in (whole, *whole.bodies):
                for _ in range(4):
                    log = enqueued(part, rng, sequential=sequential)
                    awaited += sum(event == "over" for event, _ in log)
                    check(part, log)
    assert awaited > 4 * len(random_plans)
