"""Waits of the main thread poll with a timeout, so that a signal sent just before the wait still ends the wait."""

import pytest

from pathways.runtime.interrupts import wait_without_end
from pathways.runtime.monitor import Gate


class ReadyAtThirdPoll:
    """A lock or event that is ready at the third poll. A poll without a timeout fails: it would miss a signal."""

    def __init__(self) -> None:
        self.timeouts: list[float] = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        return self.wait(timeout)

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None and 0 < timeout <= 1, (
            "without a timeout, Python handles no signal until the wait ends"
        )
        self.timeouts.append(timeout)
        return len(self.timeouts) == 3


def test_unbounded_waits_poll_with_a_timeout() -> None:
    polled = ReadyAtThirdPoll()
    wait_without_end(polled.wait)
    assert len(polled.timeouts) == 3


def test_a_gate_polls_with_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    gate, polled = Gate(), ReadyAtThirdPoll()
    monkeypatch.setattr(gate, "_lock", polled)
    gate.pass_through()
    assert len(polled.timeouts) == 3
    gate = Gate()
    gate.pass_through(timeout=0.001)
    gate.open()
    gate.pass_through()
