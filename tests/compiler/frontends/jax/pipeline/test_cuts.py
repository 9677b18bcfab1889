"""Tests where losses are cut: between layers, evenly, within memory, or where the user says."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P
from support.pipelines import slices

import pathways as pw
from pathways.compiler.frontends.jax.pipeline.planning import Target, compiling
from pathways.compiler.frontends.jax.pipeline.table import StageTable
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.topology import parse_topology

WIDTH, ROWS = 64, 32
X = jax.ShapeDtypeStruct((ROWS, WIDTH), jnp.float32)
W = jax.ShapeDtypeStruct((WIDTH, WIDTH), jnp.float32)


def layer(w: Any, x: Any) -> Any:
    with jax.named_scope("layer"):
        h = x - x.mean(-1, keepdims=True)
        return x + jnp.tanh(h @ w[0]) @ w[1]


def stacked(params: Any, x: Any) -> Any:
    return lax.scan(lambda x, w: (layer(w, x), None), x, params)[0].mean()


def unrolled(params: Any, x: Any) -> Any:
    for i, w in enumerate(params):
        with jax.named_scope(f"block_{i}"):
            x = layer(w, x)
    return x.mean()


LAYERS = [(W, W)] * 24
STACK = (jax.ShapeDtypeStruct((24, WIDTH, WIDTH), jnp.float32),) * 2


@pytest.mark.parametrize("stages", [2, 4, 8])
@pytest.mark.parametrize(("loss", "params"), [(unrolled, LAYERS), (stacked, STACK)])
def test_layers_are_divided_evenly_among_stages(loss: Any, params: Any, stages: int) -> None:
    table = pw.pipeline(loss, slices(stages)).stages(params, X)
    assert [r.layers for r in table.rows] == [24 // stages] * stages
    mean = sum(r.flops for r in table.rows) / stages
    assert max(r.flops for r in table.rows) < 1.1 * mean
    activation = ROWS * WIDTH * 4
    assert {r.bytes_out for r in table.rows[:-1]} == {r.bytes_in for r in table.rows[1:]} == {activation}
    assert table.rows[0].bytes_in == table.rows[-1].bytes_out == 0
    assert sum(r.share for r in table.rows) == pytest.approx(1.0)
    assert table.distinct <= 3


def test_a_cast_of_all_parameters_is_divided_among_the_stages() -> None:
    def loss(params: Any, x: Any) -> Any:
        return unrolled(jax.tree.map(lambda w: w.astype(jnp.bfloat16), params), x.astype(jnp.bfloat16))

    table = pw.pipeline(loss, slices(4)).stages(LAYERS, X)
    assert [r.layers for r in table.rows] == [6, 6, 6, 6]
    assert max(r.parameters for r in table.rows) == 6 * 2 * WIDTH * WIDTH * 4


def test_larger_slices_get_more_layers() -> None:
    made = pw.make_virtual_device_set()
    table = pw.pipeline(unrolled, [made.add_slice(devices=n) for n in (1, 3, 2)]).stages(LAYERS, X)
    assert [r.layers for r in table.rows] == [4, 12, 8]


def test_repeated_slices_get_an_equal_share_for_each_of_their_stages() -> None:
    one, other = slices(2)
    table = pw.pipeline(unrolled, [one, other, one, other]).stages(LAYERS, X)
    assert [r.layers for r in table.rows] == [6, 6, 6, 6]
    assert [r.slice for r in table.rows] == [one.name, other.name] * 2


def cut_for(topology: str, schedule: str, loss: Any, params: Any, stages: int = 4, **options: Any) -> StageTable:
    with compiling(Target.of(parse_topology(topology), schedule)):
        return pw.pipeline(loss, slices(stages), **options).stages(params, X)


def heavy_end(params: Any, x: Any) -> Any:
    """Applies layers of equal work; the last four have large weights that add little work."""
    for i, w in enumerate(params):
        x = layer(w[:2], x) + (w[2].sum(0)[:WIDTH] if i >= 8 else 0.0)
    return x.mean()


def test_an_uneven_cut_is_chosen_if_the_even_one_exceeds_the_memory() -> None:
    large = jax.ShapeDtypeStruct((512, WIDTH), jnp.float32)
    params = [(W, W, large) for _ in range(12)]
    free = cut_for("islands=4,devices=1", "1f1b", heavy_end, params)
    fullest = max(r.memory for r in free.rows)
    tight = cut_for(f"islands=4,devices=1,memory={round(fullest * 0.85)}", "1f1b", heavy_end, params)
    assert max(r.memory for r in tight.rows) <= fullest * 0.85
    assert [r.flops for r in tight.rows] != [r.flops for r in free.rows]


def test_the_error_names_a_stage_if_no_cut_fits_the_memory() -> None:
    with pytest.raises(PathwaysError, match=r"PWC0113.*\n(.*\n)*.*stage \d .*parameters") as raised:
        cut_for("islands=4,devices=1,memory=100KiB", "1f1b", unrolled, LAYERS)
    assert raised.value.diagnostics[0].where is not None


def test_sharded_parameters_need_less_memory() -> None:
    made = pw.make_virtual_device_set()
    meshes = [made.add_slice(devices=4).mesh(("data", "model"), (2, 2)) for _ in range(4)]
    whole = pw.pipeline(unrolled, meshes).stages(LAYERS, X)
    split = pw.pipeline(unrolled, meshes, param_specs=lambda path, leaf: P(None, "model")).stages(LAYERS, X)
    assert [r.parameters for r in split.rows] == [r.parameters // 2 for r in whole.rows]


@pytest.mark.parametrize(
    "cuts",
    [["block_5", "block_12"], [5, 7, 12]],
)
def test_losses_are_cut_where_the_user_says(cuts: Any) -> None:
    table = pw.pipeline(unrolled, slices(3), cuts=cuts).stages(LAYERS, X)
    assert [r.layers for r in table.rows] == [5, 7, 12]
    assert pw.pipeline(stacked, slices(3), cuts=[5, 7, 12]).stages(STACK, X).rows[1].layers == 7


@pytest.mark.parametrize(
    ("cuts", "message"),
    [
        (["block_5"], "2 cuts, at the start of each stage but the first"),
        (["block_5", "blok_6"], "modules block_0"),
        (["block_9", "block_2"], "increasing numbers from 1"),
        ([5, 5], "3 counts, one per stage"),
        ([5, 5, 5], "counts from 1 with the sum 24, the number of layers"),
    ],
)
def test_invalid_cuts_are_refused(cuts: Any, message: str) -> None:
    with pytest.raises(PathwaysError) as raised:
        pw.pipeline(unrolled, slices(3), cuts=cuts).stages(LAYERS, X)
    assert message in str(raised.value)


@jax.custom_vjp
def opaque_loss(params: Any, x: Any) -> Any:
    return unrolled(params, x)


opaque_loss.defvjp(lambda params, x: (unrolled(params, x), (params, x)), lambda kept, _: kept)


def test_a_loss_whose_work_is_one_operation_is_refused() -> None:
    with pytest.raises(PathwaysError) as raised:
        pw.pipeline(opaque_loss, slices(4)).stages(LAYERS, X)
    (error,) = raised.value.diagnostics
    assert error.code == "PWC0111"
    assert "custom_vjp_call with 100%" in str(raised.value)


def test_more_slices_than_operations_are_refused() -> None:
    with pytest.raises(PathwaysError, match="PWC0111"):
        pw.pipeline(lambda w, x: (x @ w).mean(), slices(8)).stages(W, X)


def test_an_empty_list_of_slices_and_other_objects_are_refused() -> None:
    with pytest.raises(PathwaysError, match=r"PWC0112.*\n(.*\n)*.*one per stage"):
        pw.pipeline(unrolled, [])
    with pytest.raises(PathwaysError, match="PWC0112"):
        pw.pipeline(unrolled, [jax.devices()[0]])


def test_the_summary_of_a_program_shows_its_stages() -> None:
    loss = pw.pipeline(unrolled, slices(2), microbatches=2)
    lowered = pw.program(jax.value_and_grad(loss)).lower([(W, W)] * 4, X)
    (table,) = lowered.pipelines
    assert [r.layers for r in table.rows] == [2, 2]
    assert str(table) in lowered.compile().summary()


def test_a_lowered_program_is_cut_for_the_memory_of_its_topology() -> None:
    loss = pw.pipeline(unrolled, slices(2), microbatches=2)
    lowered = pw.program(jax.value_and_grad(loss)).lower([(W, W)] * 4, X)
    with pytest.raises(PathwaysError, match="PWC0113"):
        lowered.compile("islands=2,devices=1,memory=64KiB")
