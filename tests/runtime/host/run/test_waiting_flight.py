"""Tests that a run that waits for other hosts counts as still only while its own devices work."""

import threading
import time
from collections.abc import Callable
from typing import Any

from pathways.runtime.host.run.waiting_flight import WaitingFlight

TIMEOUT_S = 30.0


class ControlledValue:
    """A value or token that is known once the test sets `known`; a thread that waits for it sets `awaited`."""

    def __init__(self) -> None:
        self.known = threading.Event()
        self.awaited = threading.Event()

    def is_known(self) -> bool:
        return self.known.is_set()

    def wait(self) -> None:
        self.awaited.set()
        assert self.known.wait(TIMEOUT_S)

    block_until_ready = wait


def waiting(value: ControlledValue, tokens: Callable[[], list[Any]]) -> tuple[WaitingFlight, threading.Thread]:
    flight = WaitingFlight(1, None, (), [], None, None)
    thread = threading.Thread(target=flight.wait, args=([value], tokens))
    thread.start()
    assert value.awaited.wait(TIMEOUT_S)
    return flight, thread


def test_tokens_are_requested_only_when_the_mark_is_read() -> None:
    value, asked = ControlledValue(), []
    _, thread = waiting(value, lambda: asked.append("asked") or [])
    value.known.set()
    thread.join(TIMEOUT_S)
    assert not asked


def test_a_waiting_run_makes_progress_once_its_enqueued_work_is_done() -> None:
    value, token = ControlledValue(), ControlledValue()
    flight, thread = waiting(value, lambda: [token])
    still = flight.mark
    assert flight.mark == still and token.awaited.wait(TIMEOUT_S)
    token.known.set()
    never, until = threading.Event(), time.monotonic() + TIMEOUT_S
    while flight.mark == still and time.monotonic() < until:  # the helper thread updates the mark shortly after
        never.wait(0.001)
    assert flight.mark > still
    value.known.set()
    thread.join(TIMEOUT_S)
    assert not thread.is_alive()
