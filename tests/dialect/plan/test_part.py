"""The parts of a plan: together they are the plan, each instruction in one of them, in an order of all."""

import random
from collections import Counter
from itertools import chain

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from support.random_programs import INPUTS, SHAPE, draw, draw_irregular

import pathways as pw
from pathways.dialect.plan.instructions import Branch, Free, Instruction, Recv, Run, Send
from pathways.dialect.plan.nouns import Plan
from pathways.dialect.plan.order import Joined, linearize
from pathways.dialect.plan.part import PlanPart, bytes_between, edges_of, part_of

TOPOLOGY = "islands=4,devices=8"


@pytest.fixture(scope="module")
def some_plans() -> list[Plan]:
    values = [np.zeros(SHAPE, np.float32)] * INPUTS
    drawn = [draw(seed)[0] for seed in range(10)] + [draw_irregular(seed)[0] for seed in range(10)]
    programs = [pw.program(program).lower(*values) for program in drawn]
    return [lowered.compile(TOPOLOGY, merge=merge).plan for lowered in programs for merge in (True, False)]


def splits(plan: Plan, seed: int) -> list[frozenset[str]]:
    """The islands of a plan on 1 to 4 hosts."""
    rng = random.Random(seed)
    hosts: list[set[str]] = [set() for _ in range(rng.randint(1, 4))]
    for stream in plan.streams:
        rng.choice(hosts).add(stream.island)
    return [frozenset(h) for h in hosts if h]


def test_the_parts_are_the_plan(some_plans: list[Plan]) -> None:
    assert len(some_plans) > 10 and any(edges_of(p) for p in some_plans)
    for plan in some_plans:
        for seed in range(10):
            check([part_of(plan, islands) for islands in splits(plan, seed)], plan)


def check(parts: list[PlanPart], plan: Plan) -> None:
    whole = list(chain(*(_alone(plan, *one) for one in linearize(plan))))
    found = [list(chain(*(_alone(p.plan, *one) for one in p.order))) for p in parts]
    assert Counter(map(repr, chain(*found))) == Counter(map(repr, whole))
    places = {repr(one): i for i, one in enumerate(whole)}
    for part in parts:
        for _, what in part.order:
            if isinstance(what, Joined):
                branches = [i for s in plan.streams for i in s.instructions if isinstance(i, Branch)]
                everywhere = sum(b.step == what.branch.step for b in branches)
                assert what.away == (len(what.parts) < everywhere)
    for order in found:  # each is the order of all, with what is elsewhere left out
        assert [places[repr(one)] for one in order] == sorted(places[repr(one)] for one in order)
    assert sorted(chain(*(p.inputs for p in parts))) == [i for i, port in enumerate(plan.inputs) if port.island]
    assert sorted(chain(*(p.results for p in parts))) == list(range(len(plan.results)))
    for part in parts:
        assert [plan.inputs[i] for i in part.inputs] == list(part.plan.inputs)
        assert [plan.results[i] for i in part.results] == list(part.plan.results)
    sent, received = ({c: e for p in parts for c, e in side(p).items()} for side in (_sent, _received))
    assert sent == received
    if len(parts) == 1:
        assert not sent and parts[0].plan.streams == plan.streams


def _alone(plan: Plan, at: int, what: Instruction | Joined) -> list[tuple[str, Instruction]]:
    """An instruction with its island; the parts of a branch one by one."""
    parts = what.parts if isinstance(what, Joined) else ((at, what),)
    return [(plan.streams[stream].island, part) for stream, part in parts]


def test_the_parts_of_bodies_are_the_bodies(some_plans: list[Plan]) -> None:
    found = 0
    for plan in some_plans:
        for seed in range(5):
            parts = [part_of(plan, islands) for islands in splits(plan, seed)]
            for number, body in enumerate(plan.bodies):
                found += 1
                check([p.bodies[number] for p in parts], plan.of_body(number))
                for part in parts:
                    own = part.plan.bodies[number]
                    assert (own.inputs, own.results) == (body.inputs, body.results)
                    assert own.streams == part.bodies[number].plan.streams
    assert found > 100


def _sent(part: PlanPart) -> dict[int, object]:
    return dict(part.sent)


def _received(part: PlanPart) -> dict[int, object]:
    return dict(part.received)


def test_numbers_of_edges_differ_and_are_those_of_all_hosts(some_plans: list[Plan]) -> None:
    for plan in some_plans:
        numbers = [e.number for e in edges_of(plan)]
        assert numbers == list(range(len(numbers)))
        for stream in plan.streams:
            part = part_of(plan, {stream.island})
            channels = {i.channel for i in stream.instructions if isinstance(i, Send)}
            assert set(part.sent) == channels
            assert {e.number for e in part.sent.values()} <= set(numbers)
            assert set(part.received) == {i.channel for i in stream.instructions if isinstance(i, Recv)}


def test_what_may_be_overwritten_before_it_is_taken_is_known(some_plans: list[Plan]) -> None:
    """Inputs and results of the program, which a later run may donate, and what the plan itself donates."""
    seen: Counter[bool] = Counter()
    for plan in some_plans:
        for edge in edges_of(plan):
            stream = plan.stream(edge.source)
            send = next(i for i in stream.instructions if isinstance(i, Send) and i.channel == edge.channel)
            ports = {p.slot for p in (*plan.inputs, *plan.results) if p.island == stream.island}
            donated = {s for i in stream.instructions if isinstance(i, Run | Branch) for s in i.effects.drops}
            assert edge.may_be_overwritten == (send.slot in ports | donated)
            seen[edge.may_be_overwritten] += 1
            assert not any(
                isinstance(i, Free) and send.slot in i.slots and i.step < send.step for i in stream.instructions
            )
    assert seen[True] and seen[False]


def test_bytes_of_values_between_hosts() -> None:
    """Two values of 64 bytes go from a mesh of four to one of two and back; what islands of one host share is free."""
    slices = pw.make_virtual_device_set()
    here, there = (NamedSharding(slices.add_slice(devices=n).mesh("x"), P("x")) for n in (4, 2))
    f, g = (jax.jit(lambda x: x + 1, in_shardings=s, out_shardings=s) for s in (here, there))
    x = np.zeros(16, np.float32)
    plan = pw.program(lambda x, y: (f(g(f(x))), f(g(f(y))))).lower(x, x).compile("islands=2,devices=4").plan
    first, second = (next(m.island for m in plan.meshes if len(m.devices) == n) for n in (4, 2))
    assert bytes_between(plan, 1, str) == {first: 2 * 16 + 16, second: 2 * 32 + 32}
    assert bytes_between(plan, 2, str) == {first: 2 * 16 + 2 * 16, second: 2 * 32 + 2 * 32}
    assert bytes_between(plan, 2, lambda _: "one host") == {first: 0, second: 0}
