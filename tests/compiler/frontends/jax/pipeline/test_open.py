"""Tests how a loss is opened: what is larger than a part of a stage becomes operations that a cut may fall between."""

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from pathways.compiler.frontends.jax.pipeline.graph import DATA, PARAMETER, LossGraph, Value
from pathways.compiler.frontends.jax.pipeline.open import open_loss
from pathways.dialect.diagnostics import PathwaysError

_jax: Any = jax
_lax: Any = lax
W = jax.ShapeDtypeStruct((8, 8), jnp.float32)
PRODUCT = 2 * 8 * 8 * 8


def graph(loss: Any, *args: Any, stages: int = 1) -> LossGraph:
    return open_loss(_jax.make_jaxpr(loss)(*args), frozenset({1}), stages)


def names(found: LossGraph) -> list[str]:
    return [o.name for o in found.operations]


def products(count: int, x: Any, w: Any) -> Any:
    for _ in range(count):
        x = _lax.dot(x, w)
    return x


@pytest.mark.parametrize(("stages", "opened"), [(1, False), (2, True), (4, True)])
def test_a_call_is_opened_if_it_is_larger_than_an_eighth_of_a_stage(stages: int, opened: bool) -> None:
    """The call has 2 of 16 products: of one stage an eighth, of two stages a quarter."""

    def loss(w: Any, x: Any) -> Any:
        return products(14, jax.jit(lambda x: products(2, x, w))(x), w)

    found = graph(loss, W, W, stages=stages)
    assert names(found) == (["dot_general"] * 16 if opened else ["jit", *["dot_general"] * 14])
    assert found.flops == 16 * PRODUCT


def test_calls_in_calls_are_opened_and_bind_their_operands() -> None:
    inner = jax.jit(lambda x, w: _lax.dot(w, x))

    def loss(w: Any, x: Any) -> Any:
        return jax.jit(lambda a, b: inner(b, a))(w, x)

    found = graph(loss, W, W)
    (product,) = found.operations
    assert product.inputs == found.arguments
    assert found.results == product.outputs and product.outputs[0].maker is product


def test_arguments_are_data_or_parameters_and_values_depend_on_what_they_read() -> None:
    def loss(w: Any, x: Any) -> Any:
        return _lax.tanh(w), _lax.tanh(x), _lax.dot(x, w), _lax.iota(jnp.int32, 3)

    found = graph(loss, W, W)
    assert [(a.depends, a.argument) for a in found.arguments] == [(PARAMETER, 0), (DATA, 1)]
    assert [r.depends for r in found.results if isinstance(r, Value)] == [PARAMETER, DATA, PARAMETER | DATA, 0]


@pytest.mark.parametrize(
    ("shape", "dtype", "depends"),
    [((4096,), np.float32, 0), ((4097,), np.float32, PARAMETER), ((5000,), np.int32, 0), ((8193,), jnp.bfloat16, 1)],
)
def test_large_arrays_of_numbers_that_a_loss_closes_over_count_as_parameters(
    shape: tuple[int, ...], dtype: Any, depends: int
) -> None:
    array = jnp.zeros(shape, dtype)
    found = graph(lambda w, x: (_lax.dot(x, w), array + 1), W, W)
    operation = next(o for o in found.operations if o.name == "add")
    assert operation.reads[0].depends == operation.outputs[0].depends == depends
    assert operation.reads[0].constant is not None and operation.reads[0].argument == -1


def test_a_loop_becomes_its_turns_and_the_stacks_that_they_make() -> None:
    def loss(w: Any, x: Any) -> Any:
        return _lax.scan(lambda c, r: (_lax.dot(c, w), (_lax.neg(r), _lax.exp(c))), x, x)

    found = graph(loss, W, W)
    assert names(found) == ["scan"] * 8 + ["stack"] * 2
    turns, stacks = found.operations[:8], found.operations[8:]
    assert [o.iteration for o in turns] == list(range(8)) and all(o.is_iteration for o in turns)
    assert [o.stacks for o in stacks] == [0, 1] and not any(o.is_iteration for o in stacks)
    assert [o.stacks for o in turns] == [-1] * 8
    (loop,) = {o.loop for o in found.operations}
    assert loop is not None and (loop.length, loop.reverse, loop.carried) == (8, False, 1)
    assert [o.flops for o in turns] == [PRODUCT + 64 + 8] * 8
    assert [v.bytes for v in turns[0].outputs] == [256, 256 / 8, 8 * 256 / 8]
    w, x = found.arguments
    assert turns[0].inputs == [w, x, x]
    for before, turn in pairwise(turns):
        assert turn.inputs == [w, before.outputs[0], x]
    for k, stack in enumerate(stacks):
        assert stack.inputs == [turn.outputs[1 + k] for turn in turns]
    assert found.results == [turns[-1].outputs[0], *(s.outputs[0] for s in stacks)]
    assert [o.keeps_bytes for o in turns] == [512] * 8, "the operand of the product and the result of exp"


@pytest.mark.parametrize(("length", "opened"), [(1, False), (2, True)])
def test_a_loop_of_one_turn_stays_whole(length: int, opened: bool) -> None:
    def loss(w: Any, x: Any) -> Any:
        return _lax.scan(lambda c, _: (_lax.dot(c, w), None), x, None, length=length)[0]

    found = graph(loss, W, W)
    assert names(found) == ["scan"] * length
    assert [o.is_iteration for o in found.operations] == [opened] * length
    assert (len(found.indivisible) == 1) != opened


def test_checkpoints_are_opened_and_numbered() -> None:
    def inner(x: Any, w: Any) -> Any:
        return jax.checkpoint(lambda x: products(2, x, w), prevent_cse=False)(x)

    def loss(w: Any, x: Any) -> Any:
        policy = jax.checkpoint_policies.dots_saveable
        x = jax.checkpoint(lambda x: _lax.dot(inner(x, w), w), policy=policy)(x)
        return _lax.dot(jax.checkpoint(lambda x: products(1, x, w))(x), w)

    found = graph(loss, W, W)
    assert [o.groups for o in found.operations] == [(0, 1), (0, 1), (0,), (2,), ()]
    assert [found.checkpoints[k].prevent_cse for k in range(3)] == [True, False, True]
    assert [found.checkpoints[k].policy for k in range(3)] == [jax.checkpoint_policies.dots_saveable, None, None]


@jax.custom_jvp
def opaque(x: Any, w: Any) -> Any:
    return products(2, x, w)


opaque.defjvp(lambda primals, tangents: (opaque(*primals), tangents[0]))


@pytest.mark.parametrize(("rest", "indivisible"), [(0, 1), (13, 1), (14, 0), (20, 0)])
def test_large_operations_that_cannot_be_opened_are_noted(rest: int, indivisible: int) -> None:
    found = graph(lambda w, x: products(rest, opaque(x, w), w), W, W)
    assert len(found.operations) == 1 + rest
    assert found.indivisible == found.operations[:indivisible]


@pytest.mark.parametrize(
    "loop",
    [
        lambda w, x: _lax.while_loop(lambda x: x[0, 0] < 1, lambda x: _lax.dot(x, w), x),
        lambda w, x: _lax.cond(x[0, 0] < 1, lambda: _lax.dot(x, w), lambda: x),
    ],
)
def test_branches_and_loops_of_unknown_length_are_indivisible(loop: Any) -> None:
    assert [o.name for o in graph(loop, W, W).indivisible] in (["while"], ["cond"])


def test_a_product_is_as_large_as_it_is_and_is_not_noted() -> None:
    assert graph(_lax.dot, W, W).indivisible == []


@pytest.mark.parametrize("side", ["in_shardings", "out_shardings"])
def test_a_call_with_shardings_is_refused_by_name(side: str) -> None:
    mesh = jax.make_mesh((1,), ("data",))
    placed: Any = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())

    def inner(x: Any) -> Any:
        return x + 1.0

    inside: Any = jax.jit(inner, **{side: placed})
    with pytest.raises(PathwaysError, match=r"PWC0112(.*\n)*.*a call of inner with shardings"):
        graph(lambda w, x: inside(_lax.dot(x, w)), W, W)


def test_values_are_read_by_each_operation_once() -> None:
    def loss(w: Any, x: Any) -> Any:
        return _lax.dot(x, x) + _lax.tanh(x) + _lax.dot(w, x)

    found = graph(loss, W, W)
    readers = found.readers()
    assert [o.name for o in readers[found.arguments[1]]] == ["dot_general", "tanh", "dot_general"]
    assert [o.name for o in readers[found.arguments[0]]] == ["dot_general"]
    assert all(found.results[0] is not value for value in readers)
