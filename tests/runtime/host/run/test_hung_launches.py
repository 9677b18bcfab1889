"""Tests which launches a hang fails, and which devices it loses, with devices that the test sets."""

from collections.abc import Sequence
from typing import Any

import pytest
from support.plans_by_hand import plan_of, run

from pathways.dialect.plan.instructions import Run
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.devices.in_flight_limit import DeviceQueue
from pathways.runtime.host.run import hung_launches
from pathways.runtime.host.run.hung_launches import GivenUp, give_up_run
from pathways.runtime.host.run.runs_in_flight import Flight, Launch

F, G, H = run(0, (0,), (1,)), run(1, (1,), (2,)), run(2, (5,), (6,))
"""Computations of a program: G takes the result of F, and H takes none."""
X, Y = run(0, (0,), (1,), name="x"), run(1, (5,), (6,), name="y")
"""Computations of a body."""


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names the devices that have done all their launches. The others have done none."""
    found: set[str] = set()
    over: set[tuple[str, int]] = set()

    def give_up(device: str, number: int, _: str) -> bool:
        is_waiting = device not in found and (device, number) not in over
        over.add((device, number))
        return is_waiting

    monkeypatch.setattr(pjrt, "give_up", give_up)
    monkeypatch.setattr(pjrt, "keep_for_ever", lambda _: None)  # pyright: ignore
    monkeypatch.setattr(hung_launches, "_known", {})
    return found


def launch(of: Run, *devices: str) -> Launch:
    """Makes a launch on devices, by default on one of its own."""
    devices = devices or (f"of {of.name}",)
    return Launch(of, "island0", devices, tuple(DeviceQueue() for _ in devices))


def flight(program: Sequence[Launch], before: Sequence[Launch] = (), after: Sequence[Launch] = ()) -> Flight:
    """Makes a run of F, G and H with launches of a body before and after those of the program."""
    made = Flight(7, plan_of({"island0": (F, G, H)}), [], [], "main", lambda _seconds: None)
    for owner, base, launches in (("body", 90, before), (None, 100, program), ("body", 110, after)):
        made.begin(owner, base, launches)
    return made


def failed(found: GivenUp) -> list[str]:
    return [stuck.launch.run.name for stuck in found.stuck]


def hangs(name: str) -> Any:
    return lambda launch: launch.run.name == name


def test_a_hang_of_the_program_fails_what_takes_its_results_and_later_bodies(done: set[str]) -> None:
    """Which values a body takes is not known."""
    made = flight([launch(F), launch(G), launch(H)], [launch(Y)], [launch(X)])
    found = give_up_run(made, [made], hangs("f0"))
    assert failed(found) == ["f0", "f1", "x"] and set(found.lost) == {"of f0"}


def test_a_hang_in_a_body_fails_all_later_launches(done: set[str]) -> None:
    made = flight([launch(F), launch(G), launch(H)], [launch(X), launch(Y)])
    found = give_up_run(made, [made], hangs("x"))
    assert failed(found) == ["x", "y", "f0", "f1", "f2"] and set(found.lost) == {"of x"}


def test_a_launch_that_has_some_of_its_operands_loses_its_devices(done: set[str]) -> None:
    """Otherwise some devices would wait forever for the others."""
    done.add("a")
    made = flight([launch(F, "a", "b"), launch(G, "c", "d"), launch(H)])
    found = give_up_run(made, [made], hangs("f0"))
    assert failed(found) == ["f0", "f1"] and [stuck.waiting for stuck in found.stuck] == [(1,), (0, 1)]
    assert set(found.lost) == {"a", "b", "c", "d"}


def test_a_launch_behind_a_hang_on_its_device_loses_its_whole_gang(done: set[str]) -> None:
    made, other = flight([launch(F), launch(G), launch(H)]), flight([launch(H, "of f0", "b"), launch(F, "b")])
    found = give_up_run(made, [made, other], hangs("f0"))
    assert failed(found) == ["f0", "f1", "f2", "f0"] and set(found.lost) == {"of f0", "b"}


def test_a_run_without_a_launch_that_hangs_loses_all_its_devices(done: set[str]) -> None:
    done.update(("of f0", "of f1", "of f2"))
    made = flight([launch(F), launch(G), launch(H)])
    found = give_up_run(made, [made], lambda _: True)
    assert found.stuck == [] and set(found.lost) == done
