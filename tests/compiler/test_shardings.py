"""Tests shardings as users write them: meshes of one to three automatic, explicit or manual axes, and constraints."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw
from pathways.dialect.ir import pw as ops
from pathways.dialect.ir.program import ProgramIR

X = np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32)
W = np.random.default_rng(1).standard_normal((16, 8)).astype(np.float32)

jit: Any = jax.jit
shard_map: Any = jax.shard_map
Model = Callable[[Any, Any], Any]


def mesh_of(names: tuple[str, ...], shape: tuple[int, ...], kind: AxisType = AxisType.Auto) -> Mesh:
    count = int(np.prod(shape))
    devices = pw.make_virtual_device_set().add_slice(devices=count).devices
    return Mesh(np.array(devices).reshape(shape), names, axis_types=(kind,) * len(names))


def square(kind: AxisType = AxisType.Auto) -> Mesh:
    return mesh_of(("a", "b"), (2, 2), kind)


def on(mesh: Mesh, *specs: Any) -> tuple[NamedSharding, ...]:
    return tuple(NamedSharding(mesh, s) for s in specs)


def layer(x: Any, w: Any) -> Any:
    return jnp.tanh(x @ w)


def two_axes() -> tuple[Model, Model]:
    return jit(layer, in_shardings=on(square(), P("a", None), P(None, "b"))), layer


def three_axes() -> tuple[Model, Model]:
    mesh = mesh_of(("a", "b", "c"), (2, 2, 2))
    (out,) = on(mesh, P("c", ("a", "b")))
    return jit(layer, in_shardings=on(mesh, P(("a", "c"), None), P(None, "b")), out_shardings=out), layer


def constraint_inside() -> tuple[Model, Model]:
    mesh = square()
    (inner,) = on(mesh, P("a", "b"))
    return jit(
        lambda x, w: jnp.tanh(lax.with_sharding_constraint(x @ w, inner)), in_shardings=on(mesh, P(), P())
    ), layer


def unconstrained_inside() -> tuple[Model, Model]:
    mesh = square()
    (inner,) = on(mesh, P("a", P.UNCONSTRAINED))
    placed = jit(
        lambda x, w: jnp.tanh(lax.with_sharding_constraint(x @ w, inner)), in_shardings=on(mesh, P(), P(None, "b"))
    )
    return placed, layer


def manual() -> tuple[Model, Model]:
    spec = {"in_specs": (P("a", "b"), P("b", None)), "out_specs": P("a", None)}
    return shard_map(lambda x, w: lax.psum(x @ w, "b"), mesh=square(), **spec), lambda x, w: x @ w


def some_axes_manual() -> tuple[Model, Model]:
    def body(x: Any, w: Any) -> Any:
        return lax.with_sharding_constraint(lax.psum(x @ w, "b"), P("a", None))

    spec = {"in_specs": (P(None, "b"), P("b", None)), "out_specs": P(None, None), "axis_names": {"b"}}
    return jit(shard_map(body, mesh=square(), **spec)), lambda x, w: x @ w


def manual_differentiated() -> tuple[Model, Model]:
    placed, plain = manual()
    grads = (jax.grad(lambda w, x, f=f: (f(x, w) ** 2).sum()) for f in (placed, plain))
    return tuple(lambda x, w, g=g: g(w, x) for g in grads)  # pyright: ignore[reportReturnType]


def explicit() -> tuple[Model, Model]:
    return jit(layer, in_shardings=on(square(AxisType.Explicit), P("a", None), P(None, "b"))), layer


def explicit_by_device_put() -> tuple[Model, Model]:
    put = on(square(AxisType.Explicit), P("a", None), P(None, "b"))
    return lambda x, w: jit(layer)(*jax.device_put((x, w), put)), layer


def explicit_out_sharding() -> tuple[Model, Model]:
    mesh = square(AxisType.Explicit)
    (out,) = on(mesh, P("a", None))
    placed = jit(
        lambda x, w: jnp.einsum("ij,jk->ik", x, w, out_sharding=out), in_shardings=on(mesh, P("a", "b"), P("b", None))
    )
    return placed, lambda x, w: x @ w


def explicit_over_two_slices() -> tuple[Model, Model]:
    first, second = square(AxisType.Explicit), mesh_of(("c",), (2,), AxisType.Explicit)
    (rows, columns) = on(second, P("c", None), P(None, "c"))
    f = jit(layer, in_shardings=on(first, P("a", None), P(None, "b")))
    g = jit(jnp.sin, in_shardings=rows)

    def loss(w: Any, x: Any) -> Any:
        return (g(jax.device_put(f(x, w), columns)) ** 2).sum()

    return lambda x, w: jax.grad(loss)(w, x), lambda x, w: jax.grad(lambda w: (jnp.sin(layer(x, w)) ** 2).sum())(w)


@pytest.mark.parametrize(
    "make",
    [
        two_axes,
        three_axes,
        constraint_inside,
        unconstrained_inside,
        manual,
        some_axes_manual,
        manual_differentiated,
        explicit,
        explicit_by_device_put,
        explicit_out_sharding,
        explicit_over_two_slices,
    ],
)
def test_programs_equal_plain_jax(make: Callable[[], tuple[Model, Model]]) -> None:
    placed, plain = make()
    np.testing.assert_allclose(
        np.asarray(pw.program(lambda x, w: placed(x, w))(X, W)), plain(X, W), rtol=2e-5, atol=2e-5
    )


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_set_mesh_determines_where_a_program_runs(kind: AxisType) -> None:
    mesh = square(kind)
    step = pw.program(lambda x, w: jit(layer)(x, w) + 1)
    with jax.set_mesh(mesh):
        lowered = step.lower(X, W)
        result = np.asarray(step(X, W))
    np.testing.assert_allclose(result, layer(X, W) + 1, rtol=2e-5, atol=2e-5)
    assert [op.devices for op in ProgramIR(lowered.module).slices.values()] == [4]
    assert [op.devices for op in ProgramIR(step.lower(X, W).module).slices.values()] == [1]
    assert len(step(X, W).devices()) == 1  # compiled again: the mesh is part of the signature


def test_meshes_of_a_slice_have_the_requested_axis_types() -> None:
    slice_ = pw.make_virtual_device_set().add_slice(devices=4)
    assert slice_.mesh(("a", "b"), (2, 2)).axis_types == (AxisType.Auto,) * 2
    assert slice_.mesh("a", axis_types=AxisType.Explicit).axis_types == (AxisType.Explicit,)
    mixed = (AxisType.Explicit, AxisType.Auto)
    assert slice_.mesh(("a", "b"), (2, 2), axis_types=mixed).axis_types == mixed


def test_a_shard_map_without_a_mesh_uses_the_mesh_of_set_mesh() -> None:
    body = shard_map(lambda x, w: lax.psum(x @ w, "b"), in_specs=(P("a", "b"), P("b", None)), out_specs=P("a", None))
    with jax.set_mesh(square()):
        result = np.asarray(pw.program(lambda x, w: body(x, w))(X, W))
    np.testing.assert_allclose(result, X @ W, rtol=2e-5, atol=2e-5)


def shardings_of(program: ProgramIR) -> list[tuple[Any, Any]]:
    return [([p.dims for p in c.in_shardings or ()], [p.dims for p in c.out_shardings or ()]) for c in program.calls()]


def lowered_to(phase: str, function: Callable[..., Any], *args: Any) -> ProgramIR:
    from pathways.dialect.mlir import make_context, parse

    text = pw.program(function).lower(*args).as_text(phase, debug_info=True)
    return ProgramIR(parse(text, make_context()))


def test_an_open_value_gets_the_sharding_that_moves_the_fewest_bytes() -> None:
    """The first consumer needs rows, the second the whole value. Taking rows of the whole value moves no bytes."""
    mesh = mesh_of(("a",), (4,))
    rows, whole, columns = on(mesh, P("a", None), P(), P(None, "a"))
    takes_rows, takes_whole = jit(jnp.sin, in_shardings=rows), jit(jnp.cos, in_shardings=whole)
    program = lowered_to("transfer", lambda x: (takes_rows(x), takes_whole(x)), X)
    (x,) = program.arguments
    assert x.sharding is not None and x.sharding.dims == ((), ())
    (moved,) = [op for op in program.nodes() if isinstance(op, ops.TransferOp)]
    assert moved.bytes == 0 and moved.route == "local" and "it is (-, -)" in (moved.reason or "")
    takes_columns = jit(jnp.tanh, in_shardings=columns)
    program = lowered_to("transfer", lambda x: (takes_rows(x), takes_columns(x), takes_columns(x + 1)), X)
    (moved,) = [op for op in program.nodes() if isinstance(op, ops.TransferOp)]
    assert moved.bytes == X.nbytes * 3 // 4


def test_an_open_result_gets_the_sharding_of_its_consumer() -> None:
    """No reshard is inserted between the two calls."""
    mesh = mesh_of(("a",), (4,))
    rows, columns = on(mesh, P("a", None), P(None, "a"))
    first, second = jit(lambda x: x * 2, in_shardings=rows), jit(jnp.sin, in_shardings=columns)
    program = lowered_to("transfer", lambda x: second(first(x) + 1), X)
    assert not [op for op in program.nodes() if isinstance(op, ops.TransferOp)]
    assert shardings_of(program)[-1][0] == [((), ("a",))]


@pytest.mark.parametrize("length", [3, 24])
def test_backward_propagation_has_no_length_limit(length: int) -> None:
    """Only the last computation of a chain states a sharding, which must reach the first one at any length."""
    mesh = mesh_of(("a",), (2,))
    anchor, (last,) = jit(lambda x: x, in_shardings=None), on(mesh, P("a", None))
    links = [
        jit(lambda x, i=i: lax.with_sharding_constraint(x + i, NamedSharding(mesh, P(*[P.UNCONSTRAINED] * 2))))
        for i in range(length)
    ]
    end = jit(jnp.sin, in_shardings=last)

    def chain(x: Any) -> Any:
        for link in links:
            x = link(anchor(x))
        return end(x)

    program = lowered_to("shard", chain, X)
    (x,) = program.arguments
    assert x.sharding is not None and x.sharding.dims == (("a",), ())


def test_shardy_priorities_in_the_ir_are_kept() -> None:
    """`write_signature` must not overwrite priorities that Shardy wrote into the IR."""
    from pathways.compiler.computations.shardy import SignatureShardings, write_signature
    from pathways.dialect.ir.functions import main_of
    from pathways.dialect.mlir import ir, make_context

    source = """module @f { sdy.mesh @mesh = <["a"=2]>
      func.func public @main(%x: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"a"}p1]>}) -> tensor<4xf32> {
        return %x : tensor<4xf32> } }"""
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(source)
        write_signature(module.operation, (("a", 2),), SignatureShardings(((("a",),),), (None,)))
        assert "p1" in str(main_of(module.operation).arg_attrs)


def test_propagation_reads_the_arguments_equally_often_for_any_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read again for each argument, 400 arguments took longer than the rest of propagation."""
    read: list[int] = []
    known: Any = ProgramIR.arguments
    counted = property(lambda program: read.append(1) or known.fget(program), known.fset)

    def reads(count: int) -> int:
        (one,) = on(mesh_of(("a",), (2,)), P("a"))
        add = jit(lambda *xs: sum(xs[1:], xs[0]), in_shardings=one, out_shardings=one)
        lowered = pw.program(lambda *xs: add(*xs)).lower(*[X] * count)
        with monkeypatch.context() as patch:
            patch.setattr(ProgramIR, "arguments", counted)
            read.clear()
            lowered.compile()
        return len(read)

    assert reads(2) == reads(12) > 0
