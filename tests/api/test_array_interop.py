"""Tests `pw.Array` in functions of JAX, numpy and other libraries: they accept it, and fetch its values."""

import pickle
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import checkify
from jax.sharding import PartitionSpec as P
from support.sample_arrays import (
    FLOATS,
    JF,
    KEY,
    LOCAL_MESH,
    LOCAL_SHARDING,
    SCALAR,
    X,
    assert_same,
    code_of_use,
    on_two,
)

import pathways as pw

jit: Any = jax.jit
lax: Any = jax.lax
random: Any = jax.random


JAX: dict[str, Callable[[Any], Any]] = {
    "jnp": lambda x: (jnp.sum(x), jnp.where(x > 2, x, 0), jnp.stack([x, x]), jnp.zeros_like(x)),
    "jnp.einsum": lambda x: jnp.einsum("i,i->", x, x),
    "jnp.asarray": lambda x: (jnp.asarray(x), jnp.array(x), jnp.asarray([x, x]), jnp.asarray(x, jnp.float16)),
    "lax": lambda x: (lax.add(x, x), lax.add(x, 1.0), lax.sort((x, x)), lax.full_like(x, 2)),
    "lax.convert_element_type": lambda x: lax.convert_element_type(x, int),
    "nn": lambda x: (jax.nn.relu(x), jax.nn.softmax(x), jax.scipy.special.logsumexp(x)),
    "device_put": lambda x: (jax.device_put(x), jax.device_put({"x": x}, jax.devices()[0])),
    "device_get": lambda x: jax.device_get([x]),
    "jit": lambda x: [jit(lambda a: a * 2)(v) for v in (x, x, np.asarray(x), x)],
    "jit with keywords": lambda x: jit(lambda a, *, b: a - b)(x, b=x * 2),
    "jit of a tree": lambda x: jit(lambda t: jax.tree.map(jnp.sin, t))({"a": x, "b": (x, 1.0)}),
    "jit, donated": lambda x: jit(lambda a: a + 1, donate_argnums=0)(x if isinstance(x, pw.Array) else x + 0),
    "jit with shardings": lambda x: jit(lambda a: a + 1, in_shardings=LOCAL_SHARDING)(x),
    "jit closed over": lambda x: (jit(lambda a: a + x)(1.0), jit(lambda a: lax.add(a, x))(X), jit(lambda: x)()),
    "jit lowered": lambda x: jit(lambda a: a + 1).lower(x).compile()(x),
    "eval_shape": lambda x: (lambda s: (s.shape, str(s.dtype)))(jax.eval_shape(lambda a: a.sum(), x)),
    "grad": lambda x: (jax.grad(lambda a: (a**2).sum())(x), jax.jacfwd(jnp.sin)(x)),
    "hessian": lambda x: jax.hessian(lambda a: (a**3).sum())(x),
    "jvp, vjp": lambda x: (jax.jvp(jnp.sin, (x,), (x,)), jax.vjp(jnp.sin, x)[1](x), jax.linearize(jnp.sin, x)[1](x)),
    "checkpoint": lambda x: jax.grad(lambda a: jax.checkpoint(lambda b: jnp.sin(b).sum())(a))(x),
    "vmap": lambda x: (jax.vmap(lambda a: a + 1)(x), jax.vmap(lambda a, b: a * b, in_axes=(0, None))(x, x)),
    "loops": lambda x: (lax.scan(lambda c, v: (c + v, c), 0.0, x), lax.fori_loop(0, 3, lambda _, a: a + 1, x)),
    "branches": lambda x: lax.cond(x[0] > 0, jnp.sin, jnp.cos, x),
    "while": lambda x: lax.while_loop(lambda a: a.sum() < 50, lambda a: 2 * a, x),
    "shard_map": lambda x: jax.shard_map(lambda a: a + 1, mesh=LOCAL_MESH, in_specs=P("q"), out_specs=P("q"))(x),
    "pmap": lambda x: jnp.asarray(jax.pmap(lambda a: a + 1)(x[None])),
    "pure_callback": lambda x: jax.pure_callback(np.sin, jax.ShapeDtypeStruct((4,), np.float32), x),
    "random": lambda x: (random.choice(random.key(1), x), random.permutation(random.key(1), x)),
    "export": lambda x: jax.export.export(jit(lambda a: a + 1))(x).call(x),
    "typeof": lambda x: (jax.typeof(x).str_short(), jnp.result_type(x, np.float16).name, isinstance(x, jax.Array)),
    "tree.map": lambda x: jax.tree.map(lambda a, b: a + b, {"w": x}, {"w": x}),
    "block_until_ready": lambda x: jax.block_until_ready([x])[0] + 0,
}


@pytest.mark.filterwarnings("ignore:Some donated buffers were not usable")
@pytest.mark.parametrize("name", JAX)
def test_jax_functions_accept_a_pw_array(name: str) -> None:
    assert_same(JAX[name](FLOATS), JAX[name](JF))
    np.testing.assert_array_equal(np.asarray(FLOATS), X + 1)


NUMPY: dict[str, Callable[[Any], Any]] = {
    "functions": lambda x: (np.mean(x), np.add(x, x), np.concatenate([x, x]), np.sum([x, x])),
    "array": lambda x: (np.array(x), np.array(x, np.float64), np.array([x[0], x[1]])),
    "index": lambda x: np.arange(10)[x.astype(int)],
    "dlpack": lambda x: (np.from_dlpack(x), x.__dlpack_device__()[1], jnp.from_dlpack(x)),
    "iteration, as plotting does": lambda x: [float(v) for v in x] + [float(v) for v in np.atleast_1d(np.asarray(x))],
    "formats": lambda x: (str(x), f"{x}", f"{x.sum():.3f}", f"{x.astype(int).sum():d}"),
}


@pytest.mark.parametrize("name", NUMPY)
def test_numpy_functions_accept_a_pw_array(name: str) -> None:
    assert_same(NUMPY[name](FLOATS), NUMPY[name](JF))


@pytest.mark.filterwarnings("ignore:optax.global_norm is deprecated")
def test_optax_and_equinox_accept_a_pw_array() -> None:
    import equinox
    import optax

    assert_same(optax.global_norm({"w": FLOATS}), optax.global_norm({"w": JF}))  # pyright: ignore
    optimizer = optax.adam(0.1)  # pyright: ignore
    assert_same(*(optimizer.update({"w": v}, optimizer.init({"w": v})) for v in (FLOATS, JF)))
    assert_same(optax.apply_updates({"w": FLOATS}, {"w": FLOATS}), {"w": JF + JF})  # pyright: ignore
    assert_same(equinox.filter_jit(lambda a: a + 1)(FLOATS), JF + 1)
    assert equinox.is_array(FLOATS)


def test_weak_types_stay_weak() -> None:
    weak: Any = pw.program(lambda v: v + 1)(1.5)
    assert weak.weak_type
    assert_same(jnp.float16(1) * weak, jnp.float16(1) * jnp.asarray(2.5))
    assert_same(jit(lambda a: a * jnp.float16(1))(weak), jnp.asarray(2.5, jnp.float16))
    assert weak.to_jax().weak_type and not FLOATS.to_jax().weak_type


def test_typed_keys_are_accepted_wherever_jax_accepts_keys() -> None:
    plain = random.key(0)
    assert_same(random.split(KEY), random.split(plain))
    assert_same(random.normal(KEY, (3,)), random.normal(plain, (3,)))
    assert_same(random.fold_in(KEY, 2), random.fold_in(plain, 2))
    assert_same(random.key_data(KEY), random.key_data(plain))
    assert_same([jit(random.split)(KEY) for _ in range(3)], [jit(random.split)(plain) for _ in range(3)])
    assert_same(jax.vmap(random.uniform)(random.split(KEY)), jax.vmap(random.uniform)(random.split(plain)))
    tree = {"key": KEY, "w": (FLOATS, SCALAR)}
    got: Any = jax.device_get(tree)
    assert random.key_data(got["key"]).tolist() == [0, 0] and isinstance(got["w"][0], np.ndarray)
    assert_same(jax.tree.map(jnp.asarray, tree), {"key": plain, "w": (JF, jnp.float32(1.5))})
    assert_same(jax.tree.map(lambda a: a.reshape(1, -1), tree)["key"], plain.reshape(1, -1))
    assert code_of_use(np.asarray, KEY) == "PWC0505" and "key" in repr(KEY) and "key" in str(KEY)


def test_64_bit_arrays_are_refused_where_jax_would_narrow_them() -> None:
    with jax.enable_x64(True):
        wide = [pw.program(lambda v: v + 1)(np.array([2**40], dtype)) for dtype in ("int64", "uint64", "float64")]
        for x in wide:
            assert_same(x + 1, jnp.asarray(np.asarray(x)) + 1)
        raw = pickle.dumps(wide[0])
    uses: tuple[Callable[[Any], Any], ...] = (
        *(jnp.asarray, lambda x: x + 1, lambda x: x[0], jax.device_put, jit(lambda a: a), lambda x: lax.add(x, x)),
        *(lambda x: x.to_jax(), lambda x: x.T, list, lambda x: x == 1, lambda x: x.addressable_data(0)),
    )
    for x in wide:
        for use in uses:
            assert code_of_use(use, x) == "PWC0216"
        assert np.asarray(x)[0] == 2**40 + 1 and np.asarray(x).dtype == x.dtype and x.item() == 2**40 + 1
        assert x.tolist() == jax.device_get([x])[0].tolist() == [2**40 + 1]
    assert code_of_use(pickle.loads, raw) == "PWC0216"


def test_a_checkify_error_that_a_program_returns_can_be_thrown() -> None:
    def checked(x: Any) -> Any:
        checkify.check(jnp.all(x > 0), "not positive: {least}", least=x.min())
        return on_two(x)

    program: Any = pw.program(lambda x: checkify.checkify(checked)(x))
    program(X + 1)[0].throw()
    with pytest.raises(Exception, match=r"not positive: -1\.0"):
        program(X - 1)[0].throw()
    with pytest.raises(Exception, match=r"not positive: 0\.0"):
        checkify.check_error(program(X)[0])
