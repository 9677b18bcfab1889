"""Odd functions, arguments and nodes: each a function of a wrapper, `jax.jit` or `pw.program`, that calls it."""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
import array
import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import equinox
import flax.core
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import lax

from support import odd_methods
from support.odd_methods import Case, Model, Wrapper

_jax: Any = jax
X = np.arange(6, dtype=np.float32).reshape(2, 3) + 1


class Point(NamedTuple):
    """A namedtuple, which JAX knows by itself."""

    x: Any
    y: Any


class Scaled(NamedTuple):
    """A namedtuple that is registered with other children than its fields."""

    value: Any
    factor: Any


_jax.tree_util.register_pytree_node(Scaled, lambda s: ((s.value,), s.factor), lambda n, c: Scaled(c[0], n))


@_jax.tree_util.register_pytree_with_keys_class
class Strict:
    """A node whose constructor refuses what is no array."""

    def __init__(self, a: Any) -> None:
        if not hasattr(a, "shape"):
            raise TypeError("an array is needed")
        self.a = a

    def tree_flatten_with_keys(self) -> Any:
        return ((_jax.tree_util.GetAttrKey("a"), self.a),), None

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Any) -> "Strict":
        return cls(*children)


@functools.partial(_jax.tree_util.register_dataclass, data_fields=["w"], meta_fields=["kind"])
@dataclasses.dataclass
class Layer:
    w: Any
    kind: str


class Linear(equinox.Module):
    w: Any
    name: str = equinox.field(static=True, default="linear")

    def __call__(self, x: Any) -> Any:
        return x * self.w


class State(flax.struct.PyTreeNode):
    step: Any
    tag: str = flax.struct.field(pytree_node=False, default="tag")


def _hijax() -> Any:
    with nnx.var_defaults(hijax=True):
        return nnx.Linear(3, 2, rngs=nnx.Rngs(0))


class Color(enum.Enum):
    RED = 1


class Slots:
    __slots__ = ("k",)

    def __init__(self) -> None:
        self.k = 2.0


ARGUMENTS: dict[str, Callable[[], Any]] = {
    "float32": lambda: X,
    "a jax array": lambda: jnp.asarray(X),
    "float": lambda: 1.5,
    "int": lambda: 3,
    "bool": lambda: True,
    "complex": lambda: 1 + 2j,
    "a large int": lambda: 2**40,
    "a huge int": lambda: 2**70,
    "nan": lambda: float("nan"),
    "numpy scalar": lambda: np.float32(2),
    "numpy bool": lambda: np.bool_(True),
    "int8": lambda: np.arange(3, dtype=np.int8),
    "uint16": lambda: np.arange(3, dtype=np.uint16),
    "int64": lambda: np.arange(3),
    "float64": lambda: np.arange(3.0),
    "float16": lambda: np.arange(3, dtype=np.float16),
    "bfloat16": lambda: jnp.arange(3, dtype=jnp.bfloat16),
    "complex64": lambda: np.ones(3, np.complex64),
    "big endian": lambda: np.arange(3, dtype=">f4"),
    "no elements": lambda: np.zeros((0, 3), np.float32),
    "no dimensions": lambda: np.float32(1).reshape(()),
    "strided": lambda: X[:, ::2],
    "read only": lambda: np.broadcast_to(X, (4, 2, 3)),
    "a key": lambda: jax.random.key(0),
    "a raw key": lambda: jax.random.PRNGKey(0),
    "none": lambda: None,
    "an empty tuple": lambda: (),
    "an empty dict": lambda: {},
    "a tuple": lambda: (X, 2.0),
    "a list": lambda: [X, [X, []]],
    "a dict": lambda: {"b": X, "a": 1},
    "a dict of numbers": lambda: {2: X, 1: X},
    "a dict of tuples": lambda: {("a", 1): X},
    "an ordered dict": lambda: collections.OrderedDict(b=X, a=X),
    "a default dict": lambda: collections.defaultdict(list, a=X),
    "a frozen dict": lambda: flax.core.freeze({"a": {"b": X}}),
    "a namedtuple": lambda: Point(X, 1.0),
    "a registered namedtuple": lambda: Scaled(X, 3),
    "a node": lambda: Model(X),
    "a strict node": lambda: Strict(X),
    "a dataclass": lambda: Layer(X, "kind"),
    "an equinox module": lambda: Linear(X),
    "a flax struct": lambda: State(1),
    "a partial": lambda: jax.tree_util.Partial(jnp.add, X),
    "nested nodes": lambda: {"m": [Model(Point(X, None)), Layer(Scaled(X, 1), "k")]},
    "a mutable array": lambda: _jax.new_ref(jnp.asarray(X)),
    "a hijax module": _hijax,
    "a type": lambda: jax.ShapeDtypeStruct((2,), jnp.float32),
    "text": lambda: "text",
    "bytes": lambda: b"bytes",
    "an object": object,
    "a function": lambda: len,
    "a set": lambda: {1, 2},
    "a range": lambda: range(3),
    "a generator": lambda: (i for i in range(3)),
    "a decimal": lambda: decimal.Decimal("1.5"),
    "a fraction": lambda: fractions.Fraction(1, 2),
    "a date": lambda: datetime.date(2024, 1, 1),
    "an enum": lambda: Color.RED,
    "slots": Slots,
    "dates": lambda: np.array(["2024-01-01"], "datetime64[D]"),
    "texts": lambda: np.array(["a", "b"]),
    "objects": lambda: np.array([object()]),
    "a record": lambda: np.zeros(2, [("a", "f4"), ("b", "i4")]),
    "a matrix": lambda: np.asmatrix(X),
    "an array of Python": lambda: array.array("f", [1.0, 2.0]),
    "a memoryview": lambda: memoryview(X.data),
    "not implemented": lambda: NotImplemented,
    "ellipsis": lambda: ...,
}


def _doubled(tree: Any) -> Any:
    return jax.tree.map(lambda a: a if _jax.dtypes.issubdtype(a.dtype, _jax.dtypes.prng_key) else a + a, tree)


USES: dict[str, Callable[[Wrapper, Any], Any]] = {
    "returned": lambda w, v: w(lambda v: v)(v),
    "doubled": lambda w, v: w(_doubled)(v),
    "by name": lambda w, v: w(lambda *, named: named)(named=v),
    "beside another": lambda w, v: w(lambda x, v: (v, x, x.sum()))(X, v),
    "static": lambda w, v: w(lambda x, v: x * 2, static_argnums=1)(X, v),
    "closed over": lambda w, v: w(lambda x: (x, jax.tree.map(lambda a: a, v)))(X),
}


@jax.custom_jvp
def _cubed(x: Any) -> Any:
    return x**3


_cubed.defjvp(lambda p, t: (p[0] ** 3, 3 * p[0] ** 2 * t[0]))


class UserError(Exception):
    """An exception of a user's own."""


def _raising(error: Exception) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        raise error

    return function


def _assigned(x: Any) -> Any:
    x[0] = 1
    return x


def _endless(x: Any) -> Any:
    return _endless(x)


def _ref_inside(x: Any) -> Any:
    ref = _jax.new_ref(x)
    ref[0, 0] = 9.0
    lax.fori_loop(0, 2, lambda i, _: ref.__setitem__(i, ref[i] * 2), None)
    return ref[...]


BODIES: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda x: None,
    "a number": lambda x: 3,
    "numbers": lambda x: (1.0, True, 2, 1j),
    "a numpy array": lambda x: np.ones(3, np.float32),
    "text": lambda x: "text",
    "an object": lambda x: object(),
    "a function": lambda x: jnp.add,
    "the same twice": lambda x: (x, x, {"x": x}),
    "a generator": lambda x: (v for v in x),
    "a node": lambda x: Model(x, "plus"),
    "a registered namedtuple": lambda x: Scaled(x, 7),
    "a strict node": lambda x: Strict(x * 2),
    "a ShapeDtypeStruct": lambda x: jax.ShapeDtypeStruct((2,), jnp.float32),
    "a condition": lambda x: x if x.sum() > 0 else -x,
    "a float of it": lambda x: float(x.sum()),
    "an int of it": lambda x: [1, 2][x.astype(int)[0, 0]],
    "numpy of it": lambda x: np.asarray(x) + 1,
    "a shape of it": lambda x: jnp.zeros(x.astype(int)[0, 0]),
    "a boolean mask": lambda x: x[x > 2],
    "a set of it": lambda x: {x},
    "a format of it": lambda x: f"{x:.2f}" and x,
    "an assertion": lambda x: (_ for _ in ()).throw(AssertionError("no")),
    "assigned in place": _assigned,
    "a wrong attribute": lambda x: x.nothing,
    "a wrong key": lambda x: {}["missing"],
    "a wrong index": lambda x: x[0, 0, 0, 0],
    "wrong shapes": lambda x: x @ x,
    "a wrong broadcast": lambda x: x + jnp.ones(5),
    "a wrong axis": lambda x: x.sum(axis=7),
    "a wrong reshape": lambda x: x.reshape(4, 4),
    "an unbound axis": lambda x: lax.psum(x, "nowhere"),
    "a user's error": _raising(UserError("mine")),
    "a value error": _raising(ValueError("mine")),
    "a key error": _raising(KeyError("mine")),
    "an os error": _raising(FileNotFoundError(2, "mine")),
    "a stop": _raising(StopIteration(1)),
    "endless calls": _endless,
    "jit inside": lambda x: jax.jit(lambda v: v * 2)(x),
    "grad": jax.grad(lambda x: (x**3).sum()),
    "value and grad": jax.value_and_grad(lambda x: (x**3).sum()),
    "grad of no scalar": jax.grad(lambda x: x),
    "grad of integers": lambda x: jax.grad(lambda v: v * 2)(3),
    "vmap": jax.vmap(lambda r: r / r.sum()),
    "vmap of unequal": lambda x: jax.vmap(jnp.add)(x, jnp.ones(5)),
    "jvp": lambda x: jax.jvp(jnp.sin, (x,), (x,)),
    "linearize": lambda x: jax.linearize(jnp.sin, x)[1](x),
    "hessian": lambda x: jax.hessian(lambda v: (v**3).sum())(x[0]),
    "custom jvp": jax.grad(lambda x: _cubed(x).sum()),
    "checkpoint": jax.grad(lambda x: jax.checkpoint(jnp.sin)(x).sum()),
    "cond": lambda x: lax.cond(x.sum() > 3, lambda v: v * 2, lambda v: v, x),
    "cond of unequal": lambda x: lax.cond(x.sum() > 3, lambda v: v[0], lambda v: v, x),
    "switch": lambda x: lax.switch(1, [jnp.sin, jnp.cos], x),
    "while": lambda x: lax.while_loop(lambda v: v.sum() < 99, lambda v: v * 2, x),
    "while of a changed type": lambda x: lax.while_loop(lambda v: v.sum() < 9, lambda v: v.astype(int), x),
    "fori": lambda x: lax.fori_loop(0, 3, lambda i, v: v + i, x),
    "scan": lambda x: lax.scan(lambda c, v: (c + v, c), x[0], x),
    "scan of nothing": lambda x: lax.scan(lambda c, v: (c + v, c), x[0], x[:0]),
    "map": lambda x: lax.map(jnp.sin, x),
    "associative scan": lambda x: lax.associative_scan(jnp.add, x),
    "named scope": jax.named_call(lambda x: x + 1, name="scope"),
    "random": lambda x: jax.random.normal(jax.random.key(0), x.shape),
    "a new key": lambda x: jax.random.key(1),
    "einsum": lambda x: jnp.einsum("ij,kj->ik", x, x),
    "sort": lambda x: jnp.sort(x)[:, ::-1],
    "fft": lambda x: jnp.abs(jnp.fft.fft(x)),
    "svd": lambda x: jnp.linalg.svd(x, compute_uv=False),
    "pure callback": lambda x: jax.pure_callback(lambda v: np.asarray(v) * 2, x, x),
    "a callback that raises": lambda x: jax.pure_callback(_raising(UserError("mine")), x, x),
    "a callback of another shape": lambda x: jax.pure_callback(lambda v: np.ones(7, np.float32), x, x),
    "an ordered callback": lambda x: _jax.experimental.io_callback(np.asarray, x, x, ordered=True),
    "debug print": lambda x: (jax.debug.print("{}", x[0, 0], ordered=False), x)[1],
    "a mutable array": _ref_inside,
    "an own device": lambda x: jax.device_put(x, jax.devices()[0]) + 1,
    "a default device": lambda x: jnp.zeros(3, device=jax.devices()[0]) + x,
    "an own mesh": lambda x: lax.with_sharding_constraint(
        x, _jax.NamedSharding(_jax.make_mesh((1,), ("a",), axis_types=(_jax.sharding.AxisType.Auto,)), _jax.P("a"))
    ),
    "a barrier": lambda x: lax.optimization_barrier(x),
    "a stop of gradients": jax.grad(lambda x: (x * lax.stop_gradient(x)).sum()),
    "64 bits": lambda x: x.astype(jnp.float64),
    "type of it": lambda x: jnp.ones(3, _jax.typeof(x).dtype),
    "eval_shape": lambda x: jnp.zeros(jax.eval_shape(lambda v: v.sum(0), x).shape),
    "closed call": lambda x: jax.closure_convert(lambda v: v * 2, x)[0](x),
    "ensure compile time": lambda x: x * float(_compile_time()),
}
INPUTS: dict[str, Any] = {"float32": X, "int32": X.astype(np.int32), "bfloat16": X.astype(jnp.bfloat16)}


def _compile_time() -> Any:
    with jax.ensure_compile_time_eval():
        return jnp.arange(3.0).sum()


def cases() -> Iterator[tuple[str, Case]]:
    """Yields all cases: their names, and functions of a wrapper."""
    for how, use in USES.items():
        for what, make in ARGUMENTS.items():
            yield f"{what}, {how}", _bound(use, make)
    for body, function in BODIES.items():
        for what, x in INPUTS.items():
            yield f"{body}, of {what}", _called(function, x)
    yield from odd_methods.CASES.items()


def _bound(use: Callable[[Wrapper, Any], Any], make: Callable[[], Any]) -> Case:
    return lambda w: use(w, make())


def _called(function: Callable[[Any], Any], x: Any) -> Case:
    return lambda w: w(function)(x)
