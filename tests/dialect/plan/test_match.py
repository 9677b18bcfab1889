"""A plan gets the smallest available islands that suit it, each at most once."""

import pytest

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.plan.match import check_fit
from pathways.dialect.topology import Island, Topology


def found(needed: tuple[Island, ...], offered: tuple[Island, ...]) -> dict[str, str]:
    return check_fit("step", Topology(needed), Topology(offered), [i.name for i in needed])


def test_the_smallest_island_that_suits_is_taken() -> None:
    """Larger islands stay free for larger needs. The largest need is matched first."""
    offered = Island("large", 8), Island("small", 2), Island("middle", 4)
    assert found((Island("a", 2),), offered) == {"a": "small"}
    assert found((Island("a", 2), Island("b", 2), Island("c", 3)), offered) == {
        "a": "small",
        "b": "large",
        "c": "middle",
    }
    assert found((Island("a", 3), Island("b", 8), Island("c", 1)), offered) == {
        "a": "middle",
        "b": "large",
        "c": "small",
    }


@pytest.mark.parametrize(
    ("have", "need", "fits"), [(100, 100, True), (99, 100, False), (None, 100, True), (1, None, True)]
)
def test_an_island_needs_at_least_the_required_memory(have: int | None, need: int | None, fits: bool) -> None:
    needed, offered = (Island("a", 2, memory=need),), (Island("x", 2, memory=have),)
    if fits:
        assert found(needed, offered) == {"a": "x"}
    else:
        with pytest.raises(PathwaysError, match="PWC0607"):
            found(needed, offered)


@pytest.mark.parametrize(
    ("needed", "offered", "fits"),
    [
        (Island("a", 2, kind="big"), Island("x", 2, kind="big"), True),
        (Island("a", 2, kind="any"), Island("x", 2, kind="big"), True),
        (Island("a", 2, kind="big"), Island("x", 2, kind="any"), True),
        (Island("a", 2, kind="big"), Island("x", 2, kind="small"), False),
        (Island("a", 2, hosts=2), Island("x", 4), True),
        (Island("a", 5), Island("x", 2, hosts=2), False),
    ],
)
def test_kind_and_size_of_an_island_must_suit(needed: Island, offered: Island, fits: bool) -> None:
    if fits:
        assert found((needed,), (offered,)) == {"a": "x"}
    else:
        with pytest.raises(PathwaysError, match="PWC0607"):
            found((needed,), (offered,))


@pytest.mark.parametrize(
    ("needed", "offered", "advice"),
    [
        ((Island("a", 8), Island("b", 2)), (Island("x", 2),), "no island is free for a;"),
        ((Island("a", 8),), (Island("x", 2), Island("y", 5), Island("z", 1)), "y has 3 devices too few for a of"),
        ((Island("a", 4, kind="big"),), (Island("x", 4, kind="small"),), "x has enough devices for a, but another"),
        ((Island("a", 3, memory=9),), (Island("x", 4, memory=8),), "x has enough devices for a, but another"),
    ],
)
def test_what_is_missing_on_the_nearest_island_is_named(
    needed: tuple[Island, ...], offered: tuple[Island, ...], advice: str
) -> None:
    with pytest.raises(PathwaysError, match="PWC0607") as caught:
        found(needed, offered)
    assert advice in str(caught.value) and "pwc compile model.py --topology" in str(caught.value)


def test_an_island_that_does_not_suit_is_shown_with_its_memory() -> None:
    with pytest.raises(PathwaysError) as caught:
        found(
            (Island("a", 2, hosts=2, memory=16 * 10**9), Island("b", 9)), (Island("x", 3, kind="cpu"), Island("y", 1))
        )
    message = str(caught.value)
    assert "b: 9 x any + a: 4 x any (16 GB)" in message and "x: 3 x cpu + y: 1 x any" in message
