"""A proof shows what a host has loaded, under which number, and holds for the key of that host alone."""

from typing import Any

import pytest

from pathways.runtime.wire import load_proofs
from pathways.runtime.wire.load_proofs import is_of_islands, loaded_as, new_key, prove, proven

KEY, OTHER = new_key(b"host", "ticket"), new_key(b"host", "another ticket")
PODS = frozenset(f"pod{number}" for number in range(20))
LOADED = loaded_as(b"plan", PODS, sequential=False)


def test_a_proof_shows_what_was_loaded_to_the_holder_of_the_key() -> None:
    assert proven(KEY, 7, prove(KEY, 7, LOADED)) == LOADED


@pytest.mark.parametrize("proof", ["", ":", LOADED, prove(OTHER, 7, LOADED), prove(KEY, 8, LOADED), "ü:ü"])
def test_a_proof_of_another_key_or_number_shows_nothing(proof: str) -> None:
    assert proven(KEY, 7, proof) == ""


def test_what_is_loaded_differs_by_plan_order_and_islands() -> None:
    others = [
        loaded_as(b"another", PODS, sequential=False),
        loaded_as(b"plan", PODS, sequential=True),
        loaded_as(b"plan", PODS - {"pod0"}, sequential=False),
    ]
    assert len({LOADED, *others}) == 4
    assert [is_of_islands(loaded, PODS) for loaded in (LOADED, *others)] == [True, True, True, False]


def test_processes_that_list_a_set_in_another_order_load_the_same() -> None:
    """The order of a set of texts differs between processes. Sets of one process differ where their texts collide."""
    cache: Any = load_proofs
    orders, found = set[tuple[str, ...]](), set[str]()
    for first in sorted(PODS):
        for islands in (frozenset([first, *sorted(PODS)]), frozenset([first, *sorted(PODS, reverse=True)])):
            cache._digest_of_islands.cache_clear()
            orders.add(tuple(islands))
            found.add(loaded_as(b"plan", islands, sequential=False))
    assert len(orders) > 1 and found == {LOADED}
