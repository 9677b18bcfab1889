"""Tests what the report of a hang says of launches, callbacks and other runs."""

import inspect
import re
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
from support.plans_by_hand import run

from pathways.dialect.diagnostics import Where
from pathways.runtime.host.devices.callbacks import Inside, running
from pathways.runtime.host.observe.hang_report import MAX_CALLED, hang, not_done, perhaps, unreachable
from pathways.runtime.host.observe.stacks import stacks
from pathways.runtime.host.run.hung_launches import Stuck
from pathways.runtime.host.run.runs_in_flight import Flight, Launch

LONG_S = 100_000.0
"""So long that the time that a test takes shows in the last digits alone."""
LINE = Where("model.py", 7, "")


def launch(name: str, devices: int = 4, where: Where | None = None) -> Launch:
    return Launch(run(0, name=name, where=where), "pod", tuple(range(devices)), ())


def flight(*launches: Launch) -> Flight:
    plan: Any = SimpleNamespace(name="train")
    made = Flight(5, plan, [], [], "main", lambda _seconds: None)
    if launches:
        made.begin(None, 100, launches)
    return made


def test_a_hang_names_the_devices_that_a_launch_waits_on() -> None:
    all_four, some = Stuck(launch("f", where=LINE), (0, 1, 2, 3)), Stuck(launch("f"), (1, 3))
    alone = Stuck(launch("f", devices=1), (0,))
    said = [hang(flight(), 0, 2.5, [stuck]) for stuck in (all_four, some, alone)]
    assert [one.calls for one in said] == [
        "f was launched on all 4 devices of pod, and is not done",
        "f was launched on devices 1, 3 of 4 of pod, and is not done",
        "f was launched on the device of pod, and is not done",
    ]
    assert [one.where for one in said] == [LINE, None, None]
    assert (said[0].program, said[0].run, said[0].client, said[0].seconds) == ("train", 5, "main", "2.5")


@pytest.mark.parametrize(("others", "said"), [(0, "no other run in flight"), (3, "3 other runs in flight")])
def test_reports_count_other_runs(others: int, said: str) -> None:
    assert hang(flight(), others, 1, []).others == said == perhaps(flight(), others, 1).others


def test_a_hang_without_a_launch_that_is_known_says_so() -> None:
    found = hang(flight(), 0, 1, [])
    assert found.calls == "no unfinished launch: a call that launches a computation has not returned"
    assert found.where is None


def test_launches_behind_a_hang_are_counted_and_limited() -> None:
    first, twice = Stuck(launch("f"), (0,)), Stuck(launch("g", 1), (0,))
    others = [Stuck(launch(f"h{n}", 1), (0,)) for n in range(MAX_CALLED + 1)]
    lines = hang(flight(), 0, 1, [first, twice, twice, *others]).calls.splitlines()
    assert lines[1] == "queued after it: g on the device of pod, 2 times"
    assert lines[2:-1] == [f"queued after it: h{n} on the device of pod" for n in range(MAX_CALLED - 1)]
    assert lines[-1] == "and 2 more"
    most = hang(flight(), 0, 1, [first, *others[:MAX_CALLED]]).calls.splitlines()
    assert len(most) == 1 + MAX_CALLED and "more" not in most[-1]


def test_a_suspected_hang_names_the_last_launches() -> None:
    many = [launch(f"f{n}", 2, Where("model.py", n, "")) for n in range(MAX_CALLED + 2)]
    found = perhaps(flight(*many), 0, 61.7)
    assert found.calls.splitlines() == [
        f"f{n} was launched on all 2 devices of pod, and may still run" for n in range(2, MAX_CALLED + 2)
    ]
    assert found.seconds == "62" and found.where == Where("model.py", MAX_CALLED + 1, "") and found.run == 5
    nothing = perhaps(flight(), 0, 1)
    assert nothing.calls == "nothing was launched yet" and nothing.where is None


def test_the_last_launch_of_a_run_may_not_be_done_on_any_of_its_devices() -> None:
    first, last = launch("f"), launch("g", 3)
    assert not_done(flight(first, last)) == [Stuck(last, (0, 1, 2))] and not_done(flight()) == []


def test_an_unreachable_run_is_named() -> None:
    found = unreachable(flight())
    assert (found.program, found.run, found.client, found.where) == ("train", 5, "main", None)
    assert "its devices are lost" in found.calls


def test_reports_say_where_a_callback_is() -> None:
    call = Inside("step", "step", threading.get_ident(), since=time.monotonic() - LONG_S)
    with running(call):
        lines = perhaps(flight(launch("f", 1)), 0, 1).calls.splitlines()
        proved = hang(flight(), 0, 1, [Stuck(launch("f", 1), (0,))]).calls.splitlines()
    assert len(lines) == len(proved) == 2
    assert lines[1].startswith("a host callback of step has not returned for 10000") and " s at " in lines[1]
    assert lines[1].rpartition(" in ")[2] == "_inside"  # this thread itself makes the report
    assert proved[1].startswith("a host callback of step has not returned for 10000")


def test_a_callback_of_a_thread_that_ended_has_no_place() -> None:
    with running(Inside("step", "step", -1, since=time.monotonic() - LONG_S)):
        assert re.fullmatch(
            r"a host callback of step has not returned for 10000\d\.\d s", perhaps(flight(), 0, 1).calls
        )


def test_stacks_name_each_thread_in_order_and_its_innermost_call() -> None:
    go, there = threading.Event(), threading.Barrier(3)

    def waits_in_a_test() -> None:
        there.wait()
        go.wait()

    names = ["b-thread-of-a-test", "a-thread-of-a-test"]
    threads = [threading.Thread(target=waits_in_a_test, name=name, daemon=True) for name in names]
    for thread in threads:
        thread.start()
    there.wait()
    try:
        found = stacks()
    finally:
        go.set()
        for thread in threads:
            thread.join()
    assert found.count("in waits_in_a_test") == 2 and threading.current_thread().name in found
    frame = inspect.currentframe()
    assert frame is not None and f"in {frame.f_code.co_name}" in found
    places = [found.index(f"{name}\n") for name in sorted(names)]
    assert places == sorted(places) and found.index("in waits_in_a_test") > places[0]
