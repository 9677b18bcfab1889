"""Tests programs that name devices of their own process: each stands for a virtual one, or is refused."""

from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from support.processes import run_python

import pathways as pw
from pathways.dialect.ir.program import ProgramIR

HEAD = """
import jax, numpy as np, pathways as pw
jax.config.update("jax_num_cpu_devices", 8)
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding as N, PartitionSpec as P

def mesh(types):
    return jax.make_mesh((2, 4), ("a", "b"), axis_types=(types, types))

AUTO, EXPLICIT = mesh(AxisType.Auto), mesh(AxisType.Explicit)
SLICE = pw.make_virtual_device_set().add_slice(devices=8)
MINE = SLICE.mesh(("a", "b"), (2, 4))
PAIR = pw.make_virtual_device_set().add_slice(devices=2).mesh("x")
X = np.arange(32, dtype=np.float32).reshape(4, 8)

def step(m, constrain):
    def function(x):
        y = constrain(jax.device_put(x, N(m, P("a"))) * 2, N(m, P("a", "b")))
        y = jax.jit(lambda v: v * 2, in_shardings=N(m, P("a", "b")), out_shardings=N(m, P("a", "b")))(y)
        summed = lambda v: v + jax.lax.psum(v.sum(), "b")
        y = jax.shard_map(summed, mesh=m, in_specs=P("a", "b"), out_specs=P("a", "b"))(y)
        y = jax.lax.scan(lambda c, _: (constrain(c + 1, N(m, P("a", "b"))), None), y, None, length=3)[0]
        return y, jax.device_put(y.sum(), jax.devices()[3])
    return function

def same(function, *options, **named):
    ours, plain = pw.program(function, **named)(X), jax.jit(function)(X)
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(plain)):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-6)
    return ours

def code(function, **named):
    try:
        return pw.program(function, **named)(X) and "none"
    except pw.PathwaysError as error:
        return error.code
"""
CASES = {
    "automatic axes": """
        y, total = same(step(AUTO, jax.lax.with_sharding_constraint))
        assert y.sharding == N(AUTO, P("a", "b")) and y.devices() == set(jax.devices()), y.sharding
    """,
    "explicit axes": "same(step(EXPLICIT, jax.sharding.reshard))",
    "the slice of the program": """
        def function(x):
            y = jax.jit(lambda v: v * 2, in_shardings=N(MINE, P("a")))(x)
            return jax.device_put(jax.lax.with_sharding_constraint(y, N(AUTO, P("a", "b"))), N(AUTO, P("b")))
        y = pw.program(function)(X)
        np.testing.assert_array_equal(np.asarray(y), 2 * X)
        assert y.sharding.device_set == set(SLICE.devices) and y.sharding.spec[0] == "b"
    """,
    "some devices, then all": """
        some = jax.make_mesh((2,), ("a",), axis_types=(AxisType.Auto,), devices=jax.devices()[:2])
        function = lambda x: jax.device_put(jax.device_put(x, N(some, P("a"))) * 2, N(AUTO, P("a")))
        assert "devices = 8" in pw.program(function).lower(X).as_text()
    """,
    "a slice by name": """
        function = lambda x: jax.device_put(jax.device_put(x, N(PAIR, P())), N(AUTO, P("a"))) + 1
        assert code(function) == "PWC0202"
        y = pw.program(function, meshes={AUTO: SLICE})(X)
        np.testing.assert_array_equal(np.asarray(y), X + 1)
        assert y.sharding.device_set == set(SLICE.devices)
        assert code(function, meshes={AUTO: PAIR.devices.flat[0].slice}) == "PWC0201"
    """,
    "a slice that a part names": """
        inner = pw.program(lambda x: jax.device_put(x, N(AUTO, P("a"))), meshes={AUTO: SLICE})
        y = pw.program(lambda x: inner(x) + 1)(X)
        np.testing.assert_array_equal(np.asarray(y), X + 1)
        assert y.sharding.device_set == set(SLICE.devices)
    """,
    "inside of a solve": """
        def function(x):
            move = lambda v: jax.device_put(2 * v, jax.devices()[0])
            return jax.lax.custom_linear_solve(move, x, lambda _, b: b / 2, symmetric=True)
        same(function)
    """,
    "mapped over a slice of the program": """
        function = lambda x: jax.shard_map(lambda v: v + 1, mesh=AUTO, in_specs=P("a"), out_specs=P("a"))(
            jax.device_put(x, N(MINE, P("a"))))
        assert code(function) == "PWC0202"
    """,
    "one device beside a slice": """
        function = lambda x: jax.device_put(jax.device_put(x, N(PAIR, P("x"))) * 2, jax.devices()[5]) + 1
        y = pw.program(function)(X)
        np.testing.assert_array_equal(np.asarray(y), 2 * X + 1)
        assert y.sharding.device_set == set(PAIR.devices.flat)
    """,
    "pmap": """
        y = same(lambda x: jax.pmap(lambda v: v + jax.lax.psum(v, "i"), axis_name="i")(jnp.stack([x] * 8)))
    """,
}


@pytest.mark.parametrize("name", CASES)
def test_own_devices_stand_for_virtual_ones(name: str) -> None:
    done = run_python("-c", HEAD + "\n".join(line.removeprefix(" " * 8) for line in CASES[name].splitlines()))
    assert done.returncode == 0, done.stderr


def test_a_map_over_one_own_device_beside_a_slice_is_on_a_slice_of_one_device() -> None:
    any_jax: Any = jax
    own = Mesh(np.array(jax.devices()[:1]), ("a",))
    pair = NamedSharding(pw.make_virtual_device_set().add_slice(devices=2).mesh("x"), P("x"))
    mapped = any_jax.shard_map(lambda v: v + 1, mesh=own, in_specs=P("a"), out_specs=P("a"))
    doubled = any_jax.jit(lambda x: x * 2, in_shardings=pair)
    program = ProgramIR(pw.program(lambda x: mapped(doubled(x))).lower(np.ones(4, np.float32)).module)
    devices = [program.slices[program.meshes[call.mesh].slice].devices for call in program.calls()]
    assert devices == [2, 1]
