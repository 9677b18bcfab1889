"""Tests where stages are cut, the work that checkpoints compute again, and the figures of a loss per operation."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.searched import LAYERS, WIDTH, batch, init, loss

from pathways.compiler.search.cuts import CutCache, layers_of
from pathways.compiler.search.profile import Profile, Profiles
from pathways.compiler.search.subject import SearchedLoss
from pathways.dialect.choice import SplitChoice

WEIGHTS = [jax.ShapeDtypeStruct((8, 8), np.float32)] * 6
PRODUCT = 2 * 4 * 8 * 8
"""Flops of one product of four rows."""


def chain(weights: Any, rows: Any) -> Any:
    """Six equal layers of one product each."""
    for w in weights:
        rows = rows @ w
    return rows.sum()


def profile(function: Callable[..., Any], params: Any, rows: int = 4) -> Profile:
    data = jax.ShapeDtypeStruct((rows, 8), np.float32)
    return Profiles(SearchedLoss("f", function, (params, data)), [rows], 4).at(rows)


@pytest.fixture(scope="module")
def layers() -> Profile:
    return Profiles(SearchedLoss("f", loss, (init(), batch())), [16], 4).at(16)


@pytest.fixture(scope="module")
def products() -> Profile:
    return profile(chain, WEIGHTS)


def test_stages_without_limits_have_equal_work(products: Profile) -> None:
    cache = CutCache()
    for stages in (1, 2, 3, 6):
        places = cache.balanced(products, stages)
        assert len(places) == stages + 1 and (places[0], places[-1]) == (0, len(products.spine))
        work = [products.spine.flops[b] - products.spine.flops[a] for a, b in pairwise(places)]
        assert work == pytest.approx([6 * PRODUCT / stages] * stages, rel=0.1)
        assert cache.balanced(products, stages) == places  # from the cache


def test_losses_of_other_operations_have_other_cuts(products: Profile) -> None:
    cache = CutCache()
    other = profile(lambda weights, rows: chain([*weights, *weights], rows), WEIGHTS)
    assert cache.balanced(products, 2) == CutCache().balanced(products, 2)
    assert cache.balanced(other, 2) == CutCache().balanced(other, 2) != cache.balanced(products, 2)


def needed(found: Profile, places: tuple[int, ...], flying: tuple[int, ...], data: int, states: float) -> list[float]:
    """Returns the bytes a device of each stage: parameters, and what it keeps and takes of each microbatch."""
    spine = found.spine
    pairs = list(pairwise(places))
    kept = [spine.kept[b] - spine.kept[a] + spine.crossing[a] for a, b in pairs]
    parameters = [spine.parameters[b] - spine.parameters[a] for a, b in pairs]
    return [float(p * states + k * n / data) for p, k, n in zip(parameters, kept, flying, strict=True)]


@pytest.mark.parametrize(("data", "states"), [(1, 4.0), (2, 4.0), (1, 2.0)])
def test_a_cut_fits_a_small_slice_as_long_as_any_cut_does(products: Profile, data: int, states: float) -> None:
    """The first slice has less memory, and keeps more microbatches in flight, so it gets fewer layers."""
    choice = SplitChoice(2, 1, data, microbatches=4, schedule="1f1b")
    balanced = CutCache().balanced(products, 2)
    flying = (2, 1)
    even = needed(products, balanced, flying, data, states)[0]
    cuts = [(0, p, balanced[-1]) for p in range(1, balanced[-1])]
    least = min(needed(products, cut, flying, data, states)[0] for cut in cuts)
    for limit in (even, even - 1, even / 2, least):
        found = CutCache().fitting(products, choice, [limit, None], states)
        assert found is not None and needed(products, found, flying, data, states)[0] <= limit
        assert (found == balanced) == (limit >= even)
    assert CutCache().fitting(products, choice, [least - 1, None], states) is None
    assert CutCache().fitting(products, choice, [None, 1.0], states) is None


def test_stages_with_enough_memory_have_equal_work_however_many_bytes_cross() -> None:
    """Three operations on 512 numbers, then one on 32. To cut after the second one is the best for the work alone."""

    def wide(weights: Any, rows: Any) -> Any:
        return (rows[:, :, None] * weights[0] * weights[1]).sum(-1).sum()

    found = profile(wide, [jax.ShapeDtypeStruct((16,), np.float32)] * 2)
    assert list(np.diff(found.spine.flops)) == [512, 512, 512, 32] and found.spine.crossing[2] == 2048
    choice = SplitChoice(2, microbatches=4, schedule="1f1b")
    assert CutCache().balanced(found, 2) == CutCache().fitting(found, choice, [None, None], 4.0) == (0, 2, 4)


def test_chunks_share_the_memory_of_their_slice(products: Profile) -> None:
    choice = SplitChoice(2, 2, microbatches=2, schedule="interleaved")
    free = CutCache().fitting(products, choice, [None, None], 4.0)
    assert free is not None and len(free) == 5
    flying = (2, 2, 2, 1)
    most = max(needed(products, free, flying, 1, 4.0))
    for limits, fits in (([2 * most] * 2, True), ([most] * 2, False)):
        found = CutCache().fitting(products, choice, limits, 4.0)
        assert (found == free) is fits


def test_cuts_under_limits_are_found_once_for_each_use(products: Profile) -> None:
    cache = CutCache()
    choice = SplitChoice(2, microbatches=4, schedule="1f1b")
    assert cache.fitting(products, choice, [None, 1.0], 4.0) is None
    assert cache.fitting(products, choice, [None, 1.0], 4.0) is None
    other = SplitChoice(2, microbatches=4, schedule="gpipe")  # more in flight
    assert cache.fitting(products, other, [None, None], 4.0) == CutCache().balanced(products, 2)


def test_layers_are_counted_where_every_cut_is_right_before_one(layers: Profile) -> None:
    spine = layers.spine
    each = next(i for i, o in enumerate(spine.operations) if "layer_1" in o.scope)
    starts = [each * k for k in range(LAYERS)]
    end = len(spine)
    assert layers_of(spine, (0, end)) == (LAYERS,)
    assert layers_of(spine, (0, starts[1], end)) == (1, 3) and layers_of(spine, (0, starts[3], end)) == (3, 1)
    assert layers_of(spine, (0, *starts[1:], end)) == (1, 1, 1, 1)
    assert layers_of(spine, (0, starts[1] + 1, end)) == ()
    assert layers_of(spine, (0, starts[1], starts[2] + 1, end)) == ()
    assert layers_of(spine, (0, *starts[1:], end - 1, end)) == ()  # more stages than layers
    assert layers_of(spine, (starts[1], starts[2], end)) == ()  # a layer before the first stage


def test_a_loss_without_layers_has_none() -> None:
    assert layers_of(profile(lambda w, x: (x @ w[0]).sum(), WEIGHTS).spine, (0, 1, 2)) == ()


def test_a_stage_without_layers_has_no_count() -> None:
    """What comes before the first layer is no layer."""

    def embedded(params: Any, rows: Any) -> Any:
        return loss(params, jnp.tanh(rows @ params[0]["up"] @ params[0]["down"]))

    spine = Profiles(SearchedLoss("f", embedded, (init(), batch())), [16], 4).at(16).spine
    first = next(i for i, o in enumerate(spine.operations) if "layer_0" in o.scope)
    second = next(i for i, o in enumerate(spine.operations) if "layer_1" in o.scope)
    assert first > 0 and layers_of(spine, (0, first, len(spine))) == ()
    assert layers_of(spine, (0, second, len(spine))) == (1, LAYERS - 1)


def again(function: Callable[..., Any], params: Any = WEIGHTS) -> float:
    """Returns the flops that checkpoints compute again."""
    return float(profile(function, params).again[-1])


def layer(x: Any, w: Any) -> Any:
    return x @ w


def test_a_checkpoint_computes_its_products_again() -> None:
    twice = jax.checkpoint(layer)
    assert again(chain) == 0
    assert again(lambda ws, x: twice(twice(x, ws[0]), ws[1]).sum()) == 2 * PRODUCT
    assert again(lambda ws, x: layer(twice(x, ws[0]), ws[1]).sum()) == PRODUCT


def test_a_checkpoint_with_a_policy_counts_as_keeping_what_is_dear() -> None:
    kept = jax.checkpoint(layer, policy=jax.checkpoint_policies.dots_saveable)  # pyright: ignore
    assert again(lambda ws, x: kept(x, ws[0]).sum()) == 0


def test_a_checkpoint_inside_of_a_loop_counts_once_for_each_turn() -> None:
    stacked = jax.ShapeDtypeStruct((6, 8, 8), np.float32)

    def looped(body: Callable[[Any, Any], Any]) -> Callable[..., Any]:
        return lambda ws, x: jax.lax.scan(lambda c, w: (body(c, w), None), x, ws)[0].sum()

    assert again(looped(jax.checkpoint(layer)), stacked) == 6 * PRODUCT
    assert again(looped(layer), stacked) == 0
    assert again(looped(jax.jit(jax.checkpoint(layer))), stacked) == 6 * PRODUCT

    def branched(x: Any, w: Any) -> Any:
        return jax.lax.cond(x.sum() > 0, jax.checkpoint(layer), layer, x, w)

    assert again(looped(branched), stacked) == 0
    policy = jax.checkpoint_policies.everything_saveable  # pyright: ignore
    assert again(looped(jax.checkpoint(layer, policy=policy)), stacked) == 0


def test_the_stacked_results_of_a_loop_are_computed_once() -> None:
    stacked = jax.ShapeDtypeStruct((6, 8, 8), np.float32)

    def looped(ws: Any, x: Any) -> Any:
        def turn(c: Any, w: Any) -> Any:
            made = jax.checkpoint(layer)(c, w)
            return made, (made * 2.0, made + 1.0)

        last, (first, second) = jax.lax.scan(turn, x, ws)
        return last.sum() + first.sum() + second.sum()

    found = profile(looped, stacked)
    assert found.again[-1] == 6 * PRODUCT and found.again[0] == found.reduced[0] == 0


def test_a_loop_within_a_turn_of_a_loop_counts_as_often_as_it_runs() -> None:
    stacked = jax.ShapeDtypeStruct((6, 3, 8, 8), np.float32)

    def inner(x: Any, ws: Any) -> Any:
        return jax.lax.scan(lambda c, w: (jax.checkpoint(layer)(c, w), None), x, ws)[0]

    def outer(ws: Any, x: Any) -> Any:
        return jax.lax.scan(lambda c, w: (inner(c, w), None), x, ws)[0].sum()

    assert again(outer, stacked) == 6 * 3 * PRODUCT


def test_reduced_bytes_of_an_opened_loop_count_once_for_each_turn() -> None:
    """Each turn of the loop has the part of its bytes; the sum over all is that of the loop."""
    shapes = {"up": (6, 8, 32), "down": (6, 32, 8)}
    params = {name: jax.ShapeDtypeStruct(s, np.float32) for name, s in shapes.items()}

    def stacked(params: Any, rows: Any) -> Any:
        return jax.lax.scan(lambda x, p: (jnp.tanh(x @ p["up"]) @ p["down"], None), rows, params)[0].mean()

    rows = jax.ShapeDtypeStruct((4, 8), np.float32)
    found = Profiles(SearchedLoss("f", stacked, (params, rows)), [4], 4)
    assert found.splits and found.split(2).dims == {0: 1, 1: 2}  # "down" is argument 0
    whole, half = found.at(4), found.at(4, 2)
    assert whole.reduced[-1] == 0 and half.reduced[-1] == 6 * 4 * 8 * 4
    assert half.spine.parameters[-1] == whole.spine.parameters[-1] / 2 == 6 * 8 * 32 * 4
    assert found.at(4).spine.parameters[-1] == whole.spine.parameters[-1]  # as before the split


def test_split_values_count_as_their_part_for_each_number_of_devices() -> None:
    """Of each layer the tanh is kept, and split; the rows that come in are whole. The order of asking is the same."""
    shapes = [{"up": (8, 32), "down": (32, 8)}] * 3
    params = [{k: jax.ShapeDtypeStruct(v, np.float32) for k, v in one.items()} for one in shapes]

    def layers(params: Any, rows: Any) -> Any:
        for p in params:
            rows = jnp.tanh(rows @ p["up"]) @ p["down"]
        return rows.sum()

    rows = jax.ShapeDtypeStruct((4, 8), np.float32)
    found = Profiles(SearchedLoss("f", layers, (params, rows)), [4], 4)
    tanh, weights = 3 * 4 * 32 * 4, 3 * 2 * 8 * 32 * 4
    kept = {model: float(found.at(4, model).spine.kept[-1]) for model in (2, 4, 1)}
    assert kept[1] - kept[2] == tanh / 2 and kept[1] - kept[4] == tanh * 3 / 4
    assert [found.at(4, m).spine.parameters[-1] for m in (2, 4, 1)] == [weights / 2, weights / 4, weights]


def test_a_figure_between_two_traces_lies_on_the_line_through_them() -> None:
    found = Profiles(SearchedLoss("f", loss, (init(), batch())), [4, 8, 16], 4)
    low, middle, high = (found.at(n) for n in (4, 8, 16))
    assert found.traces == 3
    for name in ("flops", "kept", "crossing"):
        a, b, c = (getattr(p.spine, name)[1:-1] for p in (low, middle, high))
        np.testing.assert_allclose(b, a + (c - a) / 3)
    np.testing.assert_array_equal(middle.spine.parameters, low.spine.parameters)
    assert found.at(8) is middle and low.is_like(high) and not low.is_close(high)
    assert low.spine.flops[-1] > LAYERS * 2 * 2 * 4 * WIDTH * 4 * WIDTH  # two products a layer


def test_two_row_counts_need_two_traces_and_none_one() -> None:
    for rows, at, traces in (([4, 8], (4, 8), 2), ([8], (8,), 1), ([], (1,), 1)):
        found = Profiles(SearchedLoss("f", chain, (WEIGHTS, jax.ShapeDtypeStruct((8, 8), np.float32))), rows, 4)
        flops = [float(found.at(n).spine.flops[-1]) for n in at]
        assert found.linear and found.traces == traces
        assert flops == pytest.approx([6 * 2 * n * 64 for n in at], rel=0.05)


def test_a_loss_that_changes_its_operations_with_its_rows_is_not_linear() -> None:
    def other(weights: Any, rows: Any) -> Any:
        return chain(weights * (2 if rows.shape[0] == 4 else 1), rows)

    subject = SearchedLoss("f", other, (WEIGHTS, jax.ShapeDtypeStruct((8, 8), np.float32)))
    for rows in ([2, 4, 8], [4, 6, 8], [2, 3, 4]):
        assert not Profiles(subject, rows, 4).linear
    assert Profiles(subject, [5, 6, 8], 4).linear
