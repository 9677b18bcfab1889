"""Tests what each stage of a cut computes, takes and gives."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from pathways.compiler.frontends.jax.pipeline.assemble import Stage, Stages, assemble_stages, is_code, read
from pathways.compiler.frontends.jax.pipeline.graph import Value
from pathways.compiler.frontends.jax.pipeline.open import open_loss
from pathways.compiler.frontends.jax.pipeline.spine import spine_of
from pathways.compiler.frontends.jax.pipeline.stage_function import stage_function
from pathways.compiler.frontends.jax.pipeline.work import REMATS

_jax: Any = jax
_lax: Any = lax
WIDTH, ROWS = 8, 8
W = np.linspace(-1, 1, WIDTH * WIDTH, dtype=np.float32).reshape(WIDTH, WIDTH)
X = np.linspace(-1, 1, ROWS * WIDTH, dtype=np.float32).reshape(ROWS, WIDTH)[::-1].copy()
STACK = np.stack([W / (k + 1) for k in range(6)])


def assembled(loss: Any, places: Sequence[int], *args: Any, data: Sequence[int] = (1,)) -> Stages:
    """Returns the stages of a loss that is cut at these inner places of its spine."""
    graph = open_loss(_jax.make_jaxpr(loss)(*args), frozenset(data), len(places) + 1)
    spine = spine_of(graph)
    return assemble_stages(graph, spine, (0, *places, len(spine)))


def names(stage: Stage) -> list[str]:
    return [o.name for o in stage.operations]


def shapes(values: Sequence[Value]) -> list[tuple[int, ...]]:
    return [tuple(v.aval.shape) for v in values]


def run(stages: Stages, *args: Any) -> list[Any]:
    """Runs the stages one after another."""
    env: dict[Value, Any] = dict(zip(stages.graph.arguments, args, strict=True))
    for operation in stages.before:
        env.update(zip(operation.outputs, operation.run([read(o, env) for o in operation.inputs]), strict=True))
    for stage in stages.stages:
        function = stage_function(stage, stages.graph.checkpoints, [None] * len(stage.inputs))
        assert function.__name__ == stage.name
        env.update(zip(stage.outputs, function(*(read(v, env) for v in stage.inputs)), strict=True))
    return [read(r, env) for r in stages.graph.results]


def assert_equal(stages: Stages, loss: Any, *args: Any) -> None:
    for one, other in zip(run(stages, *args), jax.tree.leaves(loss(*args)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_each_stage_has_its_operations_and_takes_what_they_read_in_order() -> None:
    def loss(w: Any, x: Any) -> Any:
        h = _lax.tanh(_lax.dot(x, w[0]))
        return _lax.tanh(_lax.dot(h, w[1])), h

    stages = assembled(loss, [2], (W, W), X, data=[2])
    first, last = stages.stages
    assert (names(first), names(last)) == (["dot_general", "tanh"], ["dot_general", "tanh"])
    assert [(s.number, s.place, s.name) for s in stages.stages] == [(0, 0, "stage0"), (1, 1, "stage1")]
    a, b, x = stages.graph.arguments
    assert first.inputs == [x, a]
    assert last.inputs == [first.outputs[0], b]
    assert stages.graph.results == [last.outputs[0], first.outputs[0]]
    assert_equal(stages, lambda a, b, x: loss((a, b), x), W, W, X)


def test_work_beside_the_spine_is_repeated_on_each_stage_that_uses_it() -> None:
    def loss(w: Any, x: Any) -> Any:
        mask = _lax.exp(x[:1])
        h = _lax.dot(x * mask, w)
        return _lax.dot(h * mask, w) + mask

    stages = assembled(loss, [2], W, X)
    assert [names(s).count("exp") for s in stages.stages] == [1, 1]
    assert len(stages.stages[0].outputs) == 1
    assert_equal(stages, loss, W, X)


def test_a_reduction_of_parameters_is_done_where_they_are() -> None:
    """The norm of the first weight is used behind the cut: a number goes over it, not the weight."""

    def loss(w: Any, x: Any) -> Any:
        h = _lax.dot(x, w[0])
        return _lax.dot(h, w[1]) * (w[0] ** 2).sum()

    stages = assembled(loss, [1], (W, W / 2), X, data=[2])
    first, last = stages.stages
    assert sorted(shapes(first.outputs)) == [(), (ROWS, WIDTH)]
    assert stages.graph.arguments[0] not in last.inputs
    assert_equal(stages, lambda a, b, x: loss((a, b), x), W, W / 2, X)


def test_a_reduction_of_weights_of_two_stages_is_done_in_parts() -> None:
    def loss(w: Any, x: Any) -> Any:
        h = _lax.dot(_lax.dot(x, w[0]), w[1])
        return _lax.dot(h, w[2]) + (w[0].sum() + w[1].sum())

    stages = assembled(loss, [1, 2], (W, W / 2, W / 3), X, data=[3])
    assert sorted(shapes(stages.stages[0].outputs)) == [(), (ROWS, WIDTH)]
    assert sorted(shapes(stages.stages[1].outputs)) == [(), (ROWS, WIDTH)]
    assert_equal(stages, lambda a, b, c, x: loss((a, b, c), x), W, W / 2, W / 3, X)


@pytest.mark.parametrize(("columns", "reduced"), [(2, True), (4, False)])
def test_what_is_less_than_four_times_smaller_is_computed_again(columns: int, reduced: bool) -> None:
    """Some columns of eight of the first weight are used behind the cut."""

    def loss(w: Any, x: Any) -> Any:
        h = _lax.dot(x, w[0])
        return _lax.dot(h, w[1])[:, :columns] + _lax.tanh(w[0])[:, :columns]

    stages = assembled(loss, [1], (W, W / 2), X, data=[2])
    assert (stages.graph.arguments[0] not in stages.stages[1].inputs) == reduced
    assert_equal(stages, lambda a, b, x: loss((a, b), x), W, W / 2, X)


def test_results_that_no_stage_makes_are_results_of_the_last() -> None:
    def loss(w: Any, x: Any) -> Any:
        return _lax.dot(_lax.dot(x, w), w), _lax.exp(x), w, 1.0

    stages = assembled(loss, [1], W, X)
    assert "exp" not in names(stages.stages[0]) and names(stages.stages[1]).count("exp") == 1
    assert len(stages.stages[1].outputs) == 2 and stages.graph.results[2] is stages.graph.arguments[0]
    assert_equal(stages, loss, W, X)


def plain_layers(stack: Any, x: Any) -> Any:
    return _lax.scan(lambda c, w: (_lax.tanh(_lax.dot(c, w)), None), x, stack)[0]


def layers(stack: Any, x: Any, **options: Any) -> Any:
    return _lax.scan(lambda c, w: (_lax.tanh(_lax.dot(c, w)), _lax.exp(c[0])), x, stack, **options)


@pytest.mark.parametrize("reverse", [False, True])
def test_turns_on_a_stage_become_one_loop_over_their_rows(reverse: bool) -> None:
    def loss(stack: Any, x: Any) -> Any:
        return layers(stack, x, reverse=reverse)

    stages = assembled(loss, [2, 3], STACK, X)
    assert [names(s)[0] for s in stages.stages] == ["scan"] * 3
    assert [o.name for o in stages.before] == ["slice"] * 3
    rows = [n[0] for stage in stages.stages for n in shapes(stage.inputs) if len(n) == 3]
    assert rows == [2, 1, 3]
    assert_equal(stages, loss, STACK, X)


def test_a_loop_on_one_stage_takes_its_whole_stack() -> None:
    def loss(stack: Any, x: Any) -> Any:
        return _lax.dot(layers(stack, x)[0], stack[0])

    stages = assembled(loss, [6], STACK, X)
    assert stages.graph.arguments[0] in stages.stages[0].inputs
    assert_equal(stages, loss, STACK, X)


@pytest.mark.parametrize(
    "change",
    [
        lambda s, x: s * 0.5 + 0.25,
        lambda s, x: _lax.tanh(s) / 3,
        lambda s, x: s * s[:, :1, :1],
        lambda s, x: _lax.rev(s, (0,)),
        lambda s, x: s * jnp.broadcast_to(s.mean(0), s.shape),
        lambda s, x: s - s.mean(),
    ],
)
def test_what_is_done_to_a_stack_is_done_to_its_slices(change: Any) -> None:
    def loss(stack: Any, x: Any) -> Any:
        return layers(change(stack, x), x)

    assert_equal(assembled(loss, [2, 3], STACK, X), loss, STACK, X)


def test_an_operation_by_element_of_a_stack_is_done_on_slices_of_it() -> None:
    def loss(stack: Any, x: Any) -> Any:
        return plain_layers(stack * 0.5, x)

    stages = assembled(loss, [2, 3], STACK, X)
    assert [names(s) for s in stages.stages] == [["mul", "scan"]] * 3
    assert [o.name for o in stages.before] == ["slice"] * 3
    assert [s.operations[0].flops for s in stages.stages] == [n * WIDTH * WIDTH for n in (2, 1, 3)]
    assert shapes([o.outputs[0] for o in stages.before]) == [(n, WIDTH, WIDTH) for n in (2, 1, 3)]


def test_a_stack_of_joined_parts_is_taken_in_parts() -> None:
    """The parts of a concatenation have as many rows as the stages: none is sliced."""

    def loss(parts: Any, x: Any) -> Any:
        return plain_layers(_lax.concatenate(parts, 0), x)

    parts = (STACK[:2], STACK[2:3], STACK[3:])
    stages = assembled(loss, [2, 3], parts, X, data=[3])
    assert stages.before == []
    for stage, argument in zip(stages.stages, stages.graph.arguments[:3], strict=True):
        assert argument in stage.inputs
    assert_equal(stages, lambda a, b, c, x: loss((a, b, c), x), *parts, X)
    other = assembled(loss, [1, 3], parts, X, data=[3])
    assert_equal(other, lambda a, b, c, x: loss((a, b, c), x), *parts, X)


def test_two_loops_over_one_stack_share_its_slices() -> None:
    def loss(stack: Any, x: Any) -> Any:
        return plain_layers(stack, plain_layers(stack, x))

    stages = assembled(loss, [2, 8], STACK, X)
    assert len(stages.before) == 2, "rows 0 to 2, and 2 to 6 of the first loop; those of the second are the same"
    assert_equal(stages, loss, STACK, X)


def test_parts_of_a_checkpoint_are_checkpoints_on_each_stage() -> None:
    def loss(w: Any, x: Any) -> Any:
        def body(x: Any) -> Any:
            h = _lax.exp(_lax.tanh(_lax.dot(x, w)))
            return jax.checkpoint(lambda h: _lax.tanh(_lax.exp(_lax.dot(h, w))))(h) + h

        return _lax.dot(jax.checkpoint(body)(x), w)

    stages = assembled(loss, [2], W, X)
    assert_equal(stages, loss, W, X)
    found: list[list[Any]] = []
    for stage in stages.stages:
        function = stage_function(stage, stages.graph.checkpoints, [None] * len(stage.inputs))
        args = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in stage.inputs]
        found.append([*_jax.make_jaxpr(function)(*args).eqns])
    (first,), (second, product) = found
    assert is_checkpoint(first) and is_checkpoint(second) and product.primitive.name == "dot_general"
    inside = [is_checkpoint(e) for e in second.params["jaxpr"].eqns]
    assert inside.count(True) == 1, "the checkpoint inside of the other"


def is_checkpoint(eqn: Any) -> bool:
    return eqn.primitive.name in REMATS


def test_a_stage_computes_in_the_type_of_the_model() -> None:
    stages = assembled(lambda w, x: _lax.dot(_lax.dot(x, w), w), [1], W, X)
    (first, _) = stages.stages
    function = stage_function(first, {}, [None, jnp.float32])
    (found,) = function(X, W.astype(jnp.bfloat16))
    np.testing.assert_allclose(found, X @ np.asarray(W.astype(jnp.bfloat16), np.float32), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("constant", "expected"),
    [(jnp.zeros(1024), True), (jnp.zeros(1025), False), (jnp.zeros((2, 512), jnp.int8), True), (None, False)],
)
def test_small_constants_are_code(constant: Any, expected: bool) -> None:
    aval = jax.ShapeDtypeStruct((1,), jnp.float32) if constant is None else constant.aval
    assert is_code(Value(aval, constant=constant)) == expected


def test_keys_are_code_and_traced_constants_are_not() -> None:
    keys: Any = jax.random.split(jax.random.key(0), 2000)
    assert is_code(Value(keys.aval, constant=keys))
    seen: list[bool] = []
    _jax.make_jaxpr(lambda x: seen.append(is_code(Value(x.aval, constant=x))))(1.0)
    assert seen == [False]
