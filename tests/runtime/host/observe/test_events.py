"""Tests that recordings read back as written, shifted to another clock, and that malformed ones are refused."""

import json
import random
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw
from pathways.dialect.plan.instructions import Run
from pathways.dialect.plan.nouns import Plan
from pathways.runtime.host.observe.events import EventReader, write_events
from pathways.runtime.host.observe.perfetto import DeviceSpan, LaunchSpan, Moved, Recording

jit: Any = jax.jit
ROWS: dict[str, Any] = {"launches": [[5, 3, 5, -1, 0, 10, 20]], "moves": [[3, 0, 1, 1, 2]], "spans": [[5, 1, 12, 15]]}


@pytest.fixture(scope="module")
def plan() -> Plan:
    """Compiles a loop over two slices, between two calls on one of them."""
    made = pw.make_virtual_device_set()
    first, second = (NamedSharding(made.add_slice(devices=2).mesh("x"), P("x")) for _ in range(2))
    f, g = jit(lambda x: x + 1, in_shardings=first), jit(lambda x: x * 2, in_shardings=second)

    def looped(x: Any) -> Any:
        return f(jax.lax.while_loop(lambda v: g(v).sum() < 100, lambda v: f(v), f(x)))

    return pw.program(looped).lower(np.ones((4, 4), np.float32)).compile("islands=2,devices=2").plan


def launches(plan: Plan, island: str) -> list[LaunchSpan]:
    found: list[LaunchSpan] = []
    for number, streams in enumerate(plan.all_streams, -1):
        of = plan if number < 0 else plan.of_body(number)
        for run in (i for s in streams for i in s.instructions if isinstance(i, Run)):
            mesh = plan.meshes[run.mesh]
            if mesh.island == island:
                launch = 100 + len(found)
                found.append(LaunchSpan(launch, 3, 100 + number, island, mesh.devices, run, of, launch, launch + 5))
    return found


def encoded(rows: Any) -> bytes:
    return json.dumps(rows).encode()


@pytest.mark.parametrize("island", ["island0", "island1"])
def test_a_recording_is_read_as_it_was_written(plan: Plan, island: str) -> None:
    made = launches(plan, island)
    assert len(plan.bodies) > 0 and made
    moves = [Moved(3, island, "receive", 7, 1, 2), Moved(3, island, "copy", 8, 2, 4)]
    spans = [DeviceSpan(la.launch, island, p, la.begin + 1, la.end + 1) for la in made for p in la.positions]
    read = EventReader({3: plan}).read(write_events(Recording((), made, moves, spans), {3: plan}), island, 1000, 0)
    assert [(la.launch, la.run, la.positions, la.plan.streams) for la in read.launches] == [
        (la.launch, la.run, la.positions, la.plan.streams) for la in made
    ]
    assert [(la.begin + 1000, la.end + 1000) for la in read.launches] == [(la.begin, la.end) for la in made]
    assert [(m.kind, m.step, m.begin + 1000, m.end + 1000) for m in read.moves] == [
        ("receive", 7, 1, 2), ("copy", 8, 2, 4)
    ]  # fmt: skip
    assert [(s.launch, s.position, s.begin + 1000, s.end + 1000) for s in read.spans] == [
        (s.launch, s.position, s.begin, s.end) for s in spans
    ]


def test_hosts_share_the_base_of_a_run_but_not_the_bases_of_its_bodies(plan: Plan) -> None:
    reader = EventReader({3: plan})
    read = [
        reader.read(write_events(Recording((), launches(plan, i), (), ()), {3: plan}), i, 0, n)
        for n, i in enumerate(("island0", "island1"))
    ]
    own, bodies = (
        [{la.base for la in r.launches if (la.plan is plan) == whole} for r in read] for whole in (True, False)
    )
    assert len({*own[0], *own[1]}) == 1 and not own[0] & bodies[0] and not bodies[0] & bodies[1]


def test_bases_of_bodies_differ_by_host_and_are_those_of_no_program(plan: Plan) -> None:
    body = next(la for la in launches(plan, "island0") if la.plan is not plan)
    found: set[int] = set()
    for base in (0, 1, 2, 1 << 30):
        for host in (0, 1, 40_000):
            made = replace(body, base=base)
            raw = write_events(Recording((), [made], (), ()), {3: plan})
            found.add(EventReader({3: plan}).read(raw, "island0", 0, host).launches[0].base)
    assert len(found) == 4 * 3 and min(found) >= 0
    for number in (0, 3, 1 << 40):
        own = next(la for la in launches(plan, "island0") if la.plan is plan)
        raw = write_events(Recording((), [replace(own, number=number)], (), ()), {number: plan})
        assert EventReader({number: plan}).read(raw, "island0", 0, 1).launches[0].base < 0


def test_a_launch_of_an_unknown_run_hides_no_later_launch(plan: Plan) -> None:
    made = launches(plan, "island0")
    raw = write_events(Recording((), [replace(made[0], launch=7, number=9), *made], (), ()), {3: plan, 9: plan})
    assert len(EventReader({3: plan}).read(raw, "island0", 0, 0).launches) == len(made)


def test_a_span_may_end_when_it_begins(plan: Plan) -> None:
    made = launches(plan, "island0")[:1]
    spans = [DeviceSpan(made[0].launch, "island0", made[0].positions[0], 8, 8)]
    raw = write_events(Recording((), made, (), spans), {3: plan})
    assert EventReader({3: plan}).read(raw, "island0", 0, 0).spans == spans


def test_the_first_body_behind_the_last_is_refused(plan: Plan) -> None:
    rows = {**ROWS, "launches": [[5, 3, 5, len(plan.bodies), 0, 10, 20]]}
    with pytest.raises(ValueError, match="has no body"):
        EventReader({3: plan}).read(encoded(rows), "island0", 0, 0)


def test_runs_that_began_before_the_recording_are_left_out(plan: Plan) -> None:
    read = EventReader({}).read(encoded(ROWS), "island0", 0, 0)
    assert not (read.launches or read.moves or read.spans)


WRONG: list[Any] = [
    [],
    {},
    {**ROWS, "more": []},
    {**ROWS, "spans": [[5, 7, 12, 15]]},
    {**ROWS, "spans": [[5, 1, 15, 12]]},
    {**ROWS, "spans": {}},
    {**ROWS, "spans": [{}]},
    {**ROWS, "spans": ["abcd"]},
    {**ROWS, "moves": [[3, 2, 1, 1, 2]]},
    {**ROWS, "moves": [[3, -1, 1, 1, 2]]},
    {**ROWS, "moves": [[3, 0, 1, 1]]},
    {**ROWS, "moves": [[3, 0, True, 1, 2]]},
    {**ROWS, "moves": [[3, 0, 1.0, 1, 2]]},
    {**ROWS, "moves": [[3, 0, 1, 1, 1 << 63]]},
    {**ROWS, "launches": [[5, 3, 5, -1, 12345, 10, 20]]},
    {**ROWS, "launches": [[5, 3, 5, -2, 0, 10, 20]]},
    {**ROWS, "launches": [[5, 3, 5, 99, 0, 10, 20]]},
]


@pytest.mark.parametrize("rows", WRONG)
def test_malformed_recordings_are_refused(rows: Any, plan: Plan) -> None:
    with pytest.raises(ValueError):
        EventReader({3: plan}).read(encoded(rows), "island0", 0, 0)


def test_damaged_recordings_are_refused_or_read(plan: Plan) -> None:
    raw = write_events(Recording((), launches(plan, "island0"), (), ()), {3: plan})
    rng = random.Random(0)
    for _ in range(300):
        damaged = bytearray(raw)
        damaged[rng.randrange(len(raw))] = rng.randrange(256)
        try:
            EventReader({3: plan}).read(bytes(damaged[: rng.randrange(len(raw) + 50)]), "island0", 0, 0)
        except ValueError:
            continue
    for raw in (b"", b"\xff", b"[" * 100_000):
        with pytest.raises(ValueError):
            EventReader({3: plan}).read(raw, "island0", 0, 0)
