"""Tests what a trace file says of a recording that is written by hand, in microseconds from its first event."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from support.plans_by_hand import copy, plan_of, receive, run, send

from pathways.dialect.diagnostics import Where
from pathways.dialect.plan.instructions import Run
from pathways.runtime.host.devices.islands import PhysicalIsland
from pathways.runtime.host.observe.perfetto import (
    DeviceSpan,
    LaunchSpan,
    Moved,
    Recording,
    RunSpan,
    producers,
    write,
)

US = 1000
"""Nanoseconds in a microsecond."""
ZERO = 5_000 * US
"""When the first event of most recordings here happens."""
F = run(0, (), (0,), computation=0, where=Where("model.py", 7, ""), action="0F1")
G = run(2, (5,), (6,), computation=1)
BESIDE = run(3, (), (7,), computation=2)
PLAN = plan_of({"island0": (F, send(1, 4, 0)), "island1": (receive(1, 4, 5), G, BESIDE)})
PLACES = {0: ("island0", (0, 1)), 2: ("island1", (0,)), 3: ("island1", (0,))}
"""By step, the island and the positions of its devices."""


def islands() -> list[PhysicalIsland]:
    devices: Any = ("a", "b")
    return [PhysicalIsland(name, devices, (), name) for name in ("island0", "island1")]


def launch(number: int, of: Run, begin: int, end: int, base: int = 100) -> LaunchSpan:
    """Makes a launch that was enqueued between two times, in microseconds after ZERO."""
    island, positions = PLACES[of.step]
    return LaunchSpan(number, base, base, island, positions, of, PLAN, ZERO + begin * US, ZERO + end * US)


def on(number: int, of: Run, position: int, begin: int, end: int) -> DeviceSpan:
    return DeviceSpan(number, PLACES[of.step][0], position, ZERO + begin * US, ZERO + end * US)


def written(found: Recording, *, hosts: bool = False) -> list[dict[str, Any]]:
    said = json.loads(write(found, islands(), hosts=hosts))
    assert said.keys() == {"traceEvents", "displayTimeUnit"} and said["displayTimeUnit"] == "ms"
    return said["traceEvents"]


def rows(events: Sequence[dict[str, Any]], process: int, thread: int) -> list[tuple[str, float, float]]:
    """Returns the name, the begin and the duration of all that is drawn on a thread."""
    found = [e for e in events if e["ph"] == "X" and (e["pid"], e["tid"]) == (process, thread)]
    return [(e["name"], e["ts"], e["dur"]) for e in found]


TWO = Recording(
    launches=[launch(10, F, 0, 5), launch(11, G, 5, 9)],
    spans=[on(10, F, 0, 20, 120), on(10, F, 1, 30, 150), on(11, G, 0, 200, 260)],
)
"""F on both devices of an island, and G on one device of another, which takes what F makes."""


def test_each_device_has_a_row_of_its_launches_and_one_of_its_plan() -> None:
    events = written(TWO)
    assert rows(events, 2, 0) == [("f0", 20, 100)] and rows(events, 2, 2) == [("f0", 30, 120)]
    assert rows(events, 3, 0) == [("f2", 200, 60)] and rows(events, 3, 2) == []
    # F takes 110 on average of its two devices, from its launch; G follows it at once.
    assert rows(events, 2, 1) == rows(events, 2, 3) == [("f0", 0, 110)] and rows(events, 3, 1) == [("f2", 110, 60)]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    devices = {(p, t): f"device {t // 2}{', planned' * (t % 2)}" for p in (2, 3) for t in range(4)}
    assert names == {(1, 0): "enqueuing"} | devices
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert processes == {1: "controller", 2: "island0", 3: "island1"}


def test_a_launch_says_how_long_before_it_was_enqueued_and_its_operands_made() -> None:
    said = {e["tid"]: e["args"] for e in written(TWO) if e["pid"] == 2 and e["ph"] == "X" and "line" in e["args"]}
    assert said[0] == {
        "run": 100, "step": 0, "action": "0F1", "line": str(F.where),
        "enqueued_us_before": 15, "ready_us_before": None,
    }  # fmt: skip
    assert said[2]["enqueued_us_before"] == 25
    (other,) = [e["args"] for e in written(TWO) if e["pid"] == 3 and e["ph"] == "X" and "line" in e["args"]]
    assert (other["line"], other["enqueued_us_before"], other["ready_us_before"]) == ("", 191, 50)


@pytest.mark.parametrize(("hosts", "threads"), [(False, [(1, 0), (1, 0)]), (True, [(2, 4), (3, 4)])])
def test_launches_and_transfers_are_drawn_where_they_are_enqueued(hosts: bool, threads: list[tuple[int, int]]) -> None:
    moves = [Moved(100, "island1", "receive", 1, ZERO + 2 * US, ZERO + 5 * US)]
    events = written(Recording(launches=TWO.launches, spans=TWO.spans, moves=moves), hosts=hosts)
    drawn = {n: [r for r in rows(events, *n) if r[0].startswith(("enqueue", "receive"))] for n in threads}
    enqueued, moved = [("enqueue f0", 0, 5), ("enqueue f2", 5, 4)], [("receive to island1", 2, 3)]
    each = [enqueued[:1], enqueued[1:] + moved] if hosts else [enqueued + moved] * 2
    assert [drawn[n] for n in threads] == each
    named = [(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name" and e["args"]["name"] == "enqueuing"]
    assert named == sorted(set(threads))
    arguments = [e["args"] for e in events if e["ph"] == "X" and e["name"] in ("enqueue f2", "receive to island1")]
    assert arguments == [
        {"run": 100, "step": 2, "island": "island1", "launch": 11}, {"run": 100, "step": 1, "to": "island1"}
    ]  # fmt: skip


def test_an_arrow_leads_from_the_end_of_a_launch_to_the_begin_of_its_reader() -> None:
    flows = [e for e in written(TWO) if e["ph"] in "sf"]
    assert [(e["ph"], e["pid"], e["tid"], e["ts"], e.get("bp")) for e in flows] == [
        ("s", 2, 0, 120 - 1 / US, None), ("f", 3, 0, 200, "e")
    ]  # fmt: skip
    assert len({e["id"] for e in flows}) == 1


def test_no_arrow_is_drawn_between_runs_or_to_a_launch_that_no_device_ran() -> None:
    other_run = [TWO.launches[0], launch(11, G, 5, 9, base=200)]
    assert not [e for e in written(Recording(launches=other_run, spans=TWO.spans)) if e["ph"] in "sf"]
    assert not [e for e in written(Recording(launches=TWO.launches, spans=TWO.spans[:2])) if e["ph"] in "sf"]


def gap(enqueued: int, made: int, hosts: bool, of: Run = G) -> list[tuple[str, float, float]]:
    """Draws a device of island1 that worked until 300, then from 500 on a launch that was enqueued until `enqueued`.

    The operands of G are made at `made`.
    """
    launches = [launch(9, BESIDE, 0, 1), launch(10, F, 0, 5), launch(11, of, 5, enqueued)]
    spans = [on(9, BESIDE, 0, 200, 300), on(10, F, 0, 10, made), on(11, of, 0, 500, 600)]
    events = written(Recording(launches=launches, spans=spans), hosts=hosts)
    found = [row for row in rows(events, 3, 0) if row[0].startswith("(")]
    assert all(row[1:] == (300, 200) for row in found)
    return found


@pytest.mark.parametrize(
    ("enqueued", "made", "hosts", "reason"),
    [(400, 350, False, "controller late"), (400, 350, True, "waits for the transfer of f0"), (400, 100, False,
      "controller late"), (350, 400, False, "waits for f0"), (400, 400, True, "waits for f0"),
     (300, 301, False, "waits for f0"), (300, 300, False, "starts late"), (299, 100, True, "starts late"),
     (301, 300, False, "controller late")],
)  # fmt: skip
def test_a_gap_says_what_had_to_happen_last(enqueued: int, made: int, hosts: bool, reason: str) -> None:
    assert [row[0] for row in gap(enqueued, made, hosts)] == [f"({reason})"]


def test_a_host_is_late_with_a_launch_that_takes_nothing_from_another_island() -> None:
    assert [row[0] for row in gap(400, 100, True, BESIDE)] == ["(host late)"]


@pytest.mark.parametrize(("begin", "drawn"), [(320, False), (321, True)])
def test_only_gaps_beyond_twenty_microseconds_are_drawn(begin: int, drawn: bool) -> None:
    launches = [launch(9, BESIDE, 0, 1), launch(11, BESIDE, 5, 9, base=200)]
    spans = [on(11, BESIDE, 0, begin, 400), on(9, BESIDE, 0, 200, 300)]  # in any order
    found = rows(written(Recording(launches=launches, spans=spans)), 3, 0)
    assert [row for row in found if row[0] != "f3"] == ([("(starts late)", 300, begin - 300)] if drawn else [])


def test_launches_that_overlap_on_a_device_are_drawn_one_after_another() -> None:
    launches = [launch(n, BESIDE, n, n + 1, base=n) for n in range(3)]
    spans = [on(0, BESIDE, 0, 10, 100), on(1, BESIDE, 0, 20, 50), on(2, BESIDE, 0, 90, 130)]
    found = rows(written(Recording(launches=launches, spans=spans)), 3, 0)
    assert found == [("f3", 10, 90), ("f3", 100, 0), ("f3", 100, 30)]


def test_the_plan_gives_each_launch_its_usual_time_on_devices_that_are_free() -> None:
    launches = [launch(n, BESIDE, 10 * n, 10 * n + 1, base=n) for n in range(4)]
    spans = [on(n, BESIDE, 0, 200 * n + 50, 200 * n + 50 + length) for n, length in enumerate((30, 10, 90))]
    found = rows(written(Recording(launches=launches, spans=spans)), 3, 1)
    assert found == [("f3", 30 * n, 30) for n in range(4)]  # 30 is the median; the last was not seen to run


def test_a_launch_without_times_on_devices_has_no_plan() -> None:
    assert rows(written(Recording(launches=[launch(1, F, 0, 1)])), 2, 1) == []


def test_stages_of_a_run_are_drawn_once_both_of_their_times_are_known() -> None:
    runs = [
        RunSpan(3, "train", "one", ZERO, ZERO + 10 * US, ZERO + 30 * US, ZERO + 60 * US),
        RunSpan(4, "train", "two", ZERO + 5 * US, ZERO + 9 * US),
        RunSpan(5, "eval", "one", ZERO + 6 * US),
    ]
    events = written(Recording(runs=runs))
    begun = [(e["name"], e["tid"], e["ts"]) for e in events if e["ph"] == "b"]
    assert begun == [
        ("train 3: waits in the queue", 1, 0), ("train 3: enqueues", 1, 10), ("train 3: on devices", 1, 30),
        ("train 4: waits in the queue", 2, 5),
    ]  # fmt: skip
    ended = {e["id"]: e for e in events if e["ph"] == "e"}
    assert sorted(e["ts"] for e in ended.values()) == [9, 10, 30, 60] and len(ended) == 4
    assert {e["id"] for e in events if e["ph"] == "b"} == set(ended)
    assert ended["3-enqueues"]["args"] == {"run": 3, "client": "one"} and ended["3-enqueues"]["pid"] == 1
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name" and e["pid"] == 1}
    assert names == {0: "enqueuing", 1: "runs of one", 2: "runs of two"}


def test_producers_follow_copies_and_transfers_and_the_last_writer_of_a_slot() -> None:
    plan = plan_of({
        "island0": (run(0, (), (0,)), copy(1, 0, 3), run(2, (3, 9), (0,)), send(3, 4, 0), send(3, 5, 9)),
        "island1": (receive(3, 5, 1), receive(3, 4, 0), run(5, (0, 1), (2,)), run(6, (2, 0), (2,)), run(7, (2,), ())),
    })  # fmt: skip
    assert producers(plan) == {0: [], 2: [0], 5: [2], 6: [2, 5], 7: [6]}


def test_producers_are_found_through_islands_that_come_later_in_the_plan() -> None:
    plan = plan_of({
        "island0": (receive(3, 4, 1, "island1"), run(5, (1,), (2,))),
        "island1": (run(0, (), (0,)), send(1, 4, 0, "island0")),
    })  # fmt: skip
    assert producers(plan) == {0: [], 5: [0]}


def test_a_launch_without_arrow_hides_no_other_arrow() -> None:
    """Launches whose maker was not recorded, shares their devices, or was not seen on a device come first."""
    reader = run(4, (6,), (8,), computation=3)  # on the devices that make its operand
    plan = plan_of({"island0": (F, send(1, 4, 0)), "island1": (receive(1, 4, 5), G, reader)})
    places: dict[int, tuple[str, tuple[int, ...]]] = {
        0: ("island0", (0, 1)),
        2: ("island1", (0,)),
        4: ("island1", (0,)),
    }
    launches: list[LaunchSpan] = []
    spans: list[DeviceSpan] = []

    def add(number: int, of: Run, base: int, *, seen: bool = True) -> None:
        island, positions = places[of.step]
        launches.append(LaunchSpan(number, base, base, island, positions, of, plan, ZERO + number, ZERO + number))
        spans.extend(
            DeviceSpan(number, island, p, ZERO + number * US, ZERO + number * US + 9) for p in positions if seen
        )

    add(1, G, 100)  # its F is not recorded
    add(2, F, 200, seen=False)
    add(3, G, 200)
    add(4, reader, 200)
    add(5, F, 300)
    add(6, G, 300)
    flows = [e for e in written(Recording(launches=launches, spans=spans)) if e["ph"] in "sf"]
    assert [(e["ph"], e["pid"], e["id"]) for e in flows] == [
        ("s", 2, "island0 5-island1 6"), ("f", 3, "island0 5-island1 6")
    ]  # fmt: skip


def test_an_arrow_begins_and_ends_at_the_first_device_of_each_launch() -> None:
    there = (("island0", (1,)), ("island1", (1,)))
    launches = [
        LaunchSpan(n, 1, 1, *place, of, PLAN, ZERO, ZERO)
        for n, (place, of) in enumerate(zip(there, (F, G), strict=True))
    ]
    spans = [DeviceSpan(n, place[0], 1, ZERO + n * US, ZERO + n * US + 9) for n, place in enumerate(there)]
    flows = [e for e in written(Recording(launches=launches, spans=spans)) if e["ph"] in "sf"]
    assert [(e["pid"], e["tid"]) for e in flows] == [(2, 2), (3, 2)]


H = run(6, (5, 9), (10,), computation=3)


def two_operands(first: int, second: int) -> list[dict[str, Any]]:
    """Draws H on island1, which takes two values, made on island0 until `first` and `second`, from 500 on."""
    plan = plan_of({
        "island0": (run(0, (), (0,), name="a"), run(1, (), (1,), name="b"), send(2, 4, 0), send(3, 5, 1)),
        "island1": (receive(2, 4, 5), receive(3, 5, 9), BESIDE, H),
    })  # fmt: skip
    found: list[LaunchSpan] = []
    spans: list[DeviceSpan] = []
    island0, island1 = (s.instructions for s in plan.streams)
    for number, (of, end) in enumerate([(island0[0], first), (island0[1], second), (BESIDE, 150), (island1[-1], 600)]):
        assert isinstance(of, Run)
        island = "island0" if number < 2 else "island1"
        begin = 500 if of is H else 50
        found.append(LaunchSpan(number, 7, 7, island, (0,), of, plan, ZERO, ZERO + 1))
        spans.append(DeviceSpan(number, island, 0, ZERO + begin * US, ZERO + end * US))
    return written(Recording(launches=found, spans=spans))


@pytest.mark.parametrize(("first", "second", "name", "before"), [(300, 400, "b", 100), (400, 200, "a", 100)])
def test_a_launch_waits_for_the_last_of_its_operands(first: int, second: int, name: str, before: int) -> None:
    events = two_operands(first, second)
    assert [row[0] for row in rows(events, 3, 0)] == ["f3", f"(waits for {name})", "f6"]
    (said,) = [e["args"] for e in events if e["ph"] == "X" and e["name"] == "f6" and "line" in e["args"]]
    assert said["ready_us_before"] == before


def test_a_launch_that_no_device_ran_hides_no_later_launch_from_the_plan() -> None:
    launches = [launch(1, F, 0, 1), launch(2, BESIDE, 3, 4)]
    events = written(Recording(launches=launches, spans=[on(2, BESIDE, 0, 10, 30)]))
    assert rows(events, 2, 1) == [] and rows(events, 3, 1) == [("f3", 3, 20)]


def test_a_launch_whose_operands_were_not_recorded_begins_in_the_plan_where_it_was_enqueued() -> None:
    events = written(Recording(launches=[launch(11, G, 5, 9)], spans=[on(11, G, 0, 200, 260)]))
    assert rows(events, 3, 1) == [("f2", 0, 60)] and [e["ts"] for e in events if e.get("name") == "enqueue f2"] == [0]
    (said,) = [e["args"] for e in events if e["ph"] == "X" and "line" in e["args"]]
    assert said["ready_us_before"] is None


@pytest.mark.parametrize("is_recorded", [True, False])
def test_an_operand_without_an_arrow_hides_no_arrow_of_a_later_operand(is_recorded: bool) -> None:
    """The launch that makes the first operand is not recorded, or no device was seen to run it."""
    plan = plan_of({
        "island0": (run(0, (), (0,)), run(1, (), (1,)), send(2, 4, 0), send(3, 5, 1)),
        "island1": (receive(2, 4, 5), receive(3, 5, 9), H),
    })  # fmt: skip
    first, second = (i for i in plan.streams[0].instructions if isinstance(i, Run))
    made = [(0, first, "island0"), (1, second, "island0"), (2, H, "island1")]
    launches = [LaunchSpan(n, 7, 7, island, (0,), of, plan, ZERO, ZERO) for n, of, island in made]
    spans = [DeviceSpan(n, island, 0, ZERO, ZERO + US) for n, _, island in made[1:]]
    events = written(Recording(launches=launches if is_recorded else launches[1:], spans=spans))
    assert [e["id"] for e in events if e["ph"] == "s"] == ["island0 1-island1 2"]


def test_producers_are_in_the_order_of_their_steps() -> None:
    plan = plan_of({"island0": (run(1, (), (0,)), run(8, (), (1,)), run(16, (1, 0), (2,)))})
    assert producers(plan)[16] == [1, 8]
