"""Tests rare races: Ctrl-C in critical sections, several threads on one object, handles freed during a call."""

import threading
from typing import Any

import numpy as np
import pytest
from support.clients import X, make
from support.codes import code_of
from support.processes import run_python

import pathways as pw
from pathways.api.process import COMPILING, process
from pathways.runtime.client import suspend
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.devices.executable_cache import Executables
from pathways.runtime.host.devices.in_flight_limit import TOKEN_STRIDE, DeviceQueue, Gang
from pathways.runtime.host.run.runs_in_flight import Flights

INTERRUPTED = """
import signal, sys, threading
from pathways.runtime import interrupts

done = []

@interrupts.uninterrupted
def half():
    signal.raise_signal(signal.SIGINT)
    for _ in range(1000):
        done.append(1)

class Dies:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
        done.append(2)

interrupts.install()
for work in (half, Dies):
    done.clear()
    try:
        work()
        threading.Event().wait(60)
        sys.exit(f"{work} swallowed it")
    except KeyboardInterrupt:
        print(len(done))
signal.signal(signal.SIGINT, lambda *_: print("mine"))
interrupts.install()
signal.raise_signal(signal.SIGINT)
"""


def test_an_interrupt_is_delayed_until_an_uninterrupted_function_ends() -> None:
    done = run_python("-c", INTERRUPTED)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1000", "1", "mine"]


class Slow:
    """A token that completes when waited for, and records the wait."""

    def __init__(self, waits: list[float], seconds: float) -> None:
        self.waits = waits
        self.seconds = seconds

    def block_until_ready(self) -> None:
        self.waits.append(self.seconds)


@pytest.mark.parametrize(("seconds", "each"), [(0.0, TOKEN_STRIDE), (10.0, 1)])
def test_fast_executions_get_fewer_tokens_than_slow_ones(
    seconds: float, each: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr("pathways.runtime.host.devices.in_flight_limit.time.monotonic", lambda: sum(waits))
    queue = DeviceQueue()
    gang, dues = Gang([queue]), list[int]()
    for number in range(20 * TOKEN_STRIDE):
        if gang.admit():
            dues.append(number)
            gang.started((Slow(waits, seconds), None))
        assert queue.flying <= DeviceQueue().limit
    assert all(b - a == each for a, b in zip(dues[-4:], dues[-3:], strict=False))
    assert dues[:3] == [0, 1, 2]  # how slow executions are is not known yet


@pytest.mark.embedded
def test_handles_may_be_freed_while_their_client_suspends_and_resumes(monkeypatch: pytest.MonkeyPatch) -> None:
    program, held = make(1), process().store.bytes
    with pw.Client("sleeper") as client:
        arrays = [program(X), program(X)]
        real = suspend.np.asarray
        monkeypatch.setattr(
            suspend.np, "asarray", lambda *a, **k: (arrays.__delitem__(slice(1, None)), real(*a, **k))[1]
        )
        client.suspend()
        monkeypatch.undo()
        back = pjrt.putter
        monkeypatch.setattr(pjrt, "putter", lambda *a, **k: (arrays.clear(), back(*a, **k))[1])
        client.resume()
        monkeypatch.undo()
        assert process().store.bytes == held
        np.testing.assert_array_equal(np.asarray(program(X)), X + 1)


def test_several_threads_resume_one_client_at_once(tmp_path: Any) -> None:
    program = make(1)
    with pw.Client("sleeper") as client:
        arrays = [program(X) for _ in range(8)]
        client.suspend(tmp_path)
        threads = [threading.Thread(target=client.resume) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for array in arrays:
            np.testing.assert_array_equal(np.asarray(array), X + 1)
        client.suspend(tmp_path)
    assert not list(tmp_path.iterdir())  # closing the client removed its files


def test_submitting_to_a_closing_client_is_refused() -> None:
    client = pw.Client("closing")
    began, go = threading.Event(), threading.Event()
    first = client.submit(lambda: (began.set(), go.wait(60)))
    began.wait(60)
    worker: Any = client._worker  # pyright: ignore[reportPrivateUsage]
    waits, shutdown = threading.Event(), worker.shutdown
    worker.shutdown = lambda **options: (waits.set(), shutdown(**options))
    closing = threading.Thread(target=client.close)
    closing.start()
    assert waits.wait(60)
    assert code_of(client.submit, lambda: None) == "PWC0509"
    go.set()
    closing.join()
    assert first.done() and client._worker is None  # pyright: ignore[reportPrivateUsage]


def test_late_results_of_a_closed_client_hold_no_memory() -> None:
    program, store = make(1), process().store
    held = store.bytes
    with pw.Client("left") as client:
        buffer = program(X).handle.buffer
        client.close()
        late = store.hold(buffer)  # as a run of the client does that is still being enqueued
    assert store.bytes == held and buffer.array is None
    assert code_of(late.array) == "PWC0509"


def test_executables_loaded_by_other_threads_are_not_recorded() -> None:
    made, (device,) = Executables(), pjrt.make_devices(1)
    module = "func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> { return %x : tensor<4xf32> }"
    with made.recording() as used:
        other = threading.Thread(target=made.load, args=(module, [device]))
        other.start()
        other.join()
        assert not used
        made.load(module, [device])
    assert len(used) == 1


def test_a_run_that_moves_into_its_queue_is_still_listed() -> None:
    flights = Flights()
    line = flights.line("island")

    class Moving(dict[int, Any]):
        """Moves the run into its queue at the moment of the copy."""

        def copy(self) -> dict[int, Any]:
            found = dict(self)
            line.flights.append(flight)
            self.clear()
            return found

    class Flight:
        number = 7

    flight: Any = Flight()
    flights.enqueuing = Moving({7: flight})
    assert flights.all() == [flight]


def test_placing_a_program_anew_takes_the_lock_of_traces_first() -> None:
    """A thread that traces holds COMPILING, and may call a program that another thread is placing anew."""
    compiled = pw.program(make(1).function).lower(X).compile()
    lock, held = compiled._lock, list[bool]()  # pyright: ignore[reportPrivateUsage]

    class Watching:
        def __enter__(self) -> None:
            held.append(COMPILING._is_owned())  # pyright: ignore
            lock.acquire()

        def __exit__(self, *_: object) -> None:
            lock.release()

    compiled._lock = Watching()  # pyright: ignore
    compiled._place_anew()  # pyright: ignore[reportPrivateUsage]
    assert held == [True]
