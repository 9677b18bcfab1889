"""Which sharding a value gets that the user left open: the one that moves least, counted by hand device by device."""

from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pathways.compiler.passes.propagate_shardings import cheapest
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
    """What each device holds of the array."""
    found: list[np.ndarray[Any, Any]] = []
    for box in Sharding(MESH, dims).boxes(SHAPE):
        mask = np.zeros(SHAPE, bool)
        mask[tuple(slice(start, stop) for start, stop in box)] = True
        found.append(mask)
    return found


def moved(source: Dims, target: Dims) -> int:
    return sum(int((want & ~have).sum()) for have, want in zip(held(source), held(target), strict=True))


def chosen(suggested: Dims, wants: list[Dims], made_so: bool, arrivals: range = range(0)) -> Dims:
    state: Any = SimpleNamespace(
        wants={0: wants},
        program=SimpleNamespace(mesh=lambda _: MESH),
        taken=SimpleNamespace(lives=["m"], types=[ArrayType(SHAPE, "float32")], arrivals=arrivals),
    )
    return cheapest(state, 0, suggested, made_so=made_so)


def total(candidate: Dims, suggested: Dims, wants: list[Dims], made_so: bool) -> tuple[int, int]:
    """Elements that move, and reshards between calls; users that want the same sharding share one."""
    users = set(wants)
    if made_so:
        return _with_users(moved(suggested, candidate), candidate, users)
    return _with_users(0 if suggested in users else moved(candidate, suggested), candidate, users)


def _with_users(inside: int, candidate: Dims, users: set[Dims]) -> tuple[int, int]:
    return inside + sum(moved(candidate, w) for w in users), sum(w != candidate for w in users)


@given(shardings(), st.lists(shardings(), max_size=3), st.booleans())
def test_nothing_that_anybody_asks_for_moves_less(suggested: Dims, wants: list[Dims], made_so: bool) -> None:
    found = chosen(suggested, wants, made_so)
    candidates = [suggested, *wants]
    assert found in candidates
    costs = [total(c, suggested, wants, made_so) for c in candidates]
    assert total(found, suggested, wants, made_so) == min(costs)


@given(shardings(), st.lists(shardings(), min_size=1, max_size=3), st.integers(1, 9), st.booleans())
def test_a_user_more_that_wants_the_same_changes_nothing(
    suggested: Dims, wants: list[Dims], more: int, made_so: bool
) -> None:
    """They share one reshard."""
    assert chosen(suggested, wants + [wants[-1]] * more, made_so) == chosen(suggested, wants, made_so)


def test_one_user_of_many_that_want_otherwise() -> None:
    """Made in rows; many take columns, one takes it whole: columns would move it twice."""
    rows, columns, whole = (("a", "b", "c"), ()), ((), ("a", "b", "c")), ((), ())
    assert chosen(rows, [columns] * 5 + [whole], made_so=True) == chosen(rows, [columns, whole], made_so=True)


@given(shardings(), st.lists(shardings(), min_size=1, max_size=3))
def test_what_arrives_in_some_sharding_arrives_in_no_other(suggested: Dims, wants: list[Dims]) -> None:
    """It comes as each user wants it; of these the one from which least moves to what is suggested."""
    found = chosen(suggested, wants, False, range(1))
    assert found in wants
    assert moved(found, suggested) == min(moved(w, suggested) for w in wants)
    assert chosen(suggested, [], False, range(1)) == suggested
