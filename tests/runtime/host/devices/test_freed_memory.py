"""Tests when freed memory is returned to the operating system: only large amounts, and not too often."""

from typing import Any

import numpy as np
import pytest

from pathways.runtime.host.devices import freed_memory
from pathways.runtime.host.devices.freed_memory import (
    MAX_SAMPLES,
    MIN_FREED_BYTES,
    RESTS,
    Heap,
    Returning,
    glibc_heap,
    resident,
    worth_returning,
)

GIB = 1 << 30


@pytest.mark.parametrize(
    ("held", "in_use", "others", "worth"),
    [
        (7 * GIB, 4 * GIB, 0, True),
        (7 * GIB, 4 * GIB, 2 * GIB, False),
        (5 * GIB, 4 * GIB, 0, False),
        (MIN_FREED_BYTES + GIB // 4, GIB // 4, 0, False),
        (MIN_FREED_BYTES + 2, 1, 0, True),
        (GIB, 2 * GIB, 0, False),
    ],
)
def test_returning_memory_is_worthwhile_only_for_large_amounts(
    held: int, in_use: int, others: int, worth: bool
) -> None:
    assert worth_returning(held, in_use, others) == worth


class Process:
    """A process whose memory and clock the test sets."""

    def __init__(self) -> None:
        self.held, self.in_use, self.now = 4 * GIB, GIB, 0.0
        self.returning = Returning(Heap(lambda: self.in_use, self.give_back), lambda: self.held, 0, lambda: self.now)

    def give_back(self) -> None:
        self.held, self.now = max(2 * GIB, self.in_use), self.now + 0.5


def test_memory_is_returned_again_only_after_the_process_has_grown() -> None:
    process = Process()
    assert process.returning.poll() and process.held == 2 * GIB
    process.now += 1000
    assert not process.returning.poll()
    process.held = 4 * GIB
    assert process.returning.poll() and process.held == 2 * GIB


def test_the_pause_after_a_return_is_proportional_to_its_cost() -> None:
    """Returning 2 GiB took 0.5 s, and writing these pages again costs 0.6 s more."""
    process = Process()
    assert process.returning.poll()
    process.held, process.now = 4 * GIB, 0.5 + RESTS * 1.09
    assert not process.returning.poll()
    process.now = 0.5 + RESTS * 1.11
    assert process.returning.poll()


def test_recently_used_memory_is_not_returned() -> None:
    """Polls also fall between the peaks of a step, so the highest use among the last polls counts."""
    process = Process()
    process.in_use = 3 * GIB
    assert not process.returning.poll()
    process.in_use = GIB
    for _ in range(MAX_SAMPLES - 1):
        assert not process.returning.poll()
    assert process.returning.poll()


def test_the_heap_of_a_small_process_is_not_measured() -> None:
    def count() -> int:
        raise AssertionError

    assert not Returning(Heap(count, Process().give_back), lambda: MIN_FREED_BYTES - 1, 0).poll()


def test_memory_outside_the_heap_is_measured_when_polls_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code and stacks cannot be returned, so they must not count as freed."""
    begun: list[tuple[Any, int]] = []
    monkeypatch.setattr(freed_memory, "glibc_heap", lambda: Heap(lambda: 3 * GIB, lambda: None))
    monkeypatch.setattr(freed_memory, "started", lambda _: True)  # pyright: ignore
    monkeypatch.setattr(freed_memory, "Returning", lambda heap, resident, others: begun.append((heap, others)))  # pyright: ignore
    for held, others in ((5 * GIB, 2 * GIB), (2 * GIB, 0)):
        monkeypatch.setattr(freed_memory, "resident", lambda held=held: held)
        freed_memory.return_freed_memory.__wrapped__()
        assert begun.pop()[1] == others


def test_freed_arrays_leave_the_resident_memory() -> None:
    heap = glibc_heap()
    if heap is None:
        pytest.skip("no glibc of 2.33 or later")
    arrays = [np.ones(12_000) for _ in range(10_000)]  # each is too small for its own mmap
    before = resident()
    del arrays[:-1]
    heap.give_back()
    assert resident() < before - (500 << 20)
