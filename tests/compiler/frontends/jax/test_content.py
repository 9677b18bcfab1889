"""Tests that programs have equal contents if they are equal, and different ones if any part of them differs."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend import random as prng
from jax.extend.core import Primitive

import pathways as pw
from pathways.compiler.frontends.jax.content import Content, NoContent, content_of, term_of

S = [pw.make_virtual_device_set().add_slice(devices=n) for n in (2, 2, 4)]
X = jax.ShapeDtypeStruct((4, 4), np.float32)
WIDE = jnp.arange(16.0).reshape(4, 4)


def on(number: int, spec: Any = None) -> Any:
    return jax.NamedSharding(S[number].mesh("x"), jax.P(spec))


def placed(sharding: Any) -> Callable[[Any], Any]:
    return lambda x: jax.jit(lambda v: v * 2, out_shardings=sharding)(x)


@jax.custom_vjp
def halved(x: Any) -> Any:
    return x / 2


halved.defvjp(lambda x: (x / 2, None), lambda _, g: (g / 2,))


def named(scope: str) -> Callable[[Any], Any]:
    def f(x: Any) -> Any:
        with jax.named_scope(scope):
            return x + 1

    return f


def looped(length: int, **options: Any) -> Callable[[Any], Any]:
    return lambda x: jax.lax.scan(lambda c, _: (c @ c, None), x, None, length=length, **options)[0]


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "scaled": lambda x: x * 2.0,
    "scaled more": lambda x: x * 3.0,
    "minus zero": lambda x: x * -0.0,
    "zero": lambda x: x * 0.0,
    "nan": lambda x: x * np.nan,
    "constant": lambda x: x + np.arange(4, dtype=np.float32),
    "other constant": lambda x: x + np.arange(1, 5, dtype=np.float32),
    "array": lambda x: x @ WIDE,
    "other array": lambda x: x @ (WIDE + 1),
    "key": lambda x: x + jax.random.normal(jax.random.key(1), (4, 4)),
    "other key": lambda x: x + jax.random.normal(jax.random.key(2), (4, 4)),
    "sum": lambda x: x.sum(0),
    "sum of columns": lambda x: x.sum(1),
    "product": lambda x: x @ x,
    "precise product": lambda x: jnp.matmul(x, x, precision="highest"),
    "product with first": lambda x: x.T @ x,
    "first operand": lambda x: x - x.T,
    "second operand": lambda x: x.T - x,
    "scope": named("a"),
    "other scope": named("b"),
    "loop": looped(3),
    "longer loop": looped(4),
    "unrolled loop": looped(3, unroll=3),
    "reversed loop": looped(3, reverse=True),
    "custom derivative": lambda x: jax.grad(lambda v: halved(v).sum())(x),
    "rematerialized": lambda x: jax.grad(lambda v: jax.checkpoint(jnp.sin)(v).sum())(x),
    "without derivatives": lambda x: jax.lax.stop_gradient(jnp.sin(x)),
    "branch": lambda x: jax.lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x),
    "other branch": lambda x: jax.lax.cond(x[0, 0] > 0, jnp.cos, jnp.sin, x),
    "first slice": placed(on(0)),
    "both slices": lambda x: placed(on(1))(placed(on(0))(x)),
    "both slices, exchanged": lambda x: placed(on(0))(placed(on(1))(x)),
    "wide slice": placed(on(2)),
    "rows": placed(on(0, "x")),
    "constrained": lambda x: jax.lax.with_sharding_constraint(x, on(0)),
    "mapped": lambda x: jax.shard_map(lambda v: v * 2, mesh=S[0].mesh("x"), in_specs=jax.P("x"), out_specs=jax.P("x"))(
        x
    ),
}


def content(function: Callable[[Any], Any], aval: Any = X, *others: Any) -> Content | None:
    return content_of(jax.make_jaxpr(function)(aval), *others)


@pytest.fixture(scope="module")
def digests() -> dict[str, str]:
    found = {name: content(f) for name, f in PROGRAMS.items()}
    assert all(c is not None for c in found.values()), found
    return {name: c.digest for name, c in found.items() if c is not None}


def test_programs_that_differ_have_different_contents(digests: dict[str, str]) -> None:
    names: dict[str, list[str]] = {}
    for name, digest in digests.items():
        names.setdefault(digest, []).append(name)
    assert [same for same in names.values() if len(same) > 1] == []


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_has_the_same_content_when_it_is_traced_again(name: str, digests: dict[str, str]) -> None:
    jax.clear_caches()
    for _ in range(2):  # the second trace takes parts from JAX's caches
        again = content(PROGRAMS[name])
        assert again is not None and again.digest == digests[name]


@pytest.mark.parametrize(
    "aval",
    [
        jax.ShapeDtypeStruct((4, 4), np.float16),
        jax.ShapeDtypeStruct((4, 4), jnp.bfloat16),
        jax.ShapeDtypeStruct((4, 4), np.float32, weak_type=True),
        jax.ShapeDtypeStruct((4, 5), np.float32),
    ],
    ids=str,
)
def test_the_types_of_arguments_are_part_of_the_content(aval: Any, digests: dict[str, str]) -> None:
    found = content(PROGRAMS["scaled"], aval)
    assert found is not None and found.digest != digests["scaled"]


def test_settings_of_jax_and_other_values_are_part_of_the_content(digests: dict[str, str]) -> None:
    with jax.default_matmul_precision("float32"):
        precise = content(PROGRAMS["scaled"])
    donated = content(PROGRAMS["scaled"], X, frozenset({0}))
    kept = content(PROGRAMS["scaled"], X, frozenset())
    found = [c.digest for c in (precise, donated, kept) if c is not None]
    assert len({digests["scaled"], *found}) == 4


def test_slices_count_by_the_order_of_their_numbers() -> None:
    """Slices of another process have other numbers, and the same order."""
    first = content(lambda x: placed(on(1))(placed(on(0))(x)))
    devices = pw.make_virtual_device_set()
    again = [devices.add_slice(devices=2) for _ in range(2)]
    for mine, others in zip(again, S, strict=False):
        mine.where = others.where
    shardings = [jax.NamedSharding(s.mesh("x"), jax.P()) for s in again]
    in_order, exchanged = (content(lambda x, n=n: placed(shardings[1 - n])(placed(shardings[n])(x))) for n in (0, 1))
    assert first is not None and in_order is not None and exchanged is not None
    assert in_order.digest != exchanged.digest
    assert first.slices == (S[0], S[1]) and in_order.slices == exchanged.slices == tuple(again)


def custom(x: Any) -> Any:
    primitive: Any = Primitive("sin")  # the name of one of JAX's
    primitive.def_abstract_eval(lambda aval: aval)
    return primitive.bind(x)


@pytest.mark.parametrize(
    "function",
    [
        custom,
        lambda x: jax.pure_callback(lambda v: v, X, x),
        placed(jax.NamedSharding(pw.make_virtual_device_set().add_slice(devices=2, island="one").mesh("x"), jax.P())),
    ],
    ids=["a primitive of the user's", "a host callback", "a pinned slice"],
)
def test_some_programs_have_no_content(function: Any) -> None:
    assert content(function) is None


def test_random_bits_by_a_function_of_the_users_have_no_content() -> None:
    def bits(key: Any, width: int, shape: tuple[int, ...]) -> Any:
        return jnp.full(shape, key[0], f"uint{width}")

    define: Any = prng.define_prng_impl
    made = define(
        key_shape=(2,), seed=lambda n: jnp.full(2, n, np.uint32), split=None, random_bits=bits, fold_in=None, name="own"
    )
    keys = jax.random.wrap_key_data(jnp.zeros(2, np.uint32), impl=made)
    assert content(lambda x: x + jax.random.bits(keys)) is None


def test_a_mesh_around_the_call_leaves_a_program_without_content() -> None:
    with jax.set_mesh(jax.make_mesh((1,), ("x",))):
        assert content(PROGRAMS["scaled"]) is None


@pytest.mark.parametrize(
    "value", [object(), lambda: 0, np.array([object()]), {1: print}], ids=["object", "function", "array", "dict"]
)
def test_objects_and_functions_have_no_content(value: Any) -> None:
    with pytest.raises(NoContent):
        term_of(value)
