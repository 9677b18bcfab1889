"""Donated arrays are overwritten in place: counts the copies, and the buffers that remain after runs."""

import gc
from typing import Any

import jax
import numpy as np
import pytest
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from support.branching import looping
from support.codes import code_of

import pathways as pw
from pathways.api.process import process
from pathways.runtime.client import arguments, controller
from pathways.runtime.client.loaded_plan import LoadedPlan
from pathways.runtime.client.ports import Result
from pathways.runtime.errors import ComputationFailed
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.run.poison import Poison

jit: Any = jax.jit
X = np.arange(8, dtype=np.float32)
HOME = NamedSharding(pw.make_virtual_device_set().add_slice(devices=2).mesh("x"), P("x"))
make = pw.program(lambda x: jit(lambda v: v + 0, in_shardings=HOME, out_shardings=HOME)(x))
donating = pw.program(lambda x: jit(lambda v: v + 1, in_shardings=HOME, out_shardings=HOME)(x), donate_argnums=0)


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Records the arrays that are copied whole before their donation."""
    found: list[Any] = []
    real = pjrt.copy_whole

    def counted(array: Any, *args: Any) -> Any:
        found.append(array)
        return real(array, *args)

    monkeypatch.setattr(pjrt, "copy_whole", counted)
    return found


@pytest.mark.embedded
def test_an_array_with_one_holder_is_donated_without_a_copy(copies: list[Any]) -> None:
    x = make(X)
    for _ in range(5):
        given = x.block_until_ready().handle.buffer.array
        x = donating(x)
        x.block_until_ready()
        assert given.is_deleted()
    assert copies == []
    np.testing.assert_array_equal(np.asarray(x), X + 5)


@pytest.mark.embedded
def test_a_shared_array_is_copied_once_before_its_donation(copies: list[Any]) -> None:
    x = make(X)
    other, _ = x.handle.share()
    array = other.buffer.array
    y = donating(x)
    assert copies == [array] and not array.is_deleted()
    np.testing.assert_array_equal(np.asarray(y), X + 1)
    np.testing.assert_array_equal(np.asarray(array), X)
    other.drop()
    donating(y)
    assert len(copies) == 1


def test_an_array_is_not_donated_by_a_call_that_is_refused() -> None:
    add = jit(lambda a, b: a + b, in_shardings=(HOME, HOME), out_shardings=HOME)
    donates = pw.program(lambda a, b: add(a, b), donate_argnums=0)
    kept, gone = make(X), make(X)
    donates(make(X), gone).block_until_ready()
    gone.delete()
    assert code_of(donates, kept, gone) == "PWC0217"
    np.testing.assert_array_equal(np.asarray(donates(kept, make(X))), 2 * X)
    assert kept.is_deleted()


def test_an_array_that_is_donated_and_read_in_one_call_is_copied_once(copies: list[Any]) -> None:
    double = jit(lambda a, b: (a + 1, a + b), in_shardings=(HOME, HOME), out_shardings=HOME)
    both = pw.program(lambda a, b: double(a, b), donate_argnums=0)
    x = make(X)
    added, total = both(x, x)
    np.testing.assert_array_equal(np.asarray(added), X + 1)
    np.testing.assert_array_equal(np.asarray(total), 2 * X)
    assert len(copies) == 1


@pytest.mark.embedded
def test_an_array_that_is_deleted_while_other_arguments_are_copied_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuses the call in place of copying a buffer that another thread has taken, and ends its other claims."""
    first, second = (jit(lambda a, b: a + b, in_shardings=(HOME, HOME), out_shardings=HOME) for _ in range(2))
    donates = pw.program(lambda a, b, c: (first(a, c), second(b, c)), donate_argnums=(0, 1))
    donates(make(X), make(X), X)
    gone, kept = make(X), make(X)
    as_host = arguments.as_host

    def deletes(*of: Any) -> Any:
        gone.delete()
        return as_host(*of)

    monkeypatch.setattr(arguments, "as_host", deletes)
    assert code_of(donates, gone, kept, X) == "PWC0217"
    monkeypatch.undo()
    np.testing.assert_array_equal(np.asarray(donates(kept, make(X), X)[0]), 2 * X)
    assert kept.is_deleted()


@pytest.mark.embedded
def test_results_on_a_device_that_is_lost_before_they_are_held_are_poison(monkeypatch: pytest.MonkeyPatch) -> None:
    homes = [NamedSharding(pw.make_virtual_device_set().add_slice(devices=1).mesh("x"), P()) for _ in range(2)]
    parts = [jit(lambda v: (v + 1, v + 2), in_shardings=home, out_shardings=home) for home in homes]
    both = pw.program(lambda x: [part(x) for part in parts])
    lost = both(X)[0][0].handle.buffer.devices[0]
    stored, cause = Result.stored, Poison(ComputationFailed(computation="f", island="island0", cause="lost"))

    def loses(self: Result, *of: Any) -> Any:
        monkeypatch.setattr(LoadedPlan, "lost", cause)
        return stored(self, *of)

    monkeypatch.setattr(Result, "stored", loses)
    monkeypatch.setattr(controller, "lost_among", lambda _, devices: cause if lost in devices else None)
    found = both(X)
    monkeypatch.undo()
    assert [code_of(np.asarray, array) for array in found[0]] == ["PWC0504"] * 2
    for array, more in zip(found[1], (1, 2), strict=True):
        np.testing.assert_array_equal(np.asarray(array), X + more)


@pytest.mark.embedded
def test_donating_an_array_on_other_devices_keeps_the_original(copies: list[Any]) -> None:
    """The transfer makes the only copy, and the copy is overwritten."""
    there = NamedSharding(pw.make_virtual_device_set().add_slice(devices=2).mesh("y"), P("y"))
    elsewhere = pw.program(lambda x: jit(lambda v: v + 0, in_shardings=there, out_shardings=there)(x))
    x = elsewhere(X)
    array = x.block_until_ready().handle.buffer.array
    np.testing.assert_array_equal(np.asarray(donating(x)), X + 1)
    assert copies == [array] and not array.is_deleted()


def remaining_buffers() -> int:
    """Counts the buffers that clients hold after all enqueued work is done."""
    controller = process().controller
    assert controller.background.drain(timeout=60) and controller.flights.drain(timeout=60)
    gc.collect()
    return len(controller.store.buffers)


@pytest.mark.parametrize("kind", ["regular", "loop", "branch", "donating loop"])
def test_runs_leave_no_buffers(kind: str) -> None:
    """Each run has a fresh input, which is dropped afterwards with the results."""
    f, g = (jit(lambda x, n=n: x * 2 + n, in_shardings=HOME, out_shardings=HOME) for n in range(2))
    there = NamedSharding(pw.make_virtual_device_set().add_slice(devices=2).mesh("y"), P("y"))
    h = jit(lambda x: x - 1, in_shardings=there, out_shardings=there)

    def loop(x: Any, n: Any) -> Any:
        return lax.fori_loop(0, n, lambda i, v: h(f(v)), x)

    programs = {
        "regular": pw.program(lambda x, n: h(f(x)) + n),
        "loop": pw.program(loop),
        "branch": pw.program(lambda x, n: lax.cond(n > 1, lambda v: f(v), lambda v: h(g(v)), x)),
        "donating loop": pw.program(loop, donate_argnums=0),
    }
    program = programs[kind]
    program(make(X), np.int32(1)).block_until_ready()
    before = remaining_buffers()
    for n in range(5):
        x = make(X + n)
        results = program(x, np.int32(n))
        jax.block_until_ready(np.asarray(results))
        del x, results
    assert remaining_buffers() == before


def test_a_loop_and_a_branch_together_leave_no_buffers() -> None:
    program = looping()
    before = remaining_buffers()
    for n in range(3):
        x = make(X)
        results = program(x, np.int32(n))
        jax.block_until_ready([np.asarray(array) for array in results])
        assert remaining_buffers() == before + 1 + len(results)
        del x, results
    assert remaining_buffers() == before
