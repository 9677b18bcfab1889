"""Freed memory goes back to the system where it is much, and not before."""

import numpy as np
import pytest

from pathways.runtime.host.devices.freed_memory import (
    FEWEST,
    LOOKS,
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
        (FEWEST + GIB // 4, GIB // 4, 0, False),
        (FEWEST + 2, 1, 0, True),
        (GIB, 2 * GIB, 0, False),
    ],
)
def test_what_is_much(held: int, in_use: int, others: int, worth: bool) -> None:
    assert worth_returning(held, in_use, others) == worth


class Process:
    """Memory and a clock that a test sets."""

    def __init__(self) -> None:
        self.held, self.in_use, self.now = 4 * GIB, GIB, 0.0
        self.returning = Returning(Heap(lambda: self.in_use, self.give_back), lambda: self.held, 0, lambda: self.now)

    def give_back(self) -> None:
        self.held, self.now = max(2 * GIB, self.in_use), self.now + 0.5


def test_nothing_is_given_back_before_more_is_held_than_after_the_last_time() -> None:
    process = Process()
    assert process.returning.look() and process.held == 2 * GIB
    process.now += 1000
    assert not process.returning.look()
    process.held = 4 * GIB
    assert process.returning.look() and process.held == 2 * GIB


def test_it_rests_as_long_as_the_pages_are_worth() -> None:
    """2 GiB were given back in 0.5 s, and cost 0.6 more when they are written anew."""
    process = Process()
    assert process.returning.look()
    process.held, process.now = 4 * GIB, 0.5 + RESTS * 1.09
    assert not process.returning.look()
    process.now = 0.5 + RESTS * 1.11
    assert process.returning.look()


def test_what_was_in_use_lately_stays() -> None:
    """A step is looked at between its largest moments too: the most in use of the last looks counts."""
    process = Process()
    process.in_use = 3 * GIB
    assert not process.returning.look()
    process.in_use = GIB
    for _ in range(LOOKS - 1):
        assert not process.returning.look()
    assert process.returning.look()


def test_a_small_process_is_not_counted() -> None:
    def count() -> int:
        raise AssertionError

    assert not Returning(Heap(count, Process().give_back), lambda: FEWEST - 1, 0).look()


def test_arrays_that_were_freed_are_gone() -> None:
    heap = glibc_heap()
    if heap is None:
        pytest.skip("no glibc of 2.33 or later")
    arrays = [np.ones(12_000) for _ in range(10_000)]  # too small each to be mapped by itself
    before = resident()
    del arrays[:-1]
    heap.give_back()
    assert resident() < before - (500 << 20)
