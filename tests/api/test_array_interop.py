"""Tests `pw.Array` outside of programs: JAX, numpy, operators and libraries accept it, and fetch its values."""

import copy
import operator
import pickle
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import checkify
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw
from pathways.api.process import process

SLICE = pw.make_virtual_device_set().add_slice(devices=2)
MESH = SLICE.mesh("x")
SHARDING = NamedSharding(MESH, P("x"))
jit: Any = jax.jit
lax: Any = jax.lax
random: Any = jax.random
on_two: Any = jit(lambda x: x + 1, in_shardings=SHARDING, out_shardings=SHARDING)


@pw.program
def step(x: Any) -> Any:
    return on_two(x), on_two(x).astype(jnp.int32), on_two(x).sum(), random.key(0), x[0] * 0 + 1.5


X = np.arange(4, dtype=np.float32)
FLOATS, INTS, TOTAL, KEY, SCALAR = step(X)
LOCAL_SHARDING = jax.sharding.SingleDeviceSharding(jax.devices()[0])
LOCAL_MESH = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("q",))
JF, JI = jnp.asarray(X + 1), jnp.asarray(X + 1, jnp.int32)


def code_of(function: Callable[..., Any], *arguments: Any) -> str:
    """Returns the code of the error that a call raises; the error must point into this file."""
    with pytest.raises(pw.PathwaysError) as caught:
        function(*arguments)
    where = caught.value.diagnostic.where
    assert where is not None and "test_array_interop" in where.file
    return caught.value.code


def assert_same(ours: Any, plain: Any) -> None:
    """Asserts equal values, types, weak types and pytree structures: where JAX gives a jax.Array, so does `ours`."""
    assert jax.tree.structure(ours) == jax.tree.structure(plain)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(plain), strict=True):
        assert type(a) is type(b)
        if hasattr(b, "dtype") and jnp.issubdtype(b.dtype, jax.dtypes.prng_key):
            a, b = random.key_data(a), random.key_data(b)
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
        assert getattr(a, "dtype", None) == getattr(b, "dtype", None)
        assert getattr(a, "weak_type", None) == getattr(b, "weak_type", None)


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
    assert code_of(np.asarray, KEY) == "PWC0505" and "key" in repr(KEY) and "key" in str(KEY)


def test_pickles_load_as_jax_arrays_and_copies_share_the_buffer() -> None:
    assert_same(pickle.loads(pickle.dumps({"w": FLOATS, "k": KEY})), {"w": JF, "k": random.key(0)})
    weak: Any = pw.program(lambda v: v + 1)(1.5)
    assert_same(pickle.loads(pickle.dumps(weak)), jnp.asarray(2.5))
    buffers = len(process().store.buffers)
    copies = [copy.copy(FLOATS), copy.deepcopy({"w": FLOATS})["w"], FLOATS.copy()]
    assert len(process().store.buffers) == buffers
    for one in copies:
        assert isinstance(one, pw.Array) and one.sharding == FLOATS.sharding
        np.testing.assert_array_equal(np.asarray(one), X + 1)


def test_a_copy_stays_usable_when_other_copies_are_donated_or_deleted() -> None:
    eat: Any = pw.program(lambda x: on_two(x), donate_argnums=0)
    first = step(X)[0]
    second, third = first.copy(), copy.deepcopy(first)
    np.testing.assert_array_equal(np.asarray(eat(first)), X + 2)
    second.delete()
    np.testing.assert_array_equal(np.asarray(third), X + 1)
    assert first.is_deleted() and second.is_deleted() and not third.is_deleted()


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


def test_a_pw_array_has_every_public_attribute_of_a_jax_array() -> None:
    """Exempts attributes of a single JAX buffer: its address, its layout and the computation that made it."""
    own = {"aval", "clone", "device_buffer", "device_buffers", "format", "platform", "traceback"}
    own |= {"unsafe_buffer_pointer", "unsafe_raw_buffer"}
    ours = {name for kind in pw.Array.__mro__[:2] for name in vars(kind)}
    missing = {n for n in dir(JF) if not n.startswith("_")} - ours - own
    assert not missing
    assert not {n for n in dir(JF) if n in OPERATORS} - ours


def test_using_a_donated_or_deleted_array_raises_a_coded_error() -> None:
    eat: Any = pw.program(lambda x: on_two(x), donate_argnums=0)
    donated, deleted = step(X)[0], step(X)[0]
    eat(donated)
    deleted.delete()
    deleted.delete()
    uses: tuple[Callable[[Any], Any], ...] = (
        *(np.asarray, jnp.sum, lambda x: x + 1, lambda x: x[0], list, lambda x: x.T, lambda x: x.mean(), pickle.dumps),
        *(copy.deepcopy, jax.device_put, jit(lambda a: a), jax.device_get, np.from_dlpack, eat),
        *(lambda x: x.addressable_shards, lambda x: x.copy_to_host_async()),
        *(lambda x: x.block_until_ready(), lambda x: x.is_ready()),
    )
    for use in uses:
        assert code_of(use, donated) == "PWC0207"
        assert code_of(use, deleted) == "PWC0217"
    assert "donated" in repr(donated) and "deleted" in repr(deleted) and "deleted" in str(deleted)
    assert donated.shape == (4,) and donated.dtype == np.float32 and donated.devices() == set(SLICE.devices)


def test_deleting_an_array_frees_its_memory_at_once() -> None:
    before = process().store.bytes
    x = step(X)[0]
    assert process().store.bytes == before + x.nbytes
    x.delete()
    assert process().store.bytes == before


def test_fetching_more_than_the_fetch_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process().controller, "fetch_limit", 8)
    for use in (jnp.sum, lambda x: x + 1, lambda x: x[0], jax.device_put, jit(lambda a: a), list, pickle.dumps):
        assert code_of(use, FLOATS) == "PWC0516"
    assert_same(FLOATS.addressable_data(0), JF[:2])  # one shard is within the limit
    assert jax.eval_shape(jnp.sum, FLOATS).shape == () and FLOATS.copy().shape == (4,)


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
            assert code_of(use, x) == "PWC0216"
        assert np.asarray(x)[0] == 2**40 + 1 and np.asarray(x).dtype == x.dtype and x.item() == 2**40 + 1
        assert x.tolist() == jax.device_get([x])[0].tolist() == [2**40 + 1]
    assert code_of(pickle.loads, raw) == "PWC0216"


CLOSED_OVER: dict[str, Callable[[Any, Any], Any]] = {
    "x + y": lambda x, y: x + y,
    "y + x": lambda x, y: y + x,
    "jnp.add": lambda x, y: jnp.add(x, y),
    "lax.add": lambda x, y: lax.add(x, y),
    "a placed call": lambda x, y: (x, on_two(y)),
    "jit": lambda x, y: jit(lambda a, b: a + b)(x, y),
    "a result": lambda x, y: (x, y),
    "device_put": lambda x, y: (x, jax.device_put(y, SHARDING)),
    "scan": lambda x, y: lax.scan(lambda c, v: (c + v, None), x[0], y),
    "indexing": lambda x, y: x * y[0],
}


@pytest.mark.parametrize("name", CLOSED_OVER)
def test_a_program_closes_over_a_pw_array_as_over_a_constant(name: str) -> None:
    function = CLOSED_OVER[name]
    closing = pw.program(lambda x: function(x, FLOATS))(X)
    given = pw.program(function)(X, FLOATS)
    for ours, expected in zip(jax.tree.leaves(closing), jax.tree.leaves(given), strict=True):
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(expected))


def test_a_program_closes_over_typed_keys_and_arrays_in_pieces() -> None:
    key = pw.program(lambda s: jax.random.key(s))(3)
    drawn = pw.program(lambda x: x + jax.random.normal(key, x.shape))(X)
    np.testing.assert_allclose(np.asarray(drawn), X + jax.random.normal(jax.random.key(3), X.shape), rtol=1e-6)


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
