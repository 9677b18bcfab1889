"""What the watchdog says and does, look by look, by a clock that the test moves."""

from types import SimpleNamespace
from typing import Any

import pytest

from pathways.runtime.host.devices.in_flight_limit import DeviceQueue
from pathways.runtime.host.observe.watchdog import AFTERMATH, LONGEST_LOOK, Watchdog
from pathways.runtime.host.run.runs_in_flight import Flight, Flights

LIMIT = 10.0


class World:
    """Runs that are in flight, the queues of their devices, and a watchdog with a limit of ten seconds."""

    def __init__(self, *, on_host: bool = True) -> None:
        self.now = 1000.0
        self.flights = Flights()
        self.lost: list[int] = []
        """The numbers of runs that were called a hang."""
        self.dog = Watchdog(self.flights, on_host, lambda hang, _lost: self.lost.append(hang.run), LIMIT, self.clock)
        self.cpu = SimpleNamespace(process=0, devices=0, look=lambda closely: None)
        self.dog._cpu = self.cpu  # pyright: ignore
        self.busy = False
        """Whether the process computes."""

    def clock(self) -> float:
        return self.now

    def takes_off(self, number: int, *queues: DeviceQueue) -> Flight:
        plan: Any = SimpleNamespace(name=f"run {number}")
        flight = Flight(number, plan, queues, [], "client", lambda _seconds: None, since=self.now, moved=self.now)
        self.flights.enqueuing[number] = flight
        return flight

    def lands(self, flight: Flight) -> None:
        del self.flights.enqueuing[flight.number]

    def passes(self, seconds: float) -> None:
        """Looks twice a second, as the watchdog's thread does."""
        for _ in range(round(seconds / LONGEST_LOOK)):
            self.now += LONGEST_LOOK
            self.cpu.process += self.busy
            self.cpu.devices += self.busy
            self.dog.look()


@pytest.fixture
def world() -> World:
    return World()


def test_many_runs_that_wait_for_each_other_are_no_hang(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    """Forty runs in one queue: longer than the limit in all, each of them shorter; the devices are not this host's."""
    queue = DeviceQueue()
    flights = [world.takes_off(number, queue) for number in range(40)]
    for flight in flights:
        world.passes(LIMIT / 2)
        queue.moved = world.now
        world.lands(flight)
    assert world.lost == [] and capfd.readouterr().err == ""


def test_a_run_of_many_steps_is_no_hang(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    """What moves may be any of its devices, or its enqueuing."""
    queues = DeviceQueue(), DeviceQueue()
    flight = world.takes_off(0, *queues)
    for step in range(12):
        world.passes(LIMIT - LONGEST_LOOK)
        if step % 3 == 2:
            flight.moved = world.now
        else:
            queues[step % 3].moved = world.now
    assert world.lost == [] and capfd.readouterr().err == ""


def test_what_does_not_move_for_the_limit_is_a_hang_and_not_before(world: World) -> None:
    queue = DeviceQueue()
    world.takes_off(7, queue)
    world.passes(LIMIT)
    assert world.lost == []
    queue.moved = world.now
    world.passes(LIMIT)
    assert world.lost == []
    world.passes(LONGEST_LOOK)
    assert world.lost == [7]


def test_what_moves_elsewhere_does_not_save_a_run(world: World) -> None:
    mine, others = DeviceQueue(), DeviceQueue()
    world.takes_off(1, mine)
    world.takes_off(2, others)
    for _ in range(4):
        world.passes(LIMIT / 4)
        others.moved = world.now
    world.passes(LONGEST_LOOK)
    assert world.lost == [1]


def test_a_busy_process_is_told_of_once_and_then_at_doubling_intervals(
    world: World, capfd: pytest.CaptureFixture[str]
) -> None:
    """Another run gets on meanwhile, so that the time may be its."""
    queue, others = DeviceQueue(), DeviceQueue()
    world.busy = True
    world.takes_off(1, queue)
    world.takes_off(2, others)
    told: list[float] = []
    begin = world.now
    while world.now < begin + 9 * LIMIT:
        world.passes(LONGEST_LOOK)
        others.moved = world.now
        if "PWC0902" in capfd.readouterr().err:
            told.append(world.now - begin - LONGEST_LOOK)
    assert world.lost == [] and told == [LIMIT, 2 * LIMIT, 4 * LIMIT, 8 * LIMIT]


def test_devices_that_compute_elsewhere_are_never_lost(capfd: pytest.CaptureFixture[str]) -> None:
    """That this host does nothing proves nothing of a GPU."""
    world = World(on_host=False)
    world.takes_off(1, DeviceQueue())
    world.passes(3 * LIMIT)
    assert world.lost == [] and capfd.readouterr().err.count("PWC0902") == 2


def test_who_was_still_with_a_hang_has_a_moment_to_go_on(world: World) -> None:
    queues = [DeviceQueue() for _ in range(3)]
    flights = [world.takes_off(number, queue) for number, queue in enumerate(queues)]
    world.passes(LIMIT + LONGEST_LOOK)
    assert world.lost == [0]
    world.lands(flights[0])
    queues[2].moved = world.now + LONGEST_LOOK  # it goes on, and has its full time again
    world.passes(AFTERMATH)
    assert world.lost == [0]
    world.passes(2 * LONGEST_LOOK)
    assert world.lost == [0, 1]
    world.lands(flights[1])
    world.passes(LIMIT - AFTERMATH - 4 * LONGEST_LOOK)
    assert world.lost == [0, 1]


def test_time_in_which_the_process_was_stopped_is_not_counted(world: World) -> None:
    world.takes_off(1, DeviceQueue())
    for _ in range(5):
        world.passes(1.0)
        world.now += 3600  # a closed laptop
    assert world.lost == []
