"""Tests JAX transformations of programs and programs that call programs: they work, or an error names the cause."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import checkify
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw

devices = pw.make_virtual_device_set()
first, second = (devices.add_slice(devices=2).mesh("d") for _ in range(2))
f = jax.jit(lambda x: x + 1, in_shardings=NamedSharding(first, P("d")))
g = jax.jit(lambda x: x * x, in_shardings=NamedSharding(second, P("d")))
X = np.arange(4, dtype=np.float32)


@pw.program
def step(x: Any) -> Any:
    return g(f(x)).sum()


@pw.program
def one_slice(x: Any) -> Any:
    return f(x).sum()


OUTSIDE_TRANSFORMATIONS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "jit": ("jax.jit", lambda p: jax.jit(p)(X)),
    "jit, lowered": ("jax.jit", lambda p: jax.jit(p).lower(X)),
    "filter_jit": ("jax.jit", lambda p: eqx.filter_jit(p)(X)),
    "scan": ("jax.jit", lambda p: lax.scan(lambda c, x: (c, p(x)), 0.0, np.ones((3, 4), np.float32))),
    "cond": ("jax.jit", lambda p: lax.cond(True, p, p, X)),
    "pmap": ("jax.jit", lambda p: jax.pmap(p)(X[None])),
    "grad": ("jax.grad", lambda p: jax.grad(p)(X)),
    "value_and_grad": ("jax.grad", lambda p: jax.value_and_grad(p)(X)),
    "grad in jit": ("jax.grad", lambda p: jax.jit(jax.grad(p))(X)),
    "grad of remat": ("jax.grad", lambda p: jax.grad(jax.checkpoint(p))(X)),
    "filter_grad": ("jax.grad", lambda p: eqx.filter_grad(p)(X)),
    "jvp": ("jax.grad", lambda p: jax.jvp(p, (X,), (X,))),
    "linearize": ("jax.grad", lambda p: jax.linearize(p, X)),
    "hessian": ("jax.grad", lambda p: jax.hessian(p)(X)),
    "vmap": ("jax.vmap", lambda p: jax.vmap(p)(np.ones((3, 4), np.float32))),
    "filter_vmap": ("jax.vmap", lambda p: eqx.filter_vmap(p)(np.ones((3, 4), np.float32))),
    "checkify": ("one by one", lambda p: checkify.checkify(p)(X)[0].throw()),
}


@pytest.mark.parametrize("program", [step, one_slice], ids=["two slices", "one slice"])
@pytest.mark.parametrize("name", OUTSIDE_TRANSFORMATIONS)
def test_a_transformation_around_a_program_is_refused_by_its_name(name: str, program: pw.Program) -> None:
    transformation, around = OUTSIDE_TRANSFORMATIONS[name]
    with pytest.raises(pw.PathwaysError) as caught:
        around(program)
    error = caught.value.diagnostic
    assert caught.value.code == "PWC0106" and transformation in error.text(error.title)
    assert program.name in error.text(error.title)
    assert error.where is not None and error.where.file == __file__


def test_result_types_are_known_without_running_the_program() -> None:
    made = jax.eval_shape(step, X)
    assert (made.shape, made.dtype) == ((), np.float32)
    assert jax.eval_shape(step, jax.ShapeDtypeStruct((8,), "float32")).shape == ()
    (eqn,) = jax.make_jaxpr(step)(X).eqns
    assert eqn.primitive.name == "program" and eqn.params["name"] == "step"
    trees = pw.program(lambda a, *, b: {"sum": f(a["x"]) + b, "keys": jax.random.key(0)})
    made = jax.eval_shape(lambda x: trees({"x": x}, b=2.0), X)
    assert made["sum"].shape == (4,) and str(made["keys"].dtype) == "key<fry>"


def test_a_program_that_cannot_be_traced_is_refused_by_eval_shape() -> None:
    wrong = pw.program(lambda x: f(x) if x[0] > 0 else x)
    with pytest.raises(pw.PathwaysError, match="PWC0103"):
        jax.eval_shape(wrong, X)


INSIDE_TRANSFORMATIONS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "grad": (jax.grad(step), lambda x: 2 * (x + 1)),
    "vmap": (lambda x: jax.vmap(step)(jnp.stack([x, x + 1])), lambda x: [((x + i) ** 2).sum() for i in (1, 2)]),
    "jit": (jax.jit(step), lambda x: ((x + 1) ** 2).sum()),
    "grad of jit": (jax.grad(jax.jit(step)), lambda x: 2 * (x + 1)),
}


@pytest.mark.parametrize("name", INSIDE_TRANSFORMATIONS)
def test_transformations_work_inside_a_program(name: str) -> None:
    """Repeated, as JAX caches traces: a trace outside a program, which is refused, must not change one inside."""
    transformed, expected = INSIDE_TRANSFORMATIONS[name]
    for _ in range(2):
        with pytest.raises(pw.PathwaysError, match="PWC0106"):
            transformed(X)
        assert np.allclose(pw.program(lambda x: transformed(x))(X), expected(X))
        assert np.allclose(pw.program(transformed)(X), expected(X))


def test_a_program_called_with_constants_is_part_of_another_program() -> None:
    @pw.program
    def whole(x: Any) -> Any:
        return g(x) + step(np.ones(4, np.float32))

    assert np.allclose(whole(X), X * X + 16)


def test_endless_recursion_of_programs_is_refused() -> None:
    @pw.program
    def endless(x: Any) -> Any:
        return endless(f(x))

    @pw.program
    def there(x: Any) -> Any:
        return back(f(x))

    @pw.program
    def back(x: Any) -> Any:
        return there(g(x))

    for program in (endless, there):
        with pytest.raises(pw.PathwaysError, match="PWC0107") as caught:
            program(X)
        where = caught.value.diagnostic.where
        assert where is not None and where.function in ("endless", "back")
        with pytest.raises(pw.PathwaysError, match="PWC0107"):
            jax.eval_shape(program, X)
    with pytest.raises(pw.PathwaysError, match="PWC0107"):  # the state is reset: the same error again
        endless(X)


def test_recursion_deeper_than_python_allows_is_refused() -> None:
    @pw.program(static_argnums=1)
    def deeper(x: Any, n: int) -> Any:
        return deeper(x, n + 1)

    def plain(x: Any) -> Any:
        return plain(x)

    for call in (lambda: deeper(X, 0), lambda: pw.program(plain)(X)):
        with pytest.raises(pw.PathwaysError, match="PWC0107"):
            call()
    assert np.allclose(step(X), ((X + 1) ** 2).sum())


def test_finite_recursion_of_programs_works() -> None:
    @pw.program(static_argnums=1)
    def power(x: Any, n: int) -> Any:
        return x if n == 0 else power(f(x), n - 1)

    @pw.program
    def halves(x: Any) -> Any:
        return x[0] if x.shape[0] == 1 else halves(x[::2]) + halves(x[1::2])

    assert np.allclose(power(X, 3), X + 3)
    assert np.allclose(pw.program(lambda x: power(x, 2))(X), X + 2)
    assert np.allclose(halves(X), X.sum())


def test_jax_settings_that_affect_tracing_are_part_of_the_signature() -> None:
    traced: list[Any] = []

    @pw.program
    def product(x: Any) -> Any:
        traced.append(jax.config.jax_default_matmul_precision)  # pyright: ignore[reportAttributeAccessIssue]
        return f(x) @ x

    product(X)
    with jax.default_matmul_precision("highest"):
        product(X)
    product(X)
    assert traced == [None, "highest"]


def test_static_argument_numbers_of_methods_count_self() -> None:
    class Model:
        scale = 3.0

        @pw.program(static_argnums=(0, 2))
        def run(self, x: Any, n: int) -> Any:
            return f(x) * self.scale + n

    assert np.allclose(Model().run(jnp.asarray(X), 2), (X + 1) * 3 + 2)
