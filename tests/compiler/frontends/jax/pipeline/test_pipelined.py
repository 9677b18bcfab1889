"""Tests calls of pipelined losses: their arguments, slices and choices, and the errors of those that do not fit."""

import inspect
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P
from support.pipelines import slices

import pathways as pw
from pathways.compiler.frontends.jax.pipeline.chosen import choosing, meshes_of_choice, noting_calls, param_specs_of
from pathways.compiler.frontends.jax.pipeline.planning import Target, compiling
from pathways.compiler.frontends.jax.pipeline.table import noted
from pathways.dialect.choice import SplitChoice, write_choice
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.topology import parse_topology
from tests.support.unplaced import unplaced

WIDTH, ROWS = 8, 8
W = np.linspace(-1, 1, WIDTH * WIDTH, dtype=np.float32).reshape(WIDTH, WIDTH)
X = np.linspace(0, 1, ROWS * WIDTH, dtype=np.float32).reshape(ROWS, WIDTH)
CHOICE = SplitChoice(stages=2, data=2, model=2, microbatches=4, cuts=(1, 3), param_specs={"w1": ("", "model")})


def loss(params: Any, x: Any) -> Any:
    for number in range(4):
        with jax.named_scope(f"block_{number}"):
            x = jnp.tanh(x @ params[f"w{number}"])
    return x.mean()


PARAMS = {f"w{k}": W / (k + 1) for k in range(4)}


def refused(function: Any, *args: Any, **options: Any) -> PathwaysError:
    with pytest.raises(PathwaysError) as caught:
        function(*args, **options)
    return caught.value


def code(error: PathwaysError) -> str:
    return error.diagnostics[0].code


def test_a_pipelined_loss_has_the_name_and_text_of_the_loss() -> None:
    made = pw.pipeline(loss, slices(2), microbatches=4)
    assert (made.name, made.__name__, repr(made)) == (  # pyright: ignore[reportAttributeAccessIssue]
        "loss",
        "loss",
        "<pw.pipeline of loss: 2 stages, 4 microbatches>",
    )


@pytest.mark.parametrize(
    ("argnums", "count", "positions"),
    [(1, 3, {1}), (-1, 3, {2}), ((0, -1), 2, {0, 1}), ((1, 2), 3, {1, 2}), ((), 2, set())],
)
def test_the_batch_is_counted_from_both_ends(argnums: Any, count: int, positions: set[int]) -> None:
    assert pw.pipeline(loss, slices(1), batch_argnums=argnums).batch_positions(count) == positions


@pytest.mark.parametrize(("argnums", "fits"), [(1, True), (-2, True), (2, False), (-3, False)])
def test_a_batch_that_is_no_positional_argument_is_refused(argnums: int, fits: bool) -> None:
    made = pw.pipeline(lambda x, w: loss(w, x) if argnums == -2 else loss(x, w), slices(2), batch_argnums=argnums)
    args = (X, PARAMS) if argnums == -2 else (PARAMS, X)
    if fits:
        assert len(made.stages(*args).rows) == 2
    else:
        error = refused(made.stages, *args)
        assert code(error) == "PWC0112" and f"positional argument {argnums}, which is in batch_argnums" in str(error)
        assert "2 positional arguments" in str(error)


def test_keywords_are_parameters_and_other_values_are_part_of_the_code() -> None:
    def with_options(params: Any, x: Any, *, scale: Any, power: int, name: str) -> Any:
        assert name == "net" and power == 2
        return loss(params, x) * scale.sum() ** power

    made = unplaced(with_options, 2)
    found = made(PARAMS, X, scale=X, power=2, name="net")
    np.testing.assert_allclose(found, with_options(PARAMS, X, scale=X, power=2, name="net"), rtol=1e-5)
    assert sum(r.parameters for r in made.stages(PARAMS, X, scale=X, power=2, name="net").rows) == 5 * W.nbytes


def test_the_table_of_types_is_that_of_arrays() -> None:
    def struct(array: Any) -> Any:
        return jax.ShapeDtypeStruct(array.shape, array.dtype)

    for microbatches in (1, 4):
        made = pw.pipeline(loss, slices(2), microbatches=microbatches)
        table = made.stages(PARAMS, X)
        assert made.stages(jax.tree.map(struct, PARAMS), struct(X)) == table
        assert table.rows[0].bytes_out == X.nbytes // microbatches
        assert made.stages(jax.tree.map(np.float64, PARAMS), np.float64(X)) == table, "64 bits are 32"


def test_tables_of_a_traced_program_are_noted() -> None:
    made = unplaced(loss, 2)
    token = noted.set([])
    try:
        made(PARAMS, X)
        tables = noted.get()
    finally:
        noted.reset(token)
    assert tables == [made.stages(PARAMS, X)]


def test_a_call_is_refused_outside_of_a_program_by_the_name_of_the_loss() -> None:
    error = refused(pw.pipeline(loss, slices(2)), PARAMS, X)
    assert code(error) == "PWC0112" and "loss has stages" in str(error)


@pytest.mark.parametrize("microbatches", [0, -1, 1.0, "2", None])
def test_microbatches_are_a_whole_number_from_1(microbatches: Any) -> None:
    error = refused(pw.pipeline, loss, slices(1), microbatches=microbatches)
    assert code(error) == "PWC0112" and repr(microbatches) in str(error)


def test_slices_or_a_choice_may_be_given_and_microbatches_with_slices() -> None:
    both = refused(pw.pipeline, loss, slices(2), choice=CHOICE)
    assert (code(both), "slices and a choice" in str(both)) == ("PWC0112", True)
    many = refused(pw.pipeline, loss, choice=CHOICE, microbatches=2)
    assert (code(many), "microbatches=2 and a choice" in str(many)) == ("PWC0112", True)
    for wrong in (3, ["choice.toml"]):
        error = refused(pw.pipeline, loss, choice=wrong)
        assert (code(error), f"a {type(wrong).__name__}" in str(error)) == ("PWC0112", True)
    assert code(refused(pw.pipeline, loss, choice="nowhere.toml")) == "PWC0115"


class Found:
    best = CHOICE


@pytest.mark.parametrize("given", [CHOICE, Found(), str, Path])
def test_a_choice_says_slices_microbatches_cuts_and_specs(given: Any, tmp_path: Path) -> None:
    path = tmp_path / "choice.toml"
    path.write_text(write_choice(CHOICE))
    made = pw.pipeline(loss, choice=given(path) if isinstance(given, type) else given)
    table = made.stages(PARAMS, X)
    assert [r.layers for r in table.rows] == [1, 3] and table.microbatches == 4
    assert made.has_slices and made.options.param_specs == {"w1": P(None, "model")}


def test_what_is_given_beside_a_choice_is_kept() -> None:
    specs = {"w0": P("model")}
    made = pw.pipeline(loss, choice=CHOICE, cuts=["block_2"], param_specs=specs, reduce="sum", has_aux=True)
    assert (made.options.cuts, made.options.param_specs) == (["block_2"], specs)
    assert (made.options.microbatches.reduce, made.options.microbatches.has_aux) == ("sum", True)
    open_choice = pw.pipeline(loss, choice=SplitChoice(stages=2))
    assert (open_choice.options.cuts, open_choice.options.param_specs) == (None, None)


def test_the_meshes_of_a_choice_are_repeated_for_each_chunk() -> None:
    meshes = meshes_of_choice(SplitChoice(stages=2, chunks=3, data=2, model=3))
    assert [dict(m.shape) for m in meshes] == [{"data": 2, "model": 3}] * 6
    assert meshes[0] == meshes[2] == meshes[4] != meshes[1] == meshes[3] == meshes[5]
    assert param_specs_of(SplitChoice(param_specs={"a": ("model", ""), "b": ()})) == {"a": P("model", None), "b": P()}
    assert param_specs_of(SplitChoice()) is None


def test_a_loss_without_slices_takes_the_choice_of_the_block_once() -> None:
    made = pw.pipeline(loss)
    assert not made.has_slices
    error = refused(made.stages, PARAMS, X)
    assert code(error) == "PWC0116" and error.diagnostics[0].where is not None
    with choosing(CHOICE) as losses:
        first, second = made.stages(PARAMS, X), made.stages(PARAMS, X)
        with choosing(SplitChoice(stages=4)) as inner:
            assert len(made.stages(PARAMS, X).rows) == 4
        assert made.stages(PARAMS, X) == first == second
    assert (losses, inner) == (["loss"] * 3, ["loss"])
    assert [r.slice for r in first.rows] == [r.slice for r in second.rows]
    assert code(refused(made.stages, PARAMS, X)) == "PWC0116"


def test_calls_are_noted_for_the_length_of_a_block() -> None:
    made = unplaced(loss, 1)
    with noting_calls() as calls:
        made(PARAMS, X)
    made(PARAMS, X)
    ((pipelined, args, kwargs),) = calls
    assert (pipelined is made, args[1] is X, kwargs) == (True, True, {})


def test_the_error_of_a_loss_that_cannot_be_opened_says_its_share() -> None:
    @jax.custom_jvp
    def half(params: Any, x: Any) -> Any:
        for number in range(4):
            x = x @ params[f"w{number}"]
        return x

    half.defjvp(lambda primals, tangents: (half(*primals), tangents[1]))

    def opaque(params: Any, x: Any) -> Any:
        return half(params, x @ params["w0"] @ params["w1"] @ params["w2"] @ params["w3"])

    assert len(pw.pipeline(opaque, slices(3)).stages(PARAMS, X).rows) == 3, "half is no more than 1.5 thirds"
    error = refused(pw.pipeline(opaque, slices(4)).stages, PARAMS, X)
    assert code(error) == "PWC0111"
    assert "one custom_jvp_call with 50%" in str(error) and "than 25% of the work, for 4 stages" in str(error)
    where = error.diagnostics[0].where
    assert where is not None and where.line == inspect.getsourcelines(opaque)[1] + 1
    assert len(pw.pipeline(opaque, slices(1)).stages(PARAMS, X).rows) == 1


def test_the_largest_of_the_operations_that_cannot_be_opened_is_named() -> None:
    def several(w: Any, x: Any) -> Any:
        x = jax.lax.while_loop(lambda x: x[0, 0] < 0, lambda x: x @ w, x)
        return jax.lax.cond(x[0, 0] < 0, lambda x: x, lambda x: x @ w @ w @ w @ w @ w @ w @ w @ w, x)

    error = refused(pw.pipeline(several, slices(2)).stages, W, X)
    assert code(error) == "PWC0111" and "one cond with 89%" in str(error)
    assert "than 50% of the work, for 2 stages" in str(error)


def test_more_stages_than_operations_are_refused_with_their_counts() -> None:
    def short(w: Any, x: Any) -> Any:
        return jnp.tanh(x @ w) + 1.0

    assert len(pw.pipeline(short, slices(3)).stages(W, X).rows) == 3
    error = refused(pw.pipeline(short, slices(4)).stages, W, X)
    assert "3 operations that depend on both" in str(error) and "at least 4, one per stage" in str(error)


def in_memory(size: int, stages: int = 2, **options: Any) -> Any:
    with compiling(Target.of(parse_topology(f"islands={stages},devices=1,memory={size}"), "1f1b")):
        return pw.pipeline(loss, slices(stages), **options).stages(PARAMS, X)


def test_a_cut_fits_the_memory_or_the_error_says_what_is_needed() -> None:
    """Each stage has two weights, with gradients and two states of an optimizer, and the results of two layers."""
    weights, activation = 2 * W.nbytes, X.nbytes
    needed = 4 * weights + 3 * activation + 4
    table = in_memory(needed)
    assert [r.layers for r in table.rows] == [2, 2] and max(r.memory for r in table.rows) <= needed
    least = 2 * weights + 3 * activation + 4
    without = in_memory(least)
    assert max(r.memory for r in without.rows) <= least, "without states of an optimizer it fits"
    error = refused(in_memory, weights)
    assert code(error) == "PWC0113"
    text = str(error)
    assert f"at most {weights} B a device" in text and "1.0 KiB are parameters and their gradients" in text
    line = inspect.getsourcelines(loss)[1] + 3
    where = error.diagnostics[0].where
    assert where is not None and where.line == line
    assert f"in the best cut stage 1 ({__file__}:{line} to {__file__}:{line + 1}) needs 1.8 KiB a device" in text


def test_the_error_names_the_stage_that_needs_most() -> None:
    """Of four layers on three stages, one stage has two."""
    text = str(refused(in_memory, 2 * W.nbytes, stages=3))
    assert "1.0 KiB are parameters and their gradients" in text
    assert f"test_pipelined.py:{inspect.getsourcelines(loss)[1] + 3} to " in text


def test_parameters_that_are_split_need_less_memory_and_those_that_are_not_do_not() -> None:
    made = pw.make_virtual_device_set()
    meshes = [made.add_slice(devices=8).mesh(("data", "model"), (2, 4)) for _ in range(2)]
    specs = {"w0": P("model"), "w1": P("data", "model"), "w2": P()}
    table = pw.pipeline(loss, meshes, param_specs=specs, cuts=[2, 2]).stages(PARAMS, X)
    assert [r.parameters for r in table.rows] == [W.nbytes // 4 + W.nbytes // 8, 2 * W.nbytes]


def test_gradients_by_name_are_compared_with_those_of_the_whole_batch() -> None:
    """The second weight's gradient differs: it is the largest output of a batch."""

    def penalized(params: Any, x: Any, scale: Any) -> Any:
        rows = x @ params["a"] / WIDTH
        return rows.mean() + (params["b"] * jax.lax.stop_gradient(rows.max())).sum() * scale

    params = {"a": jnp.ones(WIDTH), "b": jnp.ones(2), "n": 3}
    made = pw.pipeline(penalized, slices(1), microbatches=2)
    assert pw.check_microbatches(made, params, X, 0.0) < 1e-6
    error = refused(pw.check_microbatches, made, params, X, 1.0)
    assert code(error) == "PWC0114"
    assert "the gradient of ['b'] over 2 microbatches differs from the whole batch by 0.27" in str(error)
    worst = pw.check_microbatches(made, params, X, 1.0, tolerance=0.28)
    first, last = X.mean(1)[ROWS // 2 - 1], X.mean(1)[-1]
    assert worst == pytest.approx(float((last - first) / 2 / last), rel=1e-4)
