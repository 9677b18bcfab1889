"""A call with host callbacks takes no place in the queue if the callbacks were quick in the previous run."""

import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from support.codes import code_of

import pathways as pw
from pathways.api.process import process
from pathways.runtime.host.load import callback_launches
from pathways.runtime.host.run.background import Promise
from pathways.runtime.host.run.fallible import Awaited

pytestmark = pytest.mark.embedded
X = np.arange(16.0, dtype=np.float32).reshape(4, 4)


@pytest.fixture(autouse=True)
def quick_callbacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets callbacks of any duration count as quick. Only what a test itself starts is in flight."""
    monkeypatch.setattr(callback_launches, "MAX_QUICK_S", 60.0)
    process().controller.flights.drain(30)


def called(function: Any) -> Any:
    """Makes a program that adds what a callback returns to its argument. Its first run is over."""
    program: Any = pw.program(lambda x: x + jax.pure_callback(function, jax.ShapeDtypeStruct((), jnp.float32), x[0, 0]))
    np.asarray(program(X))
    return program


def test_a_call_with_quick_callbacks_does_not_enter_the_queue(queued: list[int]) -> None:
    seen: list[float] = []

    def count(x: Any) -> Any:
        seen.append(float(x))
        return np.float32(10 * len(seen))

    program = called(count)
    before = len(queued)
    for turn in range(2, 5):
        np.testing.assert_array_equal(np.asarray(program(X + turn)), X + turn + 10 * turn)
    assert seen == [0.0, 2.0, 3.0, 4.0] and len(queued) == before == 1


def test_a_call_whose_previous_callbacks_were_slow_enters_the_queue(
    queued: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = called(lambda x: np.float32(1))
    monkeypatch.setattr(callback_launches, "MAX_QUICK_S", 0.0)
    np.testing.assert_array_equal(np.asarray(program(X)), X + 1)
    assert len(queued) == 2


def test_an_exception_of_a_callback_fails_the_results_of_its_call_only(queued: list[int]) -> None:
    def positive(x: Any) -> Any:
        if x < 0:
            raise ValueError("negative")
        return np.float32(1)

    program = called(positive)
    good, bad = program(X), program(X - 1)
    after = program(X + 1)
    with pytest.raises(pw.PathwaysError, match="ValueError: negative") as raised:
        np.asarray(bad)
    assert raised.value.code == "PWC0504" and bad.handle.buffer.state == "poisoned"
    np.testing.assert_array_equal(np.asarray(good), X + 1)
    np.testing.assert_array_equal(np.asarray(after), X + 2)
    assert len(queued) == 1


class Waiting:
    """A program whose callback waits for a gate. Its first run is over.

    A computation on two devices is never executed by the thread that launches it.
    """

    def __init__(self) -> None:
        self.gate, self.ends = threading.Event(), list[str]()
        place = NamedSharding(pw.make_virtual_device_set().add_slice(devices=2).mesh("x"), P("x"))
        placed: Any = jax.jit(
            lambda x: x + jax.pure_callback(self._wait, jax.ShapeDtypeStruct((), jnp.float32), x.sum()),
            in_shardings=place,
            out_shardings=place,
        )
        self.program: Any = pw.program(lambda x: placed(x))
        self.gate.set()
        self.want = np.asarray(self.program(X))
        self.gate.clear()

    def _wait(self, x: Any) -> Any:
        assert self.gate.wait(60)
        self.ends.append("callback")
        return np.float32(1)


def test_results_that_wait_for_a_callback_are_promised_and_a_barrier_waits_for_them(queued: list[int]) -> None:
    waiting = Waiting()
    result = waiting.program(X)
    assert isinstance(result.handle.buffer.array, Promise) and not result.is_ready()
    waiting.gate.set()
    jax.effects_barrier()
    assert waiting.ends == ["callback"] * 2 and result.is_ready() and len(queued) == 1
    np.testing.assert_array_equal(np.asarray(result), waiting.want)


def test_a_call_waits_itself_for_its_callback_if_no_thread_can_be_started(
    queued: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = Waiting()

    def refuse(promise: Promise, work: Any) -> bool:
        waiting.gate.set()
        return False

    monkeypatch.setattr(process().controller.background, "start", refuse)
    result = waiting.program(X)
    assert result.is_ready() and waiting.ends == ["callback"] * 2 and len(queued) == 1
    np.testing.assert_array_equal(np.asarray(result), waiting.want)


def test_a_callback_that_calls_a_program_is_refused_in_a_quick_call_as_well(queued: list[int]) -> None:
    inner: Any = pw.program(lambda x: x + 1)
    np.asarray(inner(X))
    calls: list[bool] = [False]

    def call(x: Any) -> Any:
        return np.float32(np.asarray(inner(X))[0, 0]) if calls[0] else np.float32(0)

    program = called(call)
    calls[0] = True
    before = len(queued)
    assert code_of(np.asarray, program(X)) == "PWC0504" and len(queued) == before


@pytest.mark.parametrize("quick", [False, True])
def test_a_loop_whose_callback_raises_ends(quick: bool, queued: list[int]) -> None:
    """After the exception, zeros would keep the condition true for ever."""
    starts = [not quick]

    def refuse(x: Any) -> Any:
        if starts[0]:
            raise ValueError("refused")
        return np.float32(-3)

    def call(x: Any) -> Any:
        return jax.pure_callback(refuse, jax.ShapeDtypeStruct((), jnp.float32), x)

    program: Any = pw.program(lambda x: jax.lax.while_loop(lambda x: x > -2, call, x))
    given = np.array(1, np.float32)
    if quick:
        assert float(program(given)) == -3
        starts[0] = True
    with pytest.raises(pw.PathwaysError, match="ValueError: refused") as raised:
        np.asarray(program(given))
    assert raised.value.code == "PWC0504" and len(queued) == 1
    starts[0] = False
    assert float(program(given)) == -3


def test_ctrl_c_after_a_callback_has_failed_releases_the_island(
    queued: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    refuses = [False]

    def refuse(x: Any) -> Any:
        if refuses[0]:
            raise ValueError("refused")
        return np.float32(1)

    program = called(refuse)
    wait, refuses[0] = Awaited.wait, True

    def interrupted(self: Awaited, values: list[Any]) -> None:
        wait(self, values)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Awaited, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            program(X)
    refuses[0] = False
    np.testing.assert_array_equal(np.asarray(program(X)), X + 1)
    assert not process().controller.flights.enqueuing and len(queued) == 1
