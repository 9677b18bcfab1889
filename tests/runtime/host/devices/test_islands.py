"""Tests that unused islands release their devices, so that threads do not grow with the number of slices made."""

import gc
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from support.proc import threads_of

import pathways as pw
from pathways.api.process import Process, inside_of, process
from pathways.api.reference import run_reference
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.topology import Island, Topology
from pathways.runtime.client.controller import Controller
from pathways.runtime.host.devices import islands, pjrt
from pathways.runtime.host.devices.islands import Machine
from pathways.viz.actual import read_trace


@dataclass(frozen=True, order=True)
class FakeDevice:
    client: int
    number: int
    device_kind: str = "cpu"


class User:
    """A stand-in for a loaded plan."""


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Makes a machine of fake CPU devices, without PJRT."""
    clients: list[int] = []

    def make(count: int) -> list[Any]:
        clients.append(count)
        return [FakeDevice(len(clients), number) for number in range(count)]

    monkeypatch.setattr(pjrt, "make_devices", make)
    monkeypatch.setattr(pjrt, "ordinal", lambda device: device.number)
    monkeypatch.setattr(islands.thread_limits, "room", lambda: 1 << 30)
    return Machine("cpu")


@pytest.fixture
def without_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def bind(machine: Machine, user: object, *sizes: int, name: str = "i") -> list[tuple[Any, ...]]:
    wanted = [Island(f"{name}{n}", devices=size) for n, size in enumerate(sizes)]
    return [i.devices for i in machine.bound(wanted, "program", user).values()]


def test_devices_of_an_unused_island_are_used_again(machine: Machine) -> None:
    first = bind(machine, User(), 4, name="a")
    assert bind(machine, User(), 4, name="b") == first
    assert [i.name for i in machine.islands] == ["b0"]


def test_islands_that_a_program_needs_are_not_released_for_it(machine: Machine) -> None:
    bind(machine, User(), 4)
    user = User()
    both = bind(machine, user, 4, 4)
    assert both[0] != both[1] and bind(machine, user, 4, 4) == both


def test_a_user_keeps_its_islands(machine: Machine) -> None:
    user = User()
    kept = bind(machine, user, 2, 2, name="a")
    assert not set(sum(kept, ())) & set(sum(bind(machine, User(), 4, name="b"), ()))
    assert bind(machine, User(), 2, 2, name="a") == kept


def test_an_island_bound_without_a_user_is_never_released(machine: Machine) -> None:
    kept = bind(machine, None, 4, name="a")
    assert bind(machine, User(), 4, name="b") != kept and "a0" in {i.name for i in machine.islands}


def test_an_island_with_arrays_or_runs_is_not_released(machine: Machine) -> None:
    first = bind(machine, User(), 4, name="a")
    machine.devices_in_use = lambda: {first[0][2]}
    assert bind(machine, User(), 4, name="b") != first


def test_a_lost_island_is_not_released(machine: Machine) -> None:
    first = bind(machine, User(), 4, name="a")
    machine.lose(machine.islands[0], 1, "it burned")
    assert bind(machine, User(), 4, name="b") != first


def test_devices_of_a_client_that_hangs_are_never_used_again(machine: Machine) -> None:
    hung: Any = "a hang"
    user = User()
    first = bind(machine, user, 1, 3, name="a")
    machine.lose(machine.islands[0], 0, "it hangs", hung)
    del user
    machine.recover(machine.islands[0], 0)
    again = sum(bind(machine, User(), 1, 1, name="b"), ())
    assert {d.client for d in again}.isdisjoint({d.client for d in sum(first, ())})


def test_devices_of_one_program_come_from_one_client(machine: Machine) -> None:
    users = {name: User() for name in "ab"}
    for name in users:
        bind(machine, users[name], 4, name=name)
    users.clear()
    assert len({d.client for d in sum(bind(machine, User(), 2, 2), ())}) == 1
    assert len({d.client for d in sum(bind(machine, User(), 4, 4), ())}) == 1


def test_released_devices_are_in_order(machine: Machine) -> None:
    users = [User(), User()]
    ordered = [d for n in (0, 1) for d in bind(machine, users[n], 2, name=f"a{n}-")[0]]
    while users:
        del users[-1]
    assert sum(bind(machine, User(), 4, name="c"), ()) == tuple(sorted(ordered))


def test_plans_in_reference_cycles_are_collected_before_more_devices_are_made(
    machine: Machine, without_collector: None
) -> None:
    for number in range(120):
        user: Any = User()
        user.itself = user
        bind(machine, user, 4, name=f"n{number}-")
        del user
    assert len(machine.islands) < 32


def test_an_island_stays_bound_while_its_devices_are_kept(machine: Machine) -> None:
    first, keeper = bind(machine, User(), 4, name="a"), User()
    machine.keep(first[0][:1], keeper)
    assert bind(machine, User(), 4, name="b") != first
    del keeper
    assert bind(machine, User(), 4, name="c") == first


def test_an_island_of_another_kind_takes_no_devices(machine: Machine) -> None:
    for number in range(3):
        with pytest.raises(PathwaysError, match="PWC0503"):
            machine.bound([Island(f"i{number}", devices=4, kind="abacus")], "program", User())
    assert not machine.islands and bind(machine, User(), 4)


def run_on_a_new_slice(amount: float) -> Any:
    on = NamedSharding(pw.make_virtual_device_set().add_slice(devices=1).mesh("x"), P())
    add = jax.jit(lambda x: x + amount, in_shardings=on)
    return pw.program(lambda x: add(x))(np.float32(1))


def test_threads_do_not_grow_with_slices(without_collector: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program and its function refer to each other. Python itself could collect them at any time, or late."""
    monkeypatch.setattr(islands, "MIN_DEVICES_BETWEEN_COLLECTIONS", 4)
    gc.collect()
    with inside_of(Process("cpu", Controller(Machine("cpu")))):
        before = None
        for number in range(40):
            assert float(run_on_a_new_slice(number)) == number + 1
            assert process().controller.flights.drain(60)  # a run in flight keeps its slice
            before = threads_of() if number == 20 else before
        assert before is not None and threads_of() <= before + 2


def test_an_array_keeps_its_values_after_its_program_is_freed() -> None:
    with inside_of(Process("cpu", Controller(Machine("cpu")))):
        kept = [run_on_a_new_slice(number) for number in range(12)]
        gc.collect()
        for number in range(12):
            run_on_a_new_slice(100 + number)
        assert [float(x) for x in kept] == [number + 1 for number in range(12)]


def test_a_plan_without_limits_is_not_limited_by_an_island_that_had_its_devices() -> None:
    limited = Topology((Island("a", devices=1, memory=1 << 20),))
    with inside_of(Process("cpu", Controller(Machine("cpu")))):
        controller = process().controller
        value = np.ones(4, np.float32)
        np.asarray(pw.program(lambda x: x + 1).lower(value).compile(limited)(value))
        assert list(controller.ledger.limits.values()) == [1 << 20]
        gc.collect()
        kept = [run_on_a_new_slice(number) for number in range(4)]
        assert not controller.ledger.limits and len(kept) == 4


def test_restored_arrays_lie_on_the_devices_of_their_own_slices(tmp_path: Path) -> None:
    with inside_of(Process("cpu", Controller(Machine("cpu")))):
        slices = [pw.make_virtual_device_set().add_slice(devices=2).mesh("x") for _ in range(12)]
        values = {str(n): np.full(1 << 18, n, np.float32) for n in range(12)}
        pw.save(values, tmp_path / "s.npz")
        like = {
            str(n): jax.ShapeDtypeStruct((1 << 18,), np.float32, sharding=NamedSharding(m, P("x")))
            for n, m in enumerate(slices)
        }
        restored = pw.restore(like, tmp_path / "s.npz")
        devices = [restored[str(n)].handle.buffer.devices for n in range(12)]
        assert len({d for of in devices for d in of}) == 24
        for name, value in values.items():
            np.testing.assert_array_equal(np.asarray(restored[name]), value)


def test_a_trace_names_islands_that_were_used_within_it(tmp_path: Path) -> None:
    with inside_of(Process("cpu", Controller(Machine("cpu")))):
        with pw.trace(tmp_path / "t.json"):
            for number in range(24):
                run_on_a_new_slice(number)
        assert len(read_trace(tmp_path / "t.json")) >= 8


def test_reference_runs_do_not_keep_their_islands() -> None:
    with inside_of(Process("cpu", Controller(Machine("cpu")))):
        for _ in range(20):
            on = NamedSharding(pw.make_virtual_device_set().add_slice(devices=1).mesh("x"), P())
            add = jax.jit(lambda x: x + 1, in_shardings=on)
            plan = pw.program(lambda x, add=add: add(x), example_args=()).lower(np.float32(1)).compile().plan
            assert run_reference(plan, [np.float32(1)])[0] == 2
            gc.collect()
        assert len(process().machine.islands) < 10
