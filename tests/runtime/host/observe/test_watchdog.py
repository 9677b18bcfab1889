"""Tests the reports and verdicts of the watchdog, poll by poll, with a clock that the test moves."""

from types import SimpleNamespace
from typing import Any

import pytest

from pathways.runtime.errors import Hang
from pathways.runtime.host.devices.in_flight_limit import DeviceQueue
from pathways.runtime.host.observe.watchdog import DOOMED_RUN_TIMEOUT_S, MAX_POLL_INTERVAL_S, Watchdog
from pathways.runtime.host.run.runs_in_flight import Flight, Flights

LIMIT = 10.0
YEAR_S = 365 * 86400.0


class World:
    """Runs in flight, the queues of their devices, and a watchdog with a limit of ten seconds."""

    def __init__(self, *, on_host: bool = True, is_shared: bool = False) -> None:
        """`is_shared`: other hosts share the island."""
        self.now = 1000.0
        self.flights = Flights()
        self.lost: list[int] = []
        """The numbers of the runs that were found to hang."""
        self.suspected: list[tuple[float, Hang]] = []
        """Hangs of which another host may be the cause, and when they were reported."""
        self.dog = Watchdog(
            self.flights, on_host, lambda hang, _lost: self.lost.append(hang.run), LIMIT, self.clock,
            (lambda hang: self.suspected.append((self.now, hang))) if is_shared else None,
        )  # fmt: skip
        self.cpu = SimpleNamespace(process=0, devices=0, poll=lambda closely: None)
        self.dog._cpu = self.cpu  # pyright: ignore
        self.busy = False
        """Whether the process computes."""

    def clock(self) -> float:
        return self.now

    def start_run(self, number: int, *queues: DeviceQueue) -> Flight:
        plan: Any = SimpleNamespace(name=f"run {number}")
        flight = Flight(number, plan, queues, [], "client", lambda _seconds: None, since=self.now, moved=self.now)
        self.flights.enqueuing[number] = flight
        return flight

    def end_run(self, flight: Flight) -> None:
        del self.flights.enqueuing[flight.number]

    def pass_time(self, seconds: float) -> None:
        """Moves the clock and polls twice a second, as the watchdog's thread does."""
        for _ in range(round(seconds / MAX_POLL_INTERVAL_S)):
            self.now += MAX_POLL_INTERVAL_S
            self.cpu.process += self.busy
            self.cpu.devices += self.busy
            self.dog.poll()


@pytest.fixture
def world() -> World:
    return World()


def test_runs_that_wait_in_a_moving_queue_beyond_the_limit_are_not_hung(
    world: World, capfd: pytest.CaptureFixture[str]
) -> None:
    """Forty runs share one queue. All together take longer than the limit, each one less; the process stays idle."""
    queue = DeviceQueue()
    flights = [world.start_run(number, queue) for number in range(40)]
    for flight in flights:
        world.pass_time(LIMIT / 2)
        queue.moved = world.now
        world.end_run(flight)
    assert world.lost == [] and capfd.readouterr().err == ""


def test_a_run_of_many_steps_is_not_hung(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    """Progress of any of its devices counts, and so does progress of its enqueuing."""
    queues = DeviceQueue(), DeviceQueue()
    flight = world.start_run(0, *queues)
    for step in range(12):
        world.pass_time(LIMIT - MAX_POLL_INTERVAL_S)
        if step % 3 == 2:
            flight.moved = world.now
        else:
            queues[step % 3].moved = world.now
    assert world.lost == [] and capfd.readouterr().err == ""


def test_a_run_without_progress_is_hung_only_after_the_limit(world: World) -> None:
    queue = DeviceQueue()
    world.start_run(7, queue)
    world.pass_time(LIMIT)
    assert world.lost == []
    queue.moved = world.now
    world.pass_time(LIMIT)
    assert world.lost == []
    world.pass_time(MAX_POLL_INTERVAL_S)
    assert world.lost == [7]


def test_progress_of_another_run_does_not_save_a_hung_run(world: World) -> None:
    mine, others = DeviceQueue(), DeviceQueue()
    world.start_run(1, mine)
    world.start_run(2, others)
    for _ in range(4):
        world.pass_time(LIMIT / 4)
        others.moved = world.now
    world.pass_time(MAX_POLL_INTERVAL_S)
    assert world.lost == [1]


def test_a_busy_process_is_reported_at_doubling_intervals(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    """Another run makes progress meanwhile, so the CPU time may belong to that run."""
    queue, others = DeviceQueue(), DeviceQueue()
    world.busy = True
    world.start_run(1, queue)
    world.start_run(2, others)
    reported_at: list[float] = []
    begin = world.now
    while world.now < begin + 9 * LIMIT:
        world.pass_time(MAX_POLL_INTERVAL_S)
        others.moved = world.now
        if "PWC0902" in capfd.readouterr().err:
            reported_at.append(world.now - begin - MAX_POLL_INTERVAL_S)
    assert world.lost == [] and reported_at == [LIMIT, 2 * LIMIT, 4 * LIMIT, 8 * LIMIT]


def test_each_still_run_of_a_busy_process_is_reported(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    """A third run makes progress, so the CPU time may belong to that run."""
    others = DeviceQueue()
    world.busy = True
    for number, queue in enumerate((DeviceQueue(), DeviceQueue(), others)):
        world.start_run(number, queue)
    for _ in range(round(LIMIT / MAX_POLL_INTERVAL_S) + 1):
        world.pass_time(MAX_POLL_INTERVAL_S)
        others.moved = world.now
    said = capfd.readouterr().err
    assert world.lost == [] and said.count("PWC0902") == said.count("2 other runs in flight") == 2


def test_a_hang_on_a_shared_island_is_reported_at_doubling_intervals() -> None:
    """Another host of the island may compute what this one waits for, so no device is lost."""
    world = World(is_shared=True)
    begin = world.now
    world.start_run(7, DeviceQueue())
    world.pass_time(9 * LIMIT)
    times = [time - begin - MAX_POLL_INTERVAL_S for time, _ in world.suspected]
    assert world.lost == [] and times == [LIMIT, 2 * LIMIT, 4 * LIMIT, 8 * LIMIT]
    assert {(hang.run, hang.others) for _, hang in world.suspected} == {(7, "no other run in flight")}


def test_progress_is_reported_as_idle_seconds_and_launches(world: World) -> None:
    """A host without runs delays no run of other hosts, so it counts as idle for ever."""
    idle, calls = world.dog.report_progress()
    assert idle > YEAR_S and calls == []
    world.busy = True
    world.start_run(1, DeviceQueue())
    world.pass_time(3.0)
    assert world.dog.report_progress() == (0.0, ["nothing was launched yet"])
    world.busy = False
    world.pass_time(2.0)
    assert world.dog.report_progress() == (2.0, ["nothing was launched yet"])


def test_devices_that_do_not_use_the_host_cpu_are_never_lost(capfd: pytest.CaptureFixture[str]) -> None:
    """An idle host does not prove that a GPU is idle."""
    world = World(on_host=False)
    world.start_run(1, DeviceQueue())
    world.pass_time(3 * LIMIT)
    assert world.lost == [] and capfd.readouterr().err.count("PWC0902") == 2


def test_other_still_runs_get_a_grace_period_after_a_hang(world: World) -> None:
    queues = [DeviceQueue() for _ in range(3)]
    flights = [world.start_run(number, queue) for number, queue in enumerate(queues)]
    world.pass_time(LIMIT + MAX_POLL_INTERVAL_S)
    assert world.lost == [0]
    world.end_run(flights[0])
    queues[2].moved = world.now + MAX_POLL_INTERVAL_S  # this run makes progress, and has the full limit again
    world.pass_time(DOOMED_RUN_TIMEOUT_S)
    assert world.lost == [0]
    world.pass_time(2 * MAX_POLL_INTERVAL_S)
    assert world.lost == [0, 1]
    world.end_run(flights[1])
    world.pass_time(LIMIT - DOOMED_RUN_TIMEOUT_S - 4 * MAX_POLL_INTERVAL_S)
    assert world.lost == [0, 1]


def test_time_while_the_process_is_stopped_is_not_counted(world: World) -> None:
    world.start_run(1, DeviceQueue())
    for _ in range(5):
        world.pass_time(1.0)
        world.now += 3600  # a closed laptop
    assert world.lost == []
