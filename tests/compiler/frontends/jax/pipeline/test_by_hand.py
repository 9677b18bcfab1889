"""Tests cuts that the user names: modules, lines of the source, counts of layers."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from pathways.compiler.frontends.jax.pipeline.by_hand import cut_by_hand, layer_starts
from pathways.compiler.frontends.jax.pipeline.open import open_loss
from pathways.compiler.frontends.jax.pipeline.spine import Spine, spine_of
from pathways.dialect.diagnostics import PathwaysError

_jax: Any = jax
_lax: Any = lax
W = jax.ShapeDtypeStruct((8, 8), jnp.float32)


def spine(loss: Any, *args: Any) -> Spine:
    return spine_of(open_loss(_jax.make_jaxpr(loss)(*args), frozenset({1}), 8))


def named(*scopes: str) -> Spine:
    """Returns a spine with one product in each scope."""

    def loss(w: Any, x: Any) -> Any:
        for scope in scopes:
            if scope:
                with jax.named_scope(scope):
                    x = _lax.dot(x, w)
            else:
                x = _lax.dot(x, w)
        return x

    return spine(loss, W, W)


def refused(one: Spine, cuts: Any, stages: int) -> str:
    with pytest.raises(PathwaysError) as caught:
        cut_by_hand(one, cuts, stages)
    (error,) = caught.value.diagnostics
    assert error.code == "PWC0112"
    return str(caught.value)


NET = named("in", "net/a_0", "net/a_0/inner", "net/a_1", "net/a_10", "out")


@pytest.mark.parametrize(
    ("cuts", "places"),
    [
        (["a_0"], (0, 1, 6)),
        (["inner"], (0, 2, 6)),
        (["a_0/inner"], (0, 2, 6)),
        (["a_1", "out"], (0, 3, 5, 6)),
        (["net/a_10"], (0, 4, 6)),
    ],
)
def test_a_stage_begins_at_the_first_operation_of_its_module(cuts: list[str], places: tuple[int, ...]) -> None:
    found = cut_by_hand(NET, cuts, len(cuts) + 1)
    assert (found.places, found.how, found.runner_up) == (places, "as cuts= states", ())


def test_a_stage_begins_at_a_line_of_a_file() -> None:
    def loss(w: Any, x: Any) -> Any:
        x = _lax.dot(x, w)
        x = _lax.dot(x, w)
        return _lax.dot(x, w)

    one = spine(loss, W, W)
    first = loss.__code__.co_firstlineno
    file = Path(__file__)
    second = first + 2
    for name in (f"{second}", f"{file.name}:{second}", f"pipeline/{file.name}:{second}", f"{file}:{second}"):
        assert cut_by_hand(one, [name], 2).places == (0, 1, 3)
    assert cut_by_hand(one, [str(second), str(second + 1)], 3).places == (0, 1, 2, 3)
    for name in (f"hand.py:{second}", f"other.py:{second}", str(first + 40)):
        assert f"cuts= names {name!r}, which contains no operation of the loss" in refused(one, [name], 2)
    assert "no named modules" in refused(one, ["block"], 2)


def test_a_module_that_is_not_there_is_answered_by_those_that_are() -> None:
    assert "modules in, net, a_0, inner, a_1, a_10, out" in refused(NET, ["a"], 2)
    many = named(*(f"m{k}" for k in range(42)))
    text = refused(many, ["a"], 2)
    assert "m39" in text and "m40" not in text


def test_names_must_be_one_fewer_than_stages() -> None:
    assert "2 cuts" in refused(NET, ["a_0", "a_1"], 2) and "1 cuts, at the start" in refused(NET, ["a_0", "a_1"], 2)


@pytest.mark.parametrize(
    ("cuts", "places"),
    [(["in"], "[0]"), (["a_1", "a_0"], "[3, 1]"), (["a_1", "a_1"], "[3, 3]"), (["in", "out"], "[0, 5]")],
)
def test_stages_must_begin_one_behind_another(cuts: list[str], places: str) -> None:
    assert f"cuts before operations {places}" in refused(NET, cuts, len(cuts) + 1)


BLOCKS = named("in", *(f"net/block_{k // 2}" for k in range(10)), "net/head_0", "net/head_1")


def test_counts_of_layers_are_cut_behind_so_many() -> None:
    assert layer_starts(BLOCKS) == [1, 3, 5, 7, 9]
    assert cut_by_hand(BLOCKS, [2, 3], 2).places == (0, 5, 13)
    assert cut_by_hand(BLOCKS, [1, 3, 1], 3).places == (0, 3, 9, 13)
    assert cut_by_hand(BLOCKS, [5], 1).places == (0, 13)


@pytest.mark.parametrize(
    ("counts", "stages", "message"),
    [
        ([2, 3], 3, "2 counts of layers"),
        ([2, 2], 2, "2 + 2 = 4 layers"),
        ([3, 3], 2, "counts from 1 with the sum 5, the number of layers"),
        ([5, 0], 2, "5 + 0 = 5 layers"),
        ([6, -1], 2, "6 + -1 = 5 layers"),
    ],
)
def test_counts_must_add_up_to_all_layers(counts: list[int], stages: int, message: str) -> None:
    assert message in refused(BLOCKS, counts, stages)


def test_layers_are_the_numbered_modules_of_which_there_are_the_most() -> None:
    assert layer_starts(named("a_0", "a_1", "b_0", "b_1", "b_2")) == [2, 3, 4]
    assert layer_starts(named("x/y", "", "z")) == []
    assert layer_starts(named("a_1", "a_0", "a_1")) == [0, 1], "the first operation of each"


def test_layers_are_the_turns_of_the_longest_loop() -> None:
    def loss(w: Any, x: Any) -> Any:
        for length in (2, 4, 3):
            x = _lax.scan(lambda x, _: (_lax.dot(x, w), None), x, None, length=length)[0]
        return x

    assert layer_starts(spine(loss, W, W)) == [2, 3, 4, 5]
