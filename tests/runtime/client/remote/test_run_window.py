"""Tests how many runs of a client are under way on each island, and which calls wait for fewer."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from pathways.runtime.client.remote.hosts import MAX_CARRIED_IN_LINE_BYTES, Hosts
from pathways.runtime.client.remote.run_window import MAX_RUNS_PER_ISLAND, RESUME_AT_RUNS, RunWindow
from pathways.runtime.monitor import Monitor

PATIENCE_S = 60.0
CLIENT = "alice"


@dataclass
class Waiting:
    """A thread that waits for room on islands."""

    window: RunWindow
    islands: list[str]
    is_over: Callable[[], bool] = lambda: False
    has_begun: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self._wait, daemon=True)
        self.thread.start()

    def _wait(self) -> None:
        self.window.wait(self.islands, CLIENT, self.is_over, self.has_begun.set)

    def goes_on(self) -> bool:
        self.thread.join(PATIENCE_S)
        return not self.thread.is_alive()


def filled(*islands: str, runs: int = MAX_RUNS_PER_ISLAND) -> tuple[RunWindow, Monitor]:
    changed = Monitor()
    window = RunWindow(changed)
    for run in range(runs):
        window.begin(run, dict.fromkeys(islands, 1), CLIENT)
    return window, changed


def waits(window: RunWindow, *islands: str, client: str = CLIENT) -> bool:
    """Returns whether a call would wait."""
    said: list[str] = []
    window.wait(islands, client, lambda: True, lambda: said.append("waits"))
    return bool(said)


def test_a_full_island_delays_only_the_calls_that_need_it() -> None:
    window, _ = filled("frozen")
    assert not waits(window, "healthy")
    assert waits(window, "frozen") and waits(window, "healthy", "frozen")


def test_a_busy_client_delays_only_its_own_calls() -> None:
    window, _ = filled("a")
    assert waits(window, "a") and not waits(window, "a", client="bob")
    window.begin(MAX_RUNS_PER_ISLAND, {"a": 1}, "bob")
    window.end_part(MAX_RUNS_PER_ISLAND, "a")
    assert waits(window, "a") and not waits(window, "a", client="bob")


def test_calls_wait_only_for_islands_with_a_full_window() -> None:
    window, _ = filled("a", runs=MAX_RUNS_PER_ISLAND - 1)
    assert not waits(window, "a")
    window.begin(MAX_RUNS_PER_ISLAND, {"a": 1, "b": 1}, CLIENT)
    assert waits(window, "a") and not waits(window, "b")


def test_a_waiting_call_goes_on_when_few_runs_are_left_and_others_wait_until_then() -> None:
    window, changed = filled("a")
    first = Waiting(window, ["a"])
    assert first.has_begun.wait(PATIENCE_S)
    for run in range(MAX_RUNS_PER_ISLAND - RESUME_AT_RUNS - 1):
        window.end_part(run, "a")
    assert waits(window, "a"), "a later call does not pass the first"
    with changed.lock:
        assert first.thread.is_alive()
    window.drop(MAX_RUNS_PER_ISLAND - 1)
    assert first.goes_on() and not waits(window, "a")


def test_an_island_that_has_done_its_parts_is_not_delayed_by_a_frozen_one() -> None:
    window, _ = filled("frozen", "healthy")
    waiting = Waiting(window, ["healthy"])
    assert waiting.has_begun.wait(PATIENCE_S)
    for run in range(MAX_RUNS_PER_ISLAND):
        window.end_part(run, "healthy")
    assert waiting.goes_on() and waits(window, "frozen") and not waits(window, "healthy")


def test_a_run_is_under_way_until_all_hosts_of_the_island_have_ended_it() -> None:
    window = RunWindow(Monitor())
    for run in range(MAX_RUNS_PER_ISLAND):
        window.begin(run, {"a": 2}, CLIENT)
        window.end_part(run, "a")
    assert waits(window, "a"), "the other host has not ended them"
    for run in range(MAX_RUNS_PER_ISLAND):
        window.end_part(run, "a")
    assert not waits(window, "a")


def test_the_parts_of_a_lost_island_have_ended() -> None:
    window, _ = filled("lost", "other")
    waiting = Waiting(window, ["lost"])
    assert waiting.has_begun.wait(PATIENCE_S)
    window.lose("lost")
    assert waiting.goes_on() and not waits(window, "lost") and waits(window, "other")
    for run in range(MAX_RUNS_PER_ISLAND):
        window.end_part(run, "lost")  # said before the loss, and read after it
        window.end_part(run, "other")
    for run in range(MAX_RUNS_PER_ISLAND):
        window.begin(run, {"lost": 1, "other": 1}, CLIENT)
    assert waits(window, "lost") and waits(window, "other"), "none is counted twice, or less than none"


def test_a_run_that_has_ended_counts_once() -> None:
    window, _ = filled("a")
    for _ in range(3):
        window.drop(0)
    window.begin(MAX_RUNS_PER_ISLAND, {"a": 1}, CLIENT)
    assert waits(window, "a")


@pytest.mark.parametrize("islands", [["a"], ["a", "b"]])
def test_a_call_stops_waiting_when_the_cluster_has_ended(islands: list[str]) -> None:
    window, changed = filled("a")
    over = threading.Event()
    waiting = Waiting(window, islands, over.is_set)
    assert waiting.has_begun.wait(PATIENCE_S)
    over.set()
    with changed.lock:
        changed.notify_all()
    assert waiting.goes_on()


@pytest.mark.parametrize("islands", [1, 4])
def test_the_arguments_of_all_runs_under_way_fit_in_the_line_of_a_client(islands: int) -> None:
    hosts: Any = SimpleNamespace(carried_bytes=MAX_CARRIED_IN_LINE_BYTES, hosts=dict.fromkeys(range(islands)))
    limit: Any = Hosts.max_carried_bytes.fget
    assert limit(hosts) * MAX_RUNS_PER_ISLAND * islands == MAX_CARRIED_IN_LINE_BYTES
    hosts.carried_bytes = 10
    assert limit(hosts) == 10
