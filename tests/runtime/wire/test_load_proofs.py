"""A proof shows what a host has loaded, under which number, and holds for the key of that host alone."""

import pytest

from pathways.runtime.wire.load_proofs import Branches, has_shape, loaded_as, new_key, prove, proven

KEY, OTHER = new_key(b"host", "ticket"), new_key(b"host", "another ticket")
PODS = frozenset(f"pod{number}" for number in range(20))
BRANCHES = {-1: ("vote", frozenset(["pod0"])), 4: ("cond", frozenset(["pod0", "pod1"]))}
LOADED = loaded_as(b"plan", PODS, BRANCHES, sequential=False)
OTHER_SHAPES: list[tuple[frozenset[str], Branches | None]] = [
    (PODS - {"pod0"}, BRANCHES),
    (PODS, None),
    (PODS, {}),
    (PODS, {4: BRANCHES[4]}),
    (PODS, BRANCHES | {4: ("while", BRANCHES[4][1])}),
    (PODS, BRANCHES | {4: ("cond", frozenset(["pod0", "pod2"]))}),
    (PODS, {-1: BRANCHES[-1], 5: BRANCHES[4]}),
]


def test_a_proof_shows_what_was_loaded_to_the_holder_of_the_key() -> None:
    assert proven(KEY, 7, prove(KEY, 7, LOADED)) == LOADED


@pytest.mark.parametrize("proof", ["", ":", LOADED, prove(OTHER, 7, LOADED), prove(KEY, 8, LOADED), "ü:ü"])
def test_a_proof_of_another_key_or_number_shows_nothing(proof: str) -> None:
    assert proven(KEY, 7, proof) == ""


def test_what_is_loaded_differs_by_plan_order_islands_and_branches() -> None:
    others = [
        loaded_as(b"another", PODS, BRANCHES, sequential=False),
        loaded_as(b"plan", PODS, BRANCHES, sequential=True),
        *(loaded_as(b"plan", islands, branches, sequential=False) for islands, branches in OTHER_SHAPES),
    ]
    assert len({LOADED, *others}) == 3 + len(OTHER_SHAPES)
    fits = [has_shape(loaded, PODS, BRANCHES) for loaded in (LOADED, *others)]
    assert fits == [True, True, True] + [False] * len(OTHER_SHAPES)


def test_processes_that_list_sets_and_branches_in_another_order_load_the_same() -> None:
    orders = [sorted(PODS), sorted(PODS, reverse=True)]
    branches = [dict(BRANCHES), dict(reversed(BRANCHES.items()))]
    for islands in orders:
        for listed in branches:
            assert loaded_as(b"plan", islands, listed, sequential=False) == LOADED
