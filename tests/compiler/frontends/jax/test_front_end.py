"""Tests what a program may contain: each case must equal plain JAX."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw

DEVICES = pw.make_virtual_device_set()
TWO, FOUR, ONE = (DEVICES.add_slice(devices=n) for n in (2, 4, 1))
M2, M4, M1 = TWO.mesh("x"), FOUR.mesh(("x", "y"), (2, 2)), ONE.mesh("d")
X = np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4)
W = np.cos(np.arange(16, dtype=np.float32)).reshape(4, 4)
BIG = jnp.asarray(np.sin(np.arange(4096, dtype=np.float32)).reshape(64, 64))
jit: Any = jax.jit


def layer(w: Any, x: Any) -> Any:
    return jnp.tanh(x @ w)


def dropout(key: Any, x: Any) -> Any:
    return x * jax.random.bernoulli(key, 0.5, x.shape)


def closing(w: Any, x: Any) -> Any:
    return (x @ w) @ BIG[:4, :4]


class Placed:
    """The functions of the cases, placed on slices."""

    a = staticmethod(jit(layer, in_shardings=(NamedSharding(M2, P(None, "x")), NamedSharding(M2, P()))))
    b = staticmethod(jit(layer, in_shardings=(NamedSharding(M4, P("x", "y")), None)))
    c = staticmethod(jit(layer, in_shardings=(NamedSharding(M1, P()), None)))
    drop = staticmethod(jit(dropout, in_shardings=(None, NamedSharding(M2, P("x")))))
    closing = staticmethod(jit(closing, in_shardings=(NamedSharding(M2, P()), None)))


class Plain:
    """The same functions on one device."""

    a = b = c = staticmethod(layer)
    drop = staticmethod(dropout)
    closing = staticmethod(closing)


@jax.custom_vjp
def scaled(x: Any) -> Any:
    return 2 * x


scaled.defvjp(lambda x: (2 * x, x), lambda r, g: (3 * g * r,))  # pyright: ignore[reportUnknownMemberType]


@jax.custom_jvp
def curved(x: Any) -> Any:
    return jnp.sin(x)


curved.defjvp(lambda p, t: (jnp.sin(p[0]), 2 * jnp.cos(p[0]) * t[0]))  # pyright: ignore


def scan_case(f: Any, w: Any, x: Any, reverse: bool = False) -> Any:
    def body(c: Any, t: Any) -> Any:
        y = f.a(w, c) + t
        return f.b(w, y), (y.sum(), t)

    return lax.scan(body, x, jnp.arange(3.0), reverse=reverse)


def grad_of_scan(f: Any, w: Any, x: Any) -> Any:
    def loss(w: Any) -> Any:
        carry, ys = lax.scan(lambda c, _: (f.b(w, f.a(w, c)), (c**2).sum()), x, None, length=4)
        return ys.sum() + carry.sum()

    return jax.value_and_grad(loss)(w)


def key_scan(f: Any, key: Any, x: Any) -> Any:
    return lax.scan(lambda c, k: (2 * f.drop(k, c), c.sum()), x, jax.random.split(key, 3))


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "chain": (lambda f, w, x: f.b(w, f.a(w, x)), (W, X)),
    "one value on three slices": (lambda f, w, x: [f.a(w, 2 * x), f.b(w, 2 * x), f.c(w, 2 * x), 2 * x], (W, X)),
    "grad": (lambda f, w, x: jax.grad(lambda w: (f.b(w, f.a(w, x)) ** 2).sum())(w), (W, X)),
    "value_and_grad of two": (
        lambda f, w, x: jax.value_and_grad(lambda w, x: (f.b(w, f.a(w, x)) ** 2).sum(), argnums=(0, 1))(w, x),
        (W, X),
    ),
    "vmap": (lambda f, w, x: jax.vmap(lambda x: f.b(w, f.a(w, x)))(jnp.stack([x, x + 1])), (W, X)),
    "vmap of weights": (lambda f, w, x: jax.vmap(lambda w: f.b(w, x))(jnp.stack([w, w + 1])), (W, X)),
    "remat": (lambda f, w, x: jax.grad(jax.checkpoint(lambda w: f.b(w, f.a(w, x)).sum()))(w), (W, X)),
    "custom_vjp": (lambda f, w, x: jax.grad(lambda w: scaled(f.b(w, scaled(f.a(w, x)))).sum())(w), (W, X)),
    "custom_jvp": (lambda f, w, x: jax.jvp(lambda w: curved(f.b(w, curved(f.a(w, x)))), (w,), (w,)), (W, X)),
    "jacfwd": (lambda f, w, x: jax.jacfwd(lambda x: f.a(w, x).sum(0))(x), (W, X)),
    "hessian": (lambda f, w, x: jax.hessian(lambda x: f.a(w, x).sum())(x[:2]), (W, X)),
    "scan": (scan_case, (W, X)),
    "reverse scan": (lambda f, w, x: scan_case(f, w, x, reverse=True), (W, X)),
    "empty scan": (lambda f, w, x: lax.scan(lambda c, _: (f.a(w, c), c), x, None, length=0), (W, X)),
    "grad of scan": (grad_of_scan, (W, X)),
    "fori_loop": (lambda f, w, x: lax.fori_loop(0, 3, lambda i, c: f.b(w, f.a(w, c)) + i, x), (W, X)),
    "loose alone": (lambda f, w, x: ((x @ w).sum(), jnp.where(x > 0, x, 0), x), (W, X)),
    "empty pytrees": (lambda f, w, x: ({}, None, [f.a(w, x)], ()), (W, X)),
    "nothing": (lambda f, w, x: (), (W, X)),
    "unused arguments": (lambda f, w, x: f.a(np.ones((4, 4), np.float32), jnp.ones((8, 4))), (W, X)),
    "constants": (lambda f, w, x: (jnp.float32(3), 2.5, np.arange(3), w), (W, X)),
    "closed-over arrays": (
        lambda f, w, x: (f.closing(w, x) + BIG[0, 0], f.closing(w, 2 * x).sum() + BIG.sum()),
        (W, X),
    ),
    "unplaced jit over two slices": (
        lambda f, w, x: jit(lambda p, g: jax.tree.map(jnp.subtract, p, g))((f.a(w, x), f.b(w, x)), (x, x)),
        (W, X),
    ),
    "nested jits": (lambda f, w, x: jit(lambda w, x: jit(lambda y: f.b(w, y))(f.a(w, x)) + 1)(w, x), (W, X)),
    "one value twice": (lambda f, w, x: (f.a(w, x),) * 2 + (w, w), (W, X)),
    "numbers": (lambda f, i, r: (i + r, 2 * i), (3, 2.5)),
    "dropout": (lambda f, k, x: [f.drop(k, x) for k in jax.random.split(k)], (jax.random.key(3), X)),
    "keys in a scan": (key_scan, (jax.random.key(3), X)),
    "integers and booleans": (lambda f, i, b: (i + 1, ~b, i[b.sum() - 1]), (np.arange(8), np.arange(8) % 2 == 0)),
}


def on_host(array: Any) -> Any:
    return np.asarray(array)


@pytest.mark.parametrize("name", CASES)
def test_each_case_equals_plain_jax(name: str) -> None:
    function, arguments = CASES[name]
    ours = pw.program(lambda *args: function(Placed, *args))(*arguments)
    plain = jit(lambda *args: function(Plain, *args))(*arguments)
    assert jax.tree.structure(ours) == jax.tree.structure(plain)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(plain), strict=True):
        assert (a.shape, a.dtype, a.weak_type) == (b.shape, b.dtype, b.weak_type)
        np.testing.assert_allclose(on_host(a), on_host(b), rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize(
    "dtype", ["bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "int8", "uint8", "bool", "complex64"]
)
def test_transfers_keep_values_of_all_element_types(dtype: str) -> None:
    x = jnp.asarray(X).astype(dtype)

    @pw.program
    def program(x: Any) -> Any:
        moved = jax.device_put(x, NamedSharding(M2, P("x")))
        return jax.device_put(moved, NamedSharding(M4, P("y", "x"))), moved

    for result in program(x):
        assert result.dtype == x.dtype
        np.testing.assert_array_equal(on_host(result).astype(np.complex64), on_host(x).astype(np.complex64))


def test_typed_keys_are_returned_as_keys() -> None:
    key = jax.random.key(7)
    program: Any = pw.program(lambda k: jax.random.split(k))
    result = program(key)
    back = result.to_jax()
    assert back.dtype == key.dtype and result.dtype == key.dtype and result.shape == (2,)
    expected = jax.random.split(key)
    assert (jax.random.key_data(back) == jax.random.key_data(expected)).all()


def test_a_hand_written_pipeline_of_jits_and_device_puts_equals_plain_jax() -> None:
    """The step places forward, backward and update by hand; only the devices are virtual."""

    def steps(place: bool) -> Callable[..., Any]:
        def put(x: Any, mesh: Any, *spec: Any) -> Any:
            return jax.device_put(x, NamedSharding(mesh, P(*spec))) if place else x

        def compiled(function: Any, mesh: Any) -> Any:
            return jit(function, out_shardings=NamedSharding(mesh, P())) if place else function

        forward = [compiled(layer, m) for m in (M2, M4)]
        backward = [compiled(lambda w, x, g: jax.vjp(layer, w, x)[1](g), m) for m in (M2, M4)]
        update = [compiled(lambda w, g: w - 0.1 * g, m) for m in (M2, M4)]

        def step(weights: Any, x: Any) -> Any:
            h = forward[0](put(weights[0], M2, None, "x"), put(x, M2))
            h_there = put(h, M4, "x")
            y = forward[1](weights[1], h_there)
            g1, gh = backward[1](weights[1], h_there, y)
            g0, _ = backward[0](weights[0], x, put(gh, M2))
            return [update[0](weights[0], g0), update[1](weights[1], g1)], (y**2).sum()

        return step

    ours, plain = pw.program(steps(True)), jit(steps(False))
    a = b = [W, W.T]
    for _ in range(3):
        (a, la), (b, lb) = ours(a, X), plain(b, X)
        assert float(la) == pytest.approx(float(lb), rel=1e-5)


def test_programs_accept_each_others_results_and_check_donation() -> None:
    double = pw.program(lambda x: jax.device_put(x, NamedSharding(M2, P("x"))) * 2, donate_argnums=0)
    elsewhere = pw.program(lambda x: jax.device_put(x, NamedSharding(M4, P("y"))) + 1)
    first = elsewhere(X)
    second = double(first)
    np.testing.assert_allclose(on_host(second), 2 * (X + 1))
    np.testing.assert_allclose(on_host(elsewhere(second)), 2 * (X + 1) + 1)
    third = double(second)
    np.testing.assert_allclose(on_host(third), 4 * (X + 1))
    with pytest.raises(pw.PathwaysError) as caught:
        on_host(second)
    assert caught.value.code == "PWC0207"
    both = pw.program(lambda a, b: (a + 1, a + b), donate_argnums=0)
    same = elsewhere(X)
    for result, expected in zip(both(same, same), (X + 1 + 1, 2 * (X + 1)), strict=True):
        np.testing.assert_array_equal(on_host(result), expected)


def test_static_arguments_and_keywords_are_supported() -> None:
    @pw.program(static_argnums=1)
    def power(x: Any, n: int, *, scale: Any) -> Any:
        return scale * x**n

    np.testing.assert_allclose(on_host(power(X, 2, scale=3.0)), 3 * X**2, rtol=1e-6)
    np.testing.assert_allclose(on_host(power(X, 3, scale=2.0)), 2 * X**3, rtol=1e-6)


def test_a_program_accepts_arrays_that_jax_made_before(root: Any) -> None:
    import optax

    params = {"w": jnp.ones((4, 4))}
    state = optax.adam(1e-3).init(params)  # pyright: ignore[reportUnknownMemberType]
    result = pw.program(lambda p, s: (jax.tree.map(lambda x: x + 1, p), s))(params, state)
    assert jax.tree.structure(result) == jax.tree.structure((params, state))
    assert on_host(result[0]["w"]).sum() == 32


def test_slices_are_numbered_in_order_of_creation() -> None:
    made = pw.make_virtual_device_set()
    first = made.add_slice(devices=2)
    last = made.add_slice(devices=4, island=first)
    here, there = NamedSharding(first.mesh("x"), P("x")), NamedSharding(last.mesh("x"), P("x"))
    f, g = jit(lambda x: x + 1, in_shardings=here), jit(lambda x, y: x * y, in_shardings=(there, there))

    @pw.program
    def early(x: Any) -> Any:
        moved = jax.device_put(x, there)  # the last slice is used first
        return g(f(x), moved)

    lowered = early.lower(X)
    assert lowered.slices == {"s0": first, "s1": last}
    plan = lowered.compile().plan
    assert [(s.name, len(s.devices)) for s in plan.slices] == [("s0", 2), ("s1", 4)]
    assert [(m.slice, m.axes) for m in plan.meshes] == [("s1", (("x", 4),)), ("s0", (("x", 2),))]
    assert "near = @s0" in lowered.as_text() and "near = @s1" not in lowered.as_text()
    np.testing.assert_array_equal(np.asarray(early(X)), (X + 1) * X)
