"""A run that waits for other hosts stands still only while its own devices work."""

import threading
from collections.abc import Callable
from typing import Any

from pathways.runtime.host.run.waiting_flight import WaitingFlight

PATIENCE = 30.0


class Told:
    """A value, or a token, that is known when the test says so; whether any thread waits for it."""

    def __init__(self) -> None:
        self.known = threading.Event()
        self.awaited = threading.Event()

    def is_known(self) -> bool:
        return self.known.is_set()

    def wait(self) -> None:
        self.awaited.set()
        assert self.known.wait(PATIENCE)

    block_until_ready = wait


def waiting(value: Told, tokens: Callable[[], list[Any]]) -> tuple[WaitingFlight, threading.Thread]:
    flight = WaitingFlight(1, None, (), [], None, None)
    thread = threading.Thread(target=flight.wait, args=([value], tokens))
    thread.start()
    assert value.awaited.wait(PATIENCE)
    return flight, thread


def test_tokens_are_asked_for_only_by_who_looks() -> None:
    value, asked = Told(), []
    _, thread = waiting(value, lambda: asked.append("asked") or [])
    value.known.set()
    thread.join(PATIENCE)
    assert not asked


def test_it_moves_on_while_all_that_it_enqueued_is_done() -> None:
    value, token = Told(), Told()
    flight, thread = waiting(value, lambda: [token])
    still = flight.mark
    assert flight.mark == still and token.awaited.wait(PATIENCE)
    token.known.set()
    moved = threading.Event()
    while not moved.wait(0.001):  # the helper says so in a moment
        if flight.mark > still:
            moved.set()
    value.known.set()
    thread.join(PATIENCE)
    assert not thread.is_alive()
