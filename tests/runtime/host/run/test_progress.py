"""Tests the wait for the first of several values, and the enqueue order after a value has arrived."""

import threading
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw
from pathways.dialect.plan.inbound_values import PREFETCH, InboundValue, inbound_values_of
from pathways.dialect.plan.instructions import Recv, Run
from pathways.dialect.plan.nouns import Plan
from pathways.dialect.plan.part import part_of
from pathways.runtime.host.devices.layouts import Shards
from pathways.runtime.host.load.waves import defer
from pathways.runtime.host.run import progress
from pathways.runtime.host.run.frame import Frame
from pathways.runtime.host.run.progress import PreparedWave, Pulled, Work, drive, wait_any

jit: Any = jax.jit
HOPS = 8


class Value:
    """A value that is ready, or fails, once the test sets `there`."""

    def __init__(self, fails: bool = False) -> None:
        self.there = threading.Event()
        self.fails = fails

    def is_ready(self) -> bool:
        return self.there.is_set()

    def block_until_ready(self) -> None:
        self.there.wait()
        if self.fails:
            raise RuntimeError("its source is gone")


def pulled(*values: Value) -> Pulled:
    return Pulled(Shards(values))


@pytest.fixture
def no_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails the test if a waiter polls instead of being woken."""

    def look(_: float) -> None:
        raise AssertionError("it looks")

    monkeypatch.setattr(progress, "time", SimpleNamespace(sleep=look))  # other threads of the process may sleep


def begin(*pendings: Any) -> tuple[threading.Thread, list[bool]]:
    """Waits for any of the values in a thread, which records when the wait ends."""
    over: list[bool] = []
    thread = threading.Thread(target=lambda: (wait_any(pendings), over.append(True)))
    thread.start()
    return thread, over


@pytest.mark.usefixtures("no_polling")
@pytest.mark.parametrize("first", range(3))
@pytest.mark.parametrize("fails", [False, True])
def test_any_value_ends_the_wait_for_several(first: int, fails: bool) -> None:
    values = [Value(fails) for _ in range(3)]
    pendings = [pulled(v) for v in values]
    thread, over = begin(*pendings)
    assert not over
    values[first].there.set()
    thread.join()
    assert over and [p.is_known() for p in pendings] == [n == first for n in range(3)]
    left = [p for p in pendings if not p.is_known()]
    thread, over = begin(*left)  # helpers wait for these already
    values[(first + 1) % 3].there.set()
    thread.join()
    assert over
    wait_any(pendings)  # some are known
    for value in values:
        value.there.set()
    wait_any(left)  # all are known


@pytest.mark.usefixtures("no_polling")
def test_a_value_is_known_only_when_all_its_shards_are_ready() -> None:
    one, two, other = Value(), Value(), Value()
    both = pulled(one, two)
    thread, over = begin(both, pulled(other))
    one.there.set()
    assert not both.is_known() and not over
    two.there.set()
    thread.join()
    assert over and both.is_known()
    other.there.set()


def test_without_helper_threads_the_waiter_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [Value(), Value()]
    monkeypatch.setattr("pathways.runtime.host.devices.waits._helper", lambda: Refused())
    monkeypatch.setattr(progress, "time", SimpleNamespace(sleep=lambda _: values[1].there.set()))
    wait_any([pulled(v) for v in values])
    assert not values[0].is_ready()


class Refused:
    """A helper whose thread could not be started."""

    is_there = False


def on_two_islands() -> list[Any]:
    """Returns two functions that add one, one for each island."""
    made = pw.make_virtual_device_set()
    places = [NamedSharding(made.add_slice(devices=1, island=f"island{n}").mesh("x"), P()) for n in range(2)]
    return [jit(lambda x: x + 1, in_shardings=p, out_shardings=p) for p in places]


def chain_of(hops: int) -> Plan:
    """Compiles a chain that alternates between two islands, with `hops` steps on each."""
    steps = on_two_islands()

    def chain(x: Any) -> Any:
        for hop in range(2 * hops):
            x = steps[hop % 2](x)
        return x

    return pw.program(chain).lower(np.ones(4, np.float32)).compile("islands=2,devices=1").plan


def test_received_values_are_used_before_more_are_pulled() -> None:
    """A chain that alternates between islands pulls values ahead only after the work that the last value enables."""
    plan = chain_of(HOPS)
    part = part_of(plan, frozenset({"island1"}))
    left = defer(part.plan, part.order, received=part.received)
    over, order = 0, list[str]()
    for number in range(HOPS):
        while (wave := next((w for w in left if not w.needs & ~over), None)) is not None:
            left.remove(wave)
            order += [type(i).__name__ for _, i in wave.steps if isinstance(i, Run | Recv)]
        over |= 1 << number
    while left:
        order += [type(i).__name__ for _, i in left.pop(0).steps if isinstance(i, Run | Recv)]
    ahead = HOPS - PREFETCH
    assert order == ["Recv"] * PREFETCH + ["Run", "Recv"] * ahead + ["Run"] * PREFETCH


@pytest.mark.parametrize("same", [True, False])
def test_only_the_first_inbound_value_of_each_frame_is_awaited(same: bool) -> None:
    """Of two frames, as of two loops, either value may arrive first. All tasks complete, in order."""
    values, frames, done = [Value() for _ in range(3)], [Frame(0, ()), Frame(0, ())], list[int]()
    found = [InboundValue(1, 0), InboundValue(2, 1), InboundValue(4, 3)]
    pulls = [
        Pulled(Shards([value]), frames[0 if same else number % 2], inbound)
        for number, (value, inbound) in enumerate(zip(values, found, strict=True))
    ]

    def work(number: int) -> Work:
        yield (pulls[number],)
        done.append(number)

    tasks: list[Any] = [(n, SimpleNamespace(start=lambda *_, n=n: work(n))) for n in range(3)]
    driven = drive([PreparedWave(0, [], tasks)], frames[0], SimpleNamespace())  # pyright: ignore
    assert list(next(driven)) == (pulls[:1] if same else pulls[:2])
    for value in reversed(values):
        value.there.set()
    while (awaited := next(driven, None)) is not None:
        assert list(awaited) == [pulls[len(done)]]
    assert done == [0, 1, 2]


def test_inbound_values_of_a_chain_arrive_in_chain_order() -> None:
    plan = chain_of(HOPS)
    for island in ("island0", "island1"):
        part = part_of(plan, frozenset({island}))
        found = inbound_values_of(plan, part.received)
        assert len(found) == HOPS - (island == "island0") == len(part.received)
        for earlier, inbound in enumerate(sorted(found.values(), key=lambda one: one.bit)):
            assert inbound.bit == 1 << earlier and inbound.after == inbound.bit - 1


def test_independent_inbound_values_arrive_in_any_order() -> None:
    steps = on_two_islands()
    plan = pw.program(lambda x, y: (steps[1](steps[0](x)), steps[1](steps[0](y))))
    lowered = plan.lower(np.ones(4, np.float32), np.ones(4, np.float32)).compile("islands=2,devices=1", merge=False)
    found = inbound_values_of(lowered.plan, part_of(lowered.plan, frozenset({"island1"})).received)
    assert len(found) == 2 and all(inbound.after == 0 for inbound in found.values())
