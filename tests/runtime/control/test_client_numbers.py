"""Tests that numbers of clients are used again, each only after it was given back."""

from pathways.runtime.control.sessions import ClientNumbers


def test_numbers_are_used_again_in_the_order_in_which_they_were_given_back() -> None:
    numbers = ClientNumbers(limit=4)
    assert [numbers.take() for _ in range(4)] == [1, 2, 3, None]
    numbers.give_back(2)
    numbers.give_back(1)
    assert [numbers.take() for _ in range(3)] == [2, 1, None]


def test_a_number_that_was_given_back_is_used_after_those_that_are_new() -> None:
    numbers = ClientNumbers(limit=5)
    numbers.give_back(numbers.take() or 0)
    assert [numbers.take() for _ in range(5)] == [2, 3, 4, 1, None]
