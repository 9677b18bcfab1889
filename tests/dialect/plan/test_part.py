"""Host partitions of a plan contain each instruction once, in the order of the whole plan."""

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
def random_plans(thorough: bool) -> list[Plan]:
    values = [np.zeros(SHAPE, np.float32)] * INPUTS
    seeds = range(7 if thorough else 4)
    drawn = [draw(seed)[0] for seed in seeds] + [draw_irregular(seed)[0] for seed in seeds]
    programs = [pw.program(program).lower(*values) for program in drawn]
    return [lowered.compile(TOPOLOGY, merge=merge).plan for lowered in programs for merge in (True, False)]


def random_split(plan: Plan, seed: int) -> list[frozenset[str]]:
    """Distributes the islands of a plan over 1 to 4 hosts."""
    rng = random.Random(seed)
    hosts: list[set[str]] = [set() for _ in range(rng.randint(1, 4))]
    for stream in plan.streams:
        rng.choice(hosts).add(stream.island)
    return [frozenset(h) for h in hosts if h]


@pytest.mark.long("more random examples of the same kind")
def test_partitions_contain_the_whole_plan(random_plans: list[Plan]) -> None:
    assert len(random_plans) > 10 and any(edges_of(p) for p in random_plans)
    for plan in random_plans:
        for seed in range(10):
            check_partitions([part_of(plan, islands) for islands in random_split(plan, seed)], plan)


def check_partitions(parts: list[PlanPart], plan: Plan) -> None:
    """Asserts that partitions contain every instruction, edge, input and result of a plan once, in its order."""
    whole = list(chain(*(_with_islands(plan, *one) for one in linearize(plan))))
    found = [list(chain(*(_with_islands(p.plan, *one) for one in p.order))) for p in parts]
    assert Counter(map(repr, chain(*found))) == Counter(map(repr, whole))
    places = {repr(one): i for i, one in enumerate(whole)}
    for part in parts:
        for _, what in part.order:
            if isinstance(what, Joined):
                branches = [i for s in plan.streams for i in s.instructions if isinstance(i, Branch)]
                everywhere = sum(b.step == what.branch.step for b in branches)
                assert what.is_shared == (len(what.parts) < everywhere)
    for order in found:  # each partition keeps the order of the whole plan
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


def _with_islands(plan: Plan, at: int, what: Instruction | Joined) -> list[tuple[str, Instruction]]:
    """Pairs an instruction with its island. A joined branch gives one pair per island."""
    parts = what.parts if isinstance(what, Joined) else ((at, what),)
    return [(plan.streams[stream].island, part) for stream, part in parts]


def test_partitions_of_bodies_contain_the_whole_bodies(random_plans: list[Plan]) -> None:
    found = 0
    for plan in random_plans:
        for seed in range(5):
            parts = [part_of(plan, islands) for islands in random_split(plan, seed)]
            for number, body in enumerate(plan.bodies):
                found += 1
                check_partitions([p.bodies[number] for p in parts], plan.of_body(number))
                for part in parts:
                    own = part.plan.bodies[number]
                    assert (own.inputs, own.results) == (body.inputs, body.results)
                    assert own.streams == part.bodies[number].plan.streams
    assert found > 2 * len(random_plans)


def _sent(part: PlanPart) -> dict[int, object]:
    return dict(part.sent)


def _received(part: PlanPart) -> dict[int, object]:
    return dict(part.received)


def test_edge_numbers_are_unique_and_equal_on_all_hosts(random_plans: list[Plan]) -> None:
    for plan in random_plans:
        numbers = [e.number for e in edges_of(plan)]
        assert numbers == list(range(len(numbers)))
        for stream in plan.streams:
            part = part_of(plan, {stream.island})
            channels = {i.channel for i in stream.instructions if isinstance(i, Send)}
            assert set(part.sent) == channels
            assert {e.number for e in part.sent.values()} <= set(numbers)
            assert set(part.received) == {i.channel for i in stream.instructions if isinstance(i, Recv)}


def test_edges_know_whether_their_value_may_be_overwritten(random_plans: list[Plan]) -> None:
    """A later run may donate inputs and results of the program. The plan itself may donate other values."""
    seen: Counter[bool] = Counter()
    for plan in random_plans:
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


def test_bytes_between_counts_only_values_that_cross_hosts() -> None:
    """Moves two values of 64 bytes from a mesh of four devices to one of two, and back."""
    slices = pw.make_virtual_device_set()
    here, there = (NamedSharding(slices.add_slice(devices=n).mesh("x"), P("x")) for n in (4, 2))
    f, g = (jax.jit(lambda x: x + 1, in_shardings=s, out_shardings=s) for s in (here, there))
    x = np.zeros(16, np.float32)
    plan = pw.program(lambda x, y: (f(g(f(x))), f(g(f(y))))).lower(x, x).compile("islands=2,devices=4").plan
    first, second = (next(m.island for m in plan.meshes if len(m.devices) == n) for n in (4, 2))
    assert bytes_between(plan, 1, str) == {first: 2 * 16 + 16, second: 2 * 32 + 32}
    assert bytes_between(plan, 2, str) == {first: 2 * 16 + 2 * 16, second: 2 * 32 + 2 * 32}
    assert bytes_between(plan, 2, lambda _: "one host") == {first: 0, second: 0}
