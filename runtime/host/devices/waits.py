"""Blocks until a computation on a device is done, or until the device is counted as lost. The in-flight limit, runs
(`host/run/`) and transports call it.

PJRT's own wait for a token ends only when the execution does. It ignores Ctrl-C and an abandoned execution. So a helper
thread waits for the token, and the calling thread waits for the helper or for the loss.
"""

import contextlib
import threading
from collections.abc import Sequence
from typing import Any, Protocol

from pathways.runtime.host.devices.pjrt import FAILURES
from pathways.runtime.monitor import Gate
from pathways.runtime.threads import started

IDLE_HELPER_TIMEOUT_S = 1.0
"""Idle time after which a helper thread ends."""


class Abandonable(Protocol):
    """Interface of a device queue that waits need (`in_flight_limit.DeviceQueue`)."""

    lost: bool
    waits: "set[Gate]"


class Opens(Protocol):
    """Interface of an object that a helper opens after its wait: one gate, or a shared wait."""

    def open(self) -> None: ...


class SharedWait:
    """A helper's wait for one value. It opens the gates of all waiters, which may also wait for other values."""

    def __init__(self, value: Any) -> None:
        self._gates: set[Gate] = set()
        self._over = False
        self._lock = threading.Lock()
        """Guards `_gates` and `_over`."""
        helper = _helper()
        self.has_helper = helper.is_there
        if self.has_helper:
            helper.wait([value], self)

    def add(self, gate: Gate) -> None:
        """Opens a gate when the value is ready or has failed, at once if it already is."""
        with self._lock:
            if not self._over:
                self._gates.add(gate)
                return
        gate.open()

    def discard(self, gate: Gate) -> None:
        with self._lock:
            self._gates.discard(gate)

    def open(self) -> None:
        with self._lock:
            self._over = True
            gates, self._gates = self._gates, set()
        for gate in gates:
            gate.open()


def until_done(tokens: Sequence[Any], queues: Sequence[Abandonable]) -> bool:
    """Waits until all executions are done or have failed; returns False if a device is lost first."""
    gate = Gate()
    for queue in queues:
        queue.waits.add(gate)
    try:
        if any(queue.lost for queue in queues):
            return False
        _helper().wait(tokens, gate)
        gate.pass_through()
    finally:
        for queue in queues:
            queue.waits.discard(gate)
    return not any(queue.lost for queue in queues)


def wait_up_to(values: Sequence[Any], seconds: float) -> None:
    """Waits until all values are ready or have failed, but no longer than `seconds`."""
    gate = Gate()
    _helper().wait(values, gate)
    gate.pass_through(seconds)


class _Helper:
    """A reusable thread that waits for tokens or values, one request at a time."""

    def __init__(self) -> None:
        self._given: tuple[Sequence[Any], Opens] | None = None
        self._go = threading.Lock()
        self._go.acquire()
        self.is_there = started(threading.Thread(target=self._work, name="pathways-wait", daemon=True))

    def wait(self, tokens: Sequence[Any], gate: Opens) -> None:
        if not self.is_there:
            _wait(tokens)
            gate.open()
            return
        self._given = tokens, gate
        self._go.release()

    def _work(self) -> None:
        while True:
            while not self._go.acquire(timeout=IDLE_HELPER_TIMEOUT_S):
                with contextlib.suppress(ValueError):  # another thread has just taken this helper
                    _idle.remove(self)
                    return
            assert self._given is not None
            tokens, gate = self._given
            self._given = None
            _wait(tokens)
            del tokens
            _idle.append(self)
            gate.open()


def _wait(tokens: Sequence[Any]) -> None:
    for token in tokens:
        with contextlib.suppress(*FAILURES):  # the execution's results carry the error
            token.block_until_ready()


_idle: list[_Helper] = []


def _helper() -> _Helper:
    try:
        return _idle.pop()
    except IndexError:
        return _Helper()
