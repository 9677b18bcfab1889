"""A call of one launch takes no place in the queue if it has no rival; otherwise it is a run like all others."""

import signal
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from support.codes import code_of
from support.processes import start_python
from support.shared import line_of
from support.stacked import stacks

import pathways as pw
from pathways.api.process import process
from pathways.runtime.client import controller, direct_call, inputs, loaded_plan
from pathways.runtime.client_state import MAIN
from pathways.runtime.control.admission import RunQueue, Ticket
from pathways.runtime.control.scheduling import Request
from pathways.runtime.errors import ComputationFailed
from pathways.runtime.host.devices.in_flight_limit import Gang
from pathways.runtime.host.devices.islands import FIRST_LAUNCH
from pathways.runtime.host.run.poison import Poison

pytestmark = pytest.mark.embedded
jit: Any = jax.jit
X = np.arange(16.0, dtype=np.float32).reshape(4, 4)


def program(body: Callable[..., Any], devices: int = 1, **options: Any) -> Any:
    """Makes a program of one computation, each on its own slice."""
    mesh = pw.make_virtual_device_set().add_slice(devices=devices).mesh("x")
    place = NamedSharding(mesh, P("x") if devices > 1 else P())
    placed = jit(body, in_shardings=place, out_shardings=place)
    return pw.program(lambda *args: placed(*args), **options)


@pytest.mark.parametrize("devices", [1, 2, 4])
def test_a_call_without_a_rival_does_not_enter_the_queue(devices: int, queued: list[int]) -> None:
    add = program(lambda x, y: {"sum": x + y, "difference": (x - y,)}, devices)
    found = add(X, X * 2)
    again = add(found["sum"], np.asfortranarray(X))
    np.testing.assert_array_equal(np.asarray(again["sum"]), X * 4)
    np.testing.assert_array_equal(np.asarray(again["difference"][0]), X * 2)
    of_jax = add(jnp.asarray(X), again["sum"])
    np.testing.assert_array_equal(np.asarray(of_jax["sum"]), X * 5)
    compiled = add.lower(X, X).compile()
    np.testing.assert_array_equal(np.asarray(compiled(X, found["sum"])["sum"]), X * 4)
    assert not queued


def test_a_call_whose_results_are_not_ready_at_its_return_is_a_run_in_flight(queued: list[int]) -> None:
    slow = program(lambda x: jax.lax.fori_loop(0, 30_000, lambda _, v: jnp.tanh(v + v.mean()), x), 2)
    results = [slow(X) for _ in range(3)]
    controller = process().controller
    assert controller.flights.count and controller.run_queue.scheduler.running
    assert [np.asarray(r).shape for r in results] == [(4, 4)] * 3
    assert not queued


def test_a_call_with_a_rival_enters_the_queue(queued: list[int]) -> None:
    slow = program(lambda x: jax.lax.fori_loop(0, 30_000, lambda _, v: jnp.tanh(v + v.mean()), x), 2)
    want = np.asarray(slow(X))
    with pw.Client("other"):
        slow(X)
        before = len(queued)
        with pw.Client("another"):
            np.testing.assert_array_equal(np.asarray(slow(X)), want)
    assert len(queued) == before + 1


def test_donated_arguments_are_overwritten_and_shared_ones_are_copied(queued: list[int]) -> None:
    plus = program(lambda x, y: x + y, donate_argnums=0)
    one, two = plus(X, X), plus(X, X)
    three = plus(one, two)
    assert code_of(np.asarray, one) == "PWC0207"
    before = len(queued)
    np.testing.assert_array_equal(np.asarray(plus(three, three)), X * 8)  # the same array twice
    assert len(queued) == before + 1 and code_of(np.asarray, three) == "PWC0207"
    np.testing.assert_array_equal(np.asarray(two), X * 2)


def test_arguments_of_other_types_and_places_are_checked_as_always() -> None:
    plus = program(lambda x: x + 1)
    elsewhere = program(lambda x: x * 2)(X)
    np.testing.assert_array_equal(np.asarray(plus(elsewhere)), X * 2 + 1)
    compiled = plus.lower(X).compile()
    assert code_of(compiled, X.astype(np.int32)) == "PWC0501" and code_of(compiled, X[:2]) == "PWC0501"
    mine = plus(X)
    with pw.Client("other"):
        assert code_of(compiled, mine) == "PWC0508"
    mine.delete()
    assert code_of(compiled, mine) == "PWC0217"


def test_a_caller_may_change_a_host_array_after_the_call(queued: list[int]) -> None:
    given = np.ones((256, 256), np.float32)
    product = program(lambda x: x @ x.T)
    found = [product(given) for _ in range(4)]
    given[...] = 0
    for result in found:
        np.testing.assert_array_equal(np.asarray(result), np.full((256, 256), 256.0))
    assert not queued


def test_a_failed_launch_poisons_the_results(queued: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    plus = program(lambda x: x + 1, 2)
    good = plus(X)
    direct: Any = plus._code.hot[0].__self__._direct

    def fails(*_: Any) -> Any:
        raise RuntimeError("a test says so")

    monkeypatch.setattr(direct, "_at_once", direct._at_once._replace(start=fails))
    bad = plus(X)
    assert code_of(np.asarray, bad) == "PWC0504" and not queued
    np.testing.assert_array_equal(np.asarray(good), X + 1)


def test_a_full_device_queue_sends_the_call_to_the_queue(queued: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    plus = program(lambda x: x + 1)
    plus(X).block_until_ready()
    direct: Any = plus._code.hot[0].__self__._direct
    gang = direct._start.gang
    before = [(q.flying, q.since) for q in gang._queues]
    monkeypatch.setattr(type(gang), "next_is_due", lambda self: None)
    np.testing.assert_array_equal(np.asarray(plus(X)), X + 1)
    assert len(queued) == 1 and len(before) == 1


@pytest.mark.usefixtures("queued")
def test_few_calls_that_are_complete_at_their_return_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    plus = program(lambda x: x + 1)
    plus(X).block_until_ready()
    direct: Any = plus._code.hot[0].__self__._direct
    at_once, measured = direct._at_once, list[float]()

    def start(*of: Any) -> Any:
        tokens, made = at_once.start(*of)
        jax.block_until_ready(made)
        return tokens, made

    monkeypatch.setattr(direct, "_at_once", at_once._replace(start=start))
    monkeypatch.setattr(direct, "_cost", SimpleNamespace(measured=measured.append))
    for _ in range(2 * direct_call.CALLS_PER_MEASUREMENT):
        plus(X)
    assert 1 <= len(measured) <= 2


@pytest.mark.usefixtures("queued")
def test_the_cost_of_a_plan_is_the_time_of_one_of_its_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    plus, controller = program(lambda x: x + 1), process().controller
    plus(X).block_until_ready()
    direct: Any = plus._code.hot[0].__self__._direct
    plan, measured = direct._plan, list[float]()
    monkeypatch.setattr(plan, "_cost", SimpleNamespace(measured=measured.append))
    monkeypatch.setattr(plan._engine, "times_scheduled", 4.0)
    ticket = controller.enter(Request(next(controller.numbers), MAIN.label, "plus", plan._keys), MAIN)
    controller.run_queue.enqueued(ticket, None)
    plan._at_the_end(ticket)(8.0)
    assert 2.0 in measured, "the first call may have been measured, too"


def test_threads_and_clients_that_call_at_once_get_their_own_results(queued: list[int]) -> None:
    plus = program(lambda x, n: x + n, 2)
    plus(X, np.full((4, 4), 1, np.float32)).block_until_ready()
    wrong: list[Any] = []

    def work(number: int) -> None:
        with pw.Client(f"client{number % 3}"):
            n = np.full((4, 4), number, np.float32)
            x = plus(X, n)
            for _ in range(60):
                x = plus(x, n)
            if not np.array_equal(np.asarray(x), X + 61 * number):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.usefixtures("queued")
def test_results_on_a_device_that_is_lost_during_the_launch_are_poison(monkeypatch: pytest.MonkeyPatch) -> None:
    plus = program(lambda x: x + 1)
    plus(X).block_until_ready()
    direct: Any = plus._code.hot[0].__self__._direct
    at_once, machine = direct._at_once, process().machine

    def loses(*of: Any) -> Any:
        machine.changes += 1
        return at_once.start(*of)

    cause = Poison(ComputationFailed(computation="f", island="island0", cause="lost"))
    monkeypatch.setattr(direct, "_at_once", at_once._replace(start=loses))
    monkeypatch.setattr(controller, "lost_among", lambda *_: cause)
    assert code_of(np.asarray, plus(X)) == "PWC0504"


def test_arguments_that_matter_only_by_their_types_are_part_of_the_signature() -> None:
    by_shape = pw.program(lambda x, n: x * n.shape[0])
    by_type = pw.program(lambda x, y: x.astype(y.dtype))
    for count in (3, 5, 7):
        assert float(by_shape(np.float32(2), np.zeros(count))) == 2 * count
    for dtype in (np.int32, np.float32, np.int32):
        assert by_type(X, np.zeros(2, dtype)).dtype == dtype


def test_an_argument_that_another_thread_donates_during_the_call_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The argument is read only when the run has its slots. Two devices with a collective would crash the process."""
    total = program(lambda x: x + x.sum(), 2)
    donating = pw.program(total.function, donate_argnums=0)
    array, taken = total(X), total(X)
    donating(taken)
    direct: Any = total._code.hot[0].__self__._direct
    begin = type(direct)._begin

    def donated_meanwhile(self: Any, *of: Any) -> bool:
        monkeypatch.undo()
        thread = threading.Thread(target=donating, args=(array,))
        thread.start()
        thread.join()
        return begin(self, *of)

    monkeypatch.setattr(type(direct), "_begin", donated_meanwhile)
    assert code_of(total, array) == "PWC0207"


@pytest.mark.usefixtures("queued")
def test_a_quick_call_leaves_the_counts_of_slow_runs_of_the_same_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be ready while earlier runs still execute; also a launch that fails must not forget them."""
    slow = program(lambda x: jax.lax.fori_loop(0, 10_000, lambda _, v: jnp.tanh(v + v.mean()), x), 2)
    first = slow(X)
    quick = pw.program(jit(lambda x: x + 1, in_shardings=first.sharding, out_shardings=first.sharding))
    given = quick(X)
    np.asarray(slow(X))
    results = [slow(X) for _ in range(3)]
    direct: Any = cast("Any", quick)._code.hot[0].__self__._direct
    queues = direct._gang._queues
    assert min(queue.flying for queue in queues) >= 3
    quick(given)
    at_once = direct._at_once
    monkeypatch.setattr(direct, "_at_once", at_once._replace(start=lambda *_: 1 / 0))
    assert code_of(np.asarray, quick(given)) == "PWC0504"
    assert min(queue.flying for queue in queues) >= 3 and len(results) == 3


def test_a_call_that_is_refused_leaves_the_islands_to_the_run_that_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if another thread lists the runs in flight meanwhile, as the watchdog does."""
    plus = program(lambda x: x + 1)
    for _ in range(2):
        plus(X).block_until_ready()
    controller = process().controller
    run_queue, direct = controller.run_queue, plus._code.hot[0].__self__._direct
    rival = Ticket(Request(next(controller.numbers), "rival#9", "rival", frozenset(direct._owned.islands)))
    own, entered = run_queue.own, threading.Event()

    def listed(*of: Any) -> bool:
        assert all(flight.number != rival.request.number + 1 for flight in controller.flights.all())
        return own(*of)

    def line_up(ticket: Ticket) -> None:
        RunQueue.line_up(run_queue, ticket)
        entered.set()

    line_up(rival)
    entered.clear()
    monkeypatch.setattr(run_queue, "own", listed)
    monkeypatch.setattr(run_queue, "line_up", line_up)
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(np.asarray(plus(X))))
    thread.start()
    assert entered.wait(30) and set(run_queue.scheduler.active.values()) == {rival.request.number}
    run_queue.finished(rival)
    thread.join(30)
    np.testing.assert_array_equal(found[0], X + 1)


def test_a_call_that_is_listed_and_then_refused_is_no_run(queued: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    plus = program(lambda x: x + 1)
    for _ in range(2):
        plus(X).block_until_ready()
    controller, listed = process().controller, list[list[int]]()

    def full(_: Any) -> None:
        listed.append([number for flight in controller.flights.all() for number, _ in flight.parts()])

    monkeypatch.setattr(Gang, "next_is_due", full)
    np.testing.assert_array_equal(np.asarray(plus(X)), X + 1)
    assert len(queued) == 1 and listed and min(map(min, listed)) >= FIRST_LAUNCH
    assert not controller.flights.enqueuing


def test_an_array_of_jax_that_is_not_ready_is_waited_for_outside_of_the_queue(
    queued: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    plus = program(lambda x: x + 1)
    given = jnp.asarray(X)
    plus(given).block_until_ready()
    waits: list[int] = []

    def wait(values: Any) -> None:
        waits.append(len(queued))
        inputs.wait_for_jax(values)

    monkeypatch.setattr(type(given), "is_ready", lambda _: False)
    monkeypatch.setattr(loaded_plan, "wait_for_jax", wait)
    np.testing.assert_array_equal(np.asarray(plus(given)), X + 1)
    assert waits == [0] and len(queued) == 1


def test_a_whole_array_of_pieces_is_not_taken_for_its_first_piece() -> None:
    stack = stacks((2, 2), optax.sgd(0.1))
    whole = stack.program()(*stack.arguments)[0]["mix"]
    first = whole.pieces[0]
    placed = jit(lambda x: x * 2, in_shardings=first.virtual_sharding, out_shardings=first.virtual_sharding)
    double = pw.program(lambda x: placed(x))
    assert double(first).shape == double(first).shape == first.shape
    assert double(whole).shape == whole.shape != first.shape
    assert code_of(double.lower(first).compile(), whole) == "PWC0501"


CALLS = """
import numpy as np, pathways as pw
f = pw.program(lambda x: x + 1)
x = f(np.ones(64, np.float32))
try:
    print("ready", flush=True)
    while True:
        x = f(x)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.embedded
def test_ctrl_c_ends_a_loop_of_small_calls() -> None:
    """A call must not hold the interrupt back again and again: most of the time of such a loop is inside of calls."""
    with start_python("-c", CALLS) as process:
        assert line_of(process) == "ready"
        process.send_signal(signal.SIGINT)
        assert line_of(process) == "interrupted"
        process.wait(30)
