"""Waits of the main thread that a signal must end, also one that came just before the wait began."""

import pytest

from pathways.runtime.host.devices.waits import Gate
from pathways.runtime.interrupts import wait_without_end


class Late:
    """A lock, or an event, that is there at the third look; a wait that does not end by itself would miss a signal."""

    def __init__(self) -> None:
        self.looks: list[float] = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        return self.wait(timeout)

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None and 0 < timeout <= 1, "Python would see no signal until it is over"
        self.looks.append(timeout)
        return len(self.looks) == 3


def test_waits_without_end_look_for_signals_now_and_then() -> None:
    late = Late()
    wait_without_end(late.wait)
    assert len(late.looks) == 3


def test_a_gate_looks_for_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    gate, late = Gate(), Late()
    monkeypatch.setattr(gate, "_lock", late)
    gate.pass_through()
    assert len(late.looks) == 3
    gate = Gate()
    gate.pass_through(timeout=0.001)
    gate.open()
    gate.pass_through()
