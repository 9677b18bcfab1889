"""Tests launch numbers, lost devices, names of islands and limits of a machine, without PJRT."""

from dataclasses import dataclass
from typing import Any

import pytest
from support.plans_by_hand import plan_of

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.platforms import platform_named
from pathways.dialect.topology import Island
from pathways.runtime.errors import ComputationFailed
from pathways.runtime.host.devices import islands, pjrt
from pathways.runtime.host.devices.islands import FIRST_LAUNCH, Machine, host_islands

CAUSE = ComputationFailed(computation="f", island="a", cause="it hangs")


@dataclass(frozen=True, order=True)
class FakeDevice:
    number: int
    device_kind: str = "cpu"
    slice_index: int | None = None


class World:
    """A machine of fake CPU devices; `made` counts those of each client."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[int] = []
        self.room = 1 << 30
        self.users: list[Any] = []

        def make(count: int) -> list[Any]:
            self.made.append(count)
            return [FakeDevice(1000 * len(self.made) + n) for n in range(count)]

        monkeypatch.setattr(pjrt, "make_devices", make)
        monkeypatch.setattr(pjrt, "ordinal", lambda device: device.number)
        monkeypatch.setattr(islands.thread_limits, "room", lambda: self.room)
        self.machine = Machine("cpu")

    def bind(self, name: str, devices: int, kind: str = "any") -> Any:
        """Binds an island for as long as the test runs."""
        self.users.append(User())
        return self.machine.bound([Island(name, devices=devices, kind=kind)], "program", self.users[-1])[name]


class User:
    """A stand-in for a loaded plan."""


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_launches_have_numbers_of_their_own_that_fit_31_bits(world: World) -> None:
    take = world.machine.take_launches
    assert FIRST_LAUNCH > 0 and [take(3), take(0), take(2), take(1)] == [1, 4, 4, 6]
    assert take((1 << 31) - 9) == 7
    assert take(1) == (1 << 31) - 2
    assert take(2) == FIRST_LAUNCH and take(5) == 3  # the second would be 1 << 31


def test_an_island_that_lost_a_device_is_named_until_the_device_is_back(world: World) -> None:
    machine, island = world.machine, world.bind("a", 4)
    assert machine.lost_islands == frozenset() and machine.changes == 0
    for position in (3, 1):
        machine.lose(island, position, "burned")
    island.queues[1].lose()
    assert machine.lost_on(island) == (1, 3) and machine.lost_islands == {"a"} and machine.changes == 2
    assert island.lost == {1: "burned", 3: "burned"} and island.causes == {}
    machine.recover(island, 1)
    assert machine.lost_on(island) == (3,) and machine.changes == 3 and not island.queues[1].lost
    machine.recover(island, 3)
    machine.recover(island, 3)
    assert machine.lost_islands == frozenset()


def test_a_hang_is_the_cause_of_a_loss_until_the_device_is_back(world: World) -> None:
    island = world.bind("a", 2)
    world.machine.lose(island, 0, "it hangs", CAUSE)
    assert island.causes == {0: CAUSE}
    world.machine.recover(island, 0)
    assert island.causes == {} and island.lost == {}


def test_islands_of_one_name_and_other_sizes_have_keys_of_their_own(world: World) -> None:
    four, two = world.bind("a", 4), world.bind("a", 2)
    assert (four.key, two.key, two.name) == ("a", "a(2)", "a") and four.devices != two.devices
    assert world.machine.named("a") is four and world.machine.named("a(2)") is two
    assert world.machine.named("b") is None
    assert world.machine.island_of(two.devices[1]) is two and world.machine.island_of("another") is None
    assert four.at((3, 0)) == (four.devices[3], four.devices[0])
    world.machine.unbind(four)
    world.machine.unbind(four)
    assert world.machine.islands == [two] and world.bind("a", 4) is not four


def test_queues_belong_to_devices(world: World) -> None:
    island = world.bind("a", 3)
    assert [queue.limit for queue in island.queues] == [platform_named("cpu").in_flight] * 3
    assert world.machine.devices_with(island.queues[:2]) == set(island.devices[:2])
    world.machine.bind("b", island.devices[:2])
    assert world.machine.named("b") is not None and world.machine.named("b").queues == island.queues[:2]  # pyright: ignore


def test_more_devices_are_made_than_are_used(world: World) -> None:
    will = platform_named("cpu").made_at_will
    assert will is not None
    first = world.bind("a", 1)
    assert world.made == [will.spare * will.fewest] and len(first.devices) == 1
    world.bind("b", will.fewest - 1)
    assert len(world.made) == 1  # the rest of what is used of the first client
    world.bind("c", 1)
    world.bind("d", will.fewest + 1)
    assert world.made[1:] == [will.spare * will.fewest, will.spare * (will.fewest + 1)]


def refused(world: World, devices: int, kind: str = "any") -> str:
    with pytest.raises(PathwaysError) as caught:
        world.bind(f"more{devices}", devices, kind)
    assert caught.value.code == "PWC0503"
    return str(caught.value)


def test_a_process_makes_at_most_so_many_devices(world: World) -> None:
    will = platform_named("cpu").made_at_will
    assert will is not None
    most = will.max_count // will.spare
    assert str(will.max_count) in refused(world, most + 1) and world.made == []
    world.bind("a", most)
    assert sum(world.made) == will.max_count
    said = refused(world, 1)
    assert f"{will.max_count} CPU devices created in this process, at most {will.max_count}" in said


def test_devices_need_room_for_their_threads(world: World) -> None:
    will = platform_named("cpu").made_at_will
    assert will is not None
    needed = will.threads * will.spare * will.fewest
    world.room = needed - 1
    assert f"room for {needed - 1:,} more threads" in refused(world, 1)
    world.room = needed
    world.bind("a", 1)
    assert world.made == [will.spare * will.fewest]


def test_a_plan_of_another_platform_is_refused(world: World) -> None:
    plan = plan_of({"a": (), "b": ()})
    found = world.machine.islands_for(plan, User())
    assert {name: island.name for name, island in found.items()} == {"a": "a", "b": "b"}
    with pytest.raises(PathwaysError) as caught:
        Machine("gpu").islands_for(plan, User())
    assert caught.value.code == "PWC0605"


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> list[list[FakeDevice]]:
    """Makes this a host of six devices of kind v5, on two slices."""
    devices = [FakeDevice(n, "v5", n % 2) for n in range(6)]
    monkeypatch.setattr(pjrt, "host_devices", lambda: devices)
    return [devices[::2], devices[1::2]]


def test_devices_of_a_host_are_grouped_by_their_slice(
    host: list[list[FakeDevice]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert host_islands() == host
    monkeypatch.setattr(pjrt, "host_devices", lambda: [FakeDevice(n) for n in range(3)])
    assert host_islands() == [[FakeDevice(n) for n in range(3)]]


def test_an_island_takes_devices_of_one_slice_of_the_host(host: list[list[FakeDevice]]) -> None:
    machine, user = Machine("tpu"), User()
    wanted = [Island("a", devices=2), Island("b", devices=3), Island("c", devices=1)]
    found = machine.bound(wanted, "program", user)
    assert [list(i.devices) for i in found.values()] == [host[0][:2], host[1], host[0][2:]]
    assert machine.bound(wanted, "program", user) == found
    with pytest.raises(PathwaysError) as caught:
        machine.bound([Island("d", devices=1)], "program", user)
    assert caught.value.code == "PWC0503" and "0, 0 free devices on 2 islands" in str(caught.value)


def test_an_island_of_another_kind_than_the_host_is_refused(host: list[list[FakeDevice]]) -> None:
    machine, user = Machine("tpu"), User()
    machine.bound([Island("a", devices=1, kind="v5")], "program", user)
    for name in ("a", "b"):
        with pytest.raises(PathwaysError, match="devices of kind v5"):
            machine.bound([Island(name, devices=1, kind="v6")], "program", user)
    assert [i.name for i in machine.islands] == ["a"]
