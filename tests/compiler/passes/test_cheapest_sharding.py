"""Tests which sharding an open value gets: the one that moves the fewest elements, counted by hand for each device."""

from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pathways.compiler.passes.known_shardings import cheapest
from pathways.dialect.dtypes import ArrayType
from pathways.dialect.sharding import Dims, MeshSpec, Sharding

SHAPE = (8, 8)
MESH = MeshSpec((("a", 2), ("b", 2), ("c", 2)), tuple(range(8)))


@st.composite
def shardings(draw: st.DrawFn) -> Dims:
    dims: list[list[str]] = [[], []]
    for name in draw(st.permutations("abc")):
        where = draw(st.integers(0, 2))
        if where < 2:
            dims[where].append(name)
    return tuple(dims[0]), tuple(dims[1])


def held(dims: Dims) -> list["np.ndarray[Any, Any]"]:
    """Returns for each device a mask of the elements that it holds."""
    found: list[np.ndarray[Any, Any]] = []
    for box in Sharding(MESH, dims).boxes(SHAPE):
        mask = np.zeros(SHAPE, bool)
        mask[tuple(slice(start, stop) for start, stop in box)] = True
        found.append(mask)
    return found


def moved(source: Dims, target: Dims) -> int:
    return sum(int((want & ~have).sum()) for have, want in zip(held(source), held(target), strict=True))


def chosen(suggested: Dims, wants: list[Dims], made_so: bool, inbound: range = range(0)) -> Dims:
    state: Any = SimpleNamespace(
        wants={0: wants},
        program=SimpleNamespace(mesh=lambda _: MESH),
        taken=SimpleNamespace(lives=["m"], types=[ArrayType(SHAPE, "float32")], inbound=inbound),
    )
    return cheapest(state, 0, suggested, made_so=made_so)


def total(candidate: Dims, suggested: Dims, wants: list[Dims], made_so: bool) -> tuple[int, int]:
    """Counts moved elements and reshards between calls; users of the same sharding share one reshard."""
    users = set(wants)
    if made_so:
        return _with_users(moved(suggested, candidate), candidate, users)
    return _with_users(0 if suggested in users else moved(candidate, suggested), candidate, users)


def _with_users(inside: int, candidate: Dims, users: set[Dims]) -> tuple[int, int]:
    return inside + sum(moved(candidate, w) for w in users), sum(w != candidate for w in users)


@given(shardings(), st.lists(shardings(), max_size=3), st.booleans())
def test_no_suggested_or_wanted_sharding_moves_less(suggested: Dims, wants: list[Dims], made_so: bool) -> None:
    found = chosen(suggested, wants, made_so)
    candidates = [suggested, *wants]
    assert found in candidates
    costs = [total(c, suggested, wants, made_so) for c in candidates]
    assert total(found, suggested, wants, made_so) == min(costs)


@given(shardings(), st.lists(shardings(), min_size=1, max_size=3), st.integers(1, 9), st.booleans())
def test_more_users_of_the_same_sharding_change_nothing(
    suggested: Dims, wants: list[Dims], more: int, made_so: bool
) -> None:
    """Users of the same sharding share one reshard."""
    assert chosen(suggested, wants + [wants[-1]] * more, made_so) == chosen(suggested, wants, made_so)


def test_many_users_of_one_sharding_count_as_one() -> None:
    """The value is made in rows; many users take columns, one takes it whole. Columns would move it twice."""
    rows, columns, whole = (("a", "b", "c"), ()), ((), ("a", "b", "c")), ((), ())
    assert chosen(rows, [columns] * 5 + [whole], made_so=True) == chosen(rows, [columns, whole], made_so=True)


@given(shardings(), st.lists(shardings(), min_size=1, max_size=3))
def test_an_inbound_value_has_the_sharding_of_one_of_its_users(suggested: Dims, wants: list[Dims]) -> None:
    """It arrives in the sharding of a user: the one that moves the least to the suggested sharding."""
    found = chosen(suggested, wants, False, range(1))
    assert found in wants
    assert moved(found, suggested) == min(moved(w, suggested) for w in wants)
    assert chosen(suggested, [], False, range(1)) == suggested
