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
