"""Tests operators, indexing, methods and attributes of `pw.Array` against those of `jax.Array`."""

import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from support.sample_arrays import FLOATS, INTS, JF, JI, MESH, SHARDING, SLICE, TOTAL, X, assert_same

import pathways as pw

random: Any = jax.random


BINARY_OPERATIONS = (
    *(operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow),
    *(operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne, operator.matmul, divmod),
)
BINARY_INT_OPERATIONS = (operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift)
_BINARY_NAMES = (
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "divmod",
    "pow",
    "matmul",
    "and",
    "or",
    "xor",
    "lshift",
)
_OTHER_NAMES = ("neg", "pos", "abs", "invert", "round", "getitem", "setitem", "contains", "iter", "copy", "dlpack")
OPERATORS = {f"__{r}{n}__" for n in (*_BINARY_NAMES, "rshift") for r in ("", "r")} | {f"__{n}__" for n in _OTHER_NAMES}
UNARY_OPERATIONS = (operator.neg, operator.pos, abs, round, list, len, reversed, bool, float, int, complex)


@pytest.mark.parametrize("operation", [*BINARY_OPERATIONS, *BINARY_INT_OPERATIONS])
def test_binary_operators_equal_those_of_jax(operation: Any) -> None:
    ours, plain = (INTS, JI) if operation in BINARY_INT_OPERATIONS else (FLOATS, JF)
    assert_same(operation(ours, ours), operation(plain, plain))
    for other in (plain, np.asarray(plain)):
        assert_same(operation(ours, other), operation(plain, other))
        assert_same(operation(other, ours), operation(other, plain))
    if operation is not operator.matmul:
        assert_same(operation(ours, 2), operation(plain, 2))
        assert_same(operation(2, ours), operation(2, plain))


@pytest.mark.parametrize("operation", UNARY_OPERATIONS)
def test_unary_operators_equal_those_of_jax(operation: Any) -> None:
    ours, plain = (TOTAL, jnp.sum(JF)) if operation in (bool, float, int, complex) else (FLOATS, JF)
    results: Any = operation(ours), operation(plain)
    assert_same(*([*r] if operation is reversed else r for r in results))
    assert_same(~INTS, ~JI)


def test_in_place_operators_leave_the_original_array_unchanged() -> None:
    y = FLOATS
    y += 1
    y *= 2
    assert_same(y, (JF + 1) * 2)
    np.testing.assert_array_equal(np.asarray(FLOATS), X + 1)
    with pytest.raises(TypeError, match=r"\.at\[index\]\.set"):
        FLOATS[0] = 1.0


INDEXING: dict[str, Callable[[Any], Any]] = {
    "x[1]": lambda x: x[1],
    "x[-2:]": lambda x: x[-2:],
    "x[None, ::2]": lambda x: x[None, ::2],
    "x[x > 2]": lambda x: x[x > 2],
    "x[array]": lambda x: x[np.array([3, 0])],
    "x[x as int]": lambda x: x[x.astype(int) - 1],
    "array[x]": lambda x: jnp.arange(10.0)[x.astype(int)],
    "x.at.set": lambda x: x.at[1].set(7.0),
    "x.at.add": lambda x: x.at[:2].add(x[2:]),
    "y.at.set(x)": lambda x: jnp.zeros(4).at[:].set(x),
    "for v in x": lambda x: [v * 2 for v in x],
    "a, b, c, d = x": lambda x: dict(enumerate(x)),
    "2.0 in x": lambda x: (2.0 in x, 9.0 in x),
    "sum, min, max": lambda x: (sum(x), min(x), max(x)),
    "list[x]": lambda x: "abcdef"[x.astype(int)[0]],
}


@pytest.mark.parametrize("name", INDEXING)
def test_indexing_equals_that_of_jax(name: str) -> None:
    assert_same(INDEXING[name](FLOATS), INDEXING[name](JF))


METHODS: dict[str, Callable[[Any], Any]] = {
    "T, mT": lambda x: (x.T, x.reshape(2, 2).mT),
    "real, imag": lambda x: (x.real, x.imag),
    "sums": lambda x: (x.sum(), x.mean(), x.std(), x.var(), x.prod(), x.any(), x.all()),
    "ends": lambda x: (x.min(), x.max(), x.ptp()),
    "keywords": lambda x: x.sum(axis=0, keepdims=True),
    "order": lambda x: (x.argmax(), x.argmin(), x.argsort(), x.sort(), x.argpartition(1), x.searchsorted(2.5)),
    "shape": lambda x: (x.reshape(2, -1), x.ravel(), x.flatten(), x[None].squeeze(), x.reshape(2, 2).swapaxes(0, 1)),
    "two dimensions": lambda x: (x.reshape(2, 2).trace(), x.reshape(2, 2).diagonal(), x.reshape(2, 2).transpose()),
    "astype": lambda x: (x.astype(jnp.bfloat16), x.astype(int), x.view(jnp.uint32)),
    "cumulative": lambda x: (x.cumsum(), x.cumprod()),
    "choose": lambda x: (x.take(np.array([1])), x.compress(np.array([True, False])), x.repeat(2), x.nonzero()),
    "numbers": lambda x: (x.round(1), x.clip(2, 3), x.conj(), x.conjugate(), x.dot(x), x.astype(int).choose([X] * 9)),
    "to_device": lambda x: x.to_device(jax.devices()[0]),
    "byteswap": lambda x: x.astype(jnp.int16).byteswap(),
    "item": lambda x: (x.item(2), x.tolist(), x.tobytes(), x.sum().item()),
    "namespace": lambda x: x.__array_namespace__().square(x),
    "facts": lambda x: (x.shape, x.ndim, x.size, x.nbytes, x.itemsize, str(x.dtype), x.weak_type, len(x)),
    "deleted": lambda x: (x.is_deleted(), x.is_fully_addressable, x.committed is not None),
}


@pytest.mark.parametrize("name", METHODS)
def test_methods_equal_those_of_jax(name: str) -> None:
    assert_same(METHODS[name](FLOATS), METHODS[name](JF))


def test_a_pw_array_has_every_public_attribute_of_a_jax_array() -> None:
    """Exempts attributes of a single JAX buffer: its address, its layout and the computation that made it."""
    own = {"aval", "clone", "device_buffer", "device_buffers", "format", "platform", "traceback"}
    own |= {"unsafe_buffer_pointer", "unsafe_raw_buffer"}
    ours = {name for kind in pw.Array.__mro__[:2] for name in vars(kind)}
    missing = {n for n in dir(JF) if not n.startswith("_")} - ours - own
    assert not missing
    assert not {n for n in dir(JF) if n in OPERATORS} - ours


def test_shards_lie_on_the_virtual_devices() -> None:
    assert FLOATS.devices() == set(SLICE.devices) and FLOATS.device == FLOATS.sharding
    shards = FLOATS.addressable_shards
    assert [s.device for s in shards] == SLICE.devices and [s.replica_id for s in shards] == [0, 0]
    for shard in (*shards, *FLOATS.global_shards):
        np.testing.assert_array_equal(shard.data, (X + 1)[shard.index])
    assert_same(FLOATS.addressable_data(1), JF[2:])
    assert not FLOATS.is_fully_replicated and FLOATS.on_device_size_in_bytes() == FLOATS.nbytes
    everywhere: Any = pw.program(lambda x: jax.device_put(x, NamedSharding(MESH, P())))(X)
    assert [s.replica_id for s in everywhere.addressable_shards] == [0, 1] and everywhere.is_fully_replicated
    assert everywhere.on_device_size_in_bytes() == 2 * everywhere.nbytes
    keys: Any = pw.program(lambda: jax.device_put(random.split(random.key(0), 4), SHARDING))()
    for shard in keys.addressable_shards:
        assert_same(shard.data, random.split(random.key(0), 4)[shard.index])
