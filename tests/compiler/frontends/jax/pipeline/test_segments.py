"""Tests what is cut off the end stages, so that the rest of them equals the middle stages."""

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from pathways.compiler.frontends.jax.pipeline.graph import Operation
from pathways.compiler.frontends.jax.pipeline.open import open_loss
from pathways.compiler.frontends.jax.pipeline.segments import Segment, segments_of
from pathways.compiler.frontends.jax.pipeline.spine import Spine, spine_of

_jax: Any = jax
_lax: Any = lax
W = jax.ShapeDtypeStruct((8, 8), jnp.float32)
LENGTH = 64
"""Operations of a layer: as few as are worth a computation of their own."""


def layer(x: Any, w: Any, length: int) -> Any:
    x = _lax.dot(x, w)
    for _ in range(length - 1):
        x = _lax.tanh(x)
    return x


def shown(segments: list[Segment]) -> list[tuple[int, int, int, str]]:
    return [(s.stage, s.begin, s.end, s.name) for s in segments]


def plain(*places: int) -> list[tuple[int, int, int, str]]:
    return [(k, a, b, f"stage{k}") for k, (a, b) in enumerate(pairwise(places))]


def of(tokens: list[int]) -> Spine:
    """Returns a spine with these tokens; its operations are without loops."""
    none: Any = None
    return Spine([Operation("work", [], [], list)] * len(tokens), {}, {}, none, none, none, none, tokens)


LAYER = list(range(LENGTH))
IN, OUT = [100, 101, 102], [200, 201]


def test_what_is_before_and_behind_the_layers_of_the_end_stages_is_cut_off() -> None:
    one = of([*IN, *LAYER * 3, *OUT])
    assert shown(segments_of(one, (0, 67, 131, 197))) == [
        (0, 0, 3, "before_layers"),
        (0, 3, 67, "stage0"),
        (1, 67, 131, "stage1"),
        (2, 131, 195, "stage2"),
        (2, 195, 197, "behind_layers"),
    ]


def test_two_stages_share_as_many_operations_as_both_have_around_the_cut() -> None:
    one = of([*IN, *LAYER * 2, *OUT])
    assert shown(segments_of(one, (0, 67, 133))) == [
        (0, 0, 3, "before_layers"),
        (0, 3, 67, "stage0"),
        (1, 67, 131, "stage1"),
        (1, 131, 133, "behind_layers"),
    ]
    two = of([*IN, *LAYER * 4, *OUT])
    assert shown(segments_of(two, (0, 131, 261)))[1:3] == [(0, 3, 131, "stage0"), (1, 131, 259, "stage1")]


@pytest.mark.parametrize(
    ("tokens", "places", "segments"),
    [
        ([*LAYER * 3, *OUT], (0, 64, 128, 194), ["stage0", "stage1", "stage2", "behind_layers"]),
        ([*IN, *LAYER * 3], (0, 67, 131, 195), ["before_layers", "stage0", "stage1", "stage2"]),
        ([*LAYER * 3], (0, 64, 128, 192), ["stage0", "stage1", "stage2"]),
        ([*LAYER * 2], (0, 64, 128), ["stage0", "stage1"]),
        ([*IN, *LAYER * 3, *OUT], (0, 66, 130, 197), ["stage0", "stage1", "stage2", "behind_layers"]),
        ([*IN, *LAYER, *IN, *LAYER, *OUT], (0, 67, 70, 136), ["stage0", "stage1", "stage2"]),
    ],
)
def test_an_end_stage_is_whole_if_nothing_or_something_else_is_there(
    tokens: list[int], places: tuple[int, ...], segments: list[str]
) -> None:
    found = segments_of(of(tokens), places)
    assert [s.name for s in found] == segments
    assert [s.begin for s in found[1:]] == [s.end for s in found[:-1]]
    assert (found[0].begin, found[-1].end) == (0, len(tokens))


def test_only_the_end_that_equals_the_middle_is_cut_off() -> None:
    different = list(range(300, 300 + LENGTH))
    head = of([*IN, *LAYER * 2, *different, *OUT])
    assert [s.name for s in segments_of(head, (0, 67, 131, 197))] == ["before_layers", "stage0", "stage1", "stage2"]
    tail = of([*IN, *different, *LAYER * 2, *OUT])
    assert [s.name for s in segments_of(tail, (0, 67, 131, 197))] == ["stage0", "stage1", "stage2", "behind_layers"]


def test_stages_are_whole_if_the_middle_ones_differ() -> None:
    one = of([*IN, *LAYER * 2, *LAYER[1:], *LAYER, *OUT])
    places = (0, 67, 131, 194, 260)
    assert shown(segments_of(one, places)) == plain(*places)


def test_stages_are_whole_if_the_middle_ones_are_short() -> None:
    for length, count in ((LENGTH, 5), (LENGTH - 1, 3)):
        tokens = [*IN, *list(range(length)) * 3, *OUT]
        places = (0, 3 + length, 3 + 2 * length, len(tokens))
        assert len(segments_of(of(tokens), places)) == count


def test_a_single_stage_is_whole() -> None:
    assert shown(segments_of(of([*IN, *LAYER]), (0, 67))) == plain(0, 67)


def looping(inside: int) -> Spine:
    """Returns a spine of one operation and six turns of a loop of `inside` operations."""

    def loss(w: Any, x: Any) -> Any:
        return _lax.scan(lambda x, _: (layer(x, w, inside), None), _lax.dot(x, w), None, length=6)[0]

    one = spine_of(open_loss(_jax.make_jaxpr(loss)(W, W), frozenset({1}), 8))
    assert len(one) == 7
    return one


@pytest.mark.parametrize(("inside", "count"), [(LENGTH - 2, 4), (LENGTH - 3, 3)])
def test_the_operations_inside_of_a_loop_count_once(inside: int, count: int) -> None:
    """A middle stage is two turns of the loop."""
    assert len(segments_of(looping(inside), (0, 3, 5, 7))) == count


def test_two_stages_with_nothing_in_common_around_the_cut_are_whole() -> None:
    assert shown(segments_of(looping(LENGTH), (0, 1, 7))) == plain(0, 1, 7)
