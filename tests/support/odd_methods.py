"""Odd callables and methods, and ways to call them: each a function of a wrapper, `jax.jit` or `pw.program`."""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
import functools
import inspect
import operator
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import equinox
import jax
import jax.numpy as jnp
import numpy as np

Wrapper: TypeAlias = Callable[..., Any]
Case: TypeAlias = Callable[[Wrapper], Any]
_jax: Any = jax
X = np.arange(3, dtype=np.float32)


@_jax.tree_util.register_pytree_node_class
class Model:
    """A class that is a node, with a method that is wrapped."""

    def __init__(self, w: Any, mode: str = "times") -> None:
        self.w, self.mode = w, mode

    def tree_flatten(self) -> Any:
        return (self.w,), self.mode

    @classmethod
    def tree_unflatten(cls, mode: str, children: Any) -> "Model":
        (w,) = children
        return cls(w, mode)

    def apply(self, x: Any) -> Any:
        return x * self.w if self.mode == "times" else x + self.w


class Plain:
    """A class that is no node."""

    k = 2.0

    def times(self, x: Any) -> Any:
        return x * self.k

    def __call__(self, x: Any, n: int = 1) -> Any:
        return x * self.k * n


class Equal(Plain):
    """A class whose objects are equal."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Equal)

    def __hash__(self) -> int:
        return 3


def _stale(w: Wrapper) -> Any:
    """A method of a node sees the object as it is now, as in JAX's FAQ."""

    class Node(Model):
        apply = w(Model.apply)

    _jax.tree_util.register_pytree_node_class(Node)
    node = Node(2.0)
    before = node.apply(X)
    node.w = 10.0
    return before, node.apply(X)


def _module(w: Wrapper) -> Any:
    class Module(equinox.Module):
        s: Any

        @w
        def __call__(self, x: Any) -> Any:
            return x * self.s

        @w
        def step(self, x: Any) -> Any:
            return Module(self.s + x.sum())

    module = Module(jnp.asarray(X))
    for _ in range(3):
        module = module.step(X)
    return module.s, module(X)


def _of_namedtuple(w: Wrapper) -> Any:
    class Pair(NamedTuple):
        a: Any
        b: Any

        @w
        def apply(self, x: Any) -> Any:
            return self.a * x + self.b

    return Pair(X, 1.0).apply(X)


def _method(cls: Any, **options: Any) -> Case:
    """A method of a temporary object, wrapped in its class."""

    def case(w: Wrapper) -> Any:
        class Derived(cls):
            @functools.partial(w, **options)
            def method(self, x: Any, n: int = 2) -> Any:
                return x * getattr(self, "k", 1.0) * n

        return Derived().method(X), Derived().method(x=X, n=3)

    return case


def _self_to_helper(w: Wrapper) -> Any:
    helper = jax.jit(lambda e, x: x * e.k, static_argnums=0)

    class Derived(Plain):
        @functools.partial(w, static_argnums=0)
        def method(self, x: Any) -> Any:
            return helper(self, x)

    return Derived().method(X)


def _wrapped(signature: bool = False) -> Callable[[Any, Any], Any]:
    """A function that says that it has the parameters of another."""

    def inner(x: Any) -> Any:
        return x * 2

    @functools.wraps(inner)
    def outer(key: Any, *args: Any) -> Any:
        return inner(*args) + key

    if signature:
        outer.__signature__ = inspect.signature(inner)  # pyright: ignore[reportAttributeAccessIssue]
    return outer


def _class_and_static_methods(w: Wrapper) -> Any:
    class Holder:
        k = 3.0

        @staticmethod
        @w
        def plus(x: Any) -> Any:
            return x + 1

        @classmethod
        @functools.partial(w, static_argnums=0)
        def times(cls, x: Any) -> Any:
            return x * cls.k

    return Holder.plus(X), Holder().plus(X), Holder.times(X)


def _defaults(x: Any, y: Any = 2.0, *rest: Any, scale: Any = 1.0, **named: Any) -> Any:
    """Has all kinds of parameters that may be left out."""
    return x * y * scale + sum(rest) + sum(named.values())


def _positional(x: Any, /, y: Any) -> Any:
    return x - y


CASES: dict[str, Case] = {
    "a stale method": _stale,
    "methods of a module": _module,
    "a method of a namedtuple": _of_namedtuple,
    "a method of no node": _method(Plain),
    "a method with a static self": _method(Plain, static_argnums=0),
    "a method with a static self and number": _method(Plain, static_argnums=(0,), static_argnames="n"),
    "a method of equal objects": _method(Equal, static_argnums=0),
    "a method of an object": _method(object, static_argnums=0),
    "self to a helper": _self_to_helper,
    "class and static methods": _class_and_static_methods,
    "a bound method": lambda w: w(Plain().times)(X),
    "a bound method of a node": lambda w: w(Model(3.0).apply)(X),
    "an unbound method": lambda w: w(Model.apply)(Model(3.0), X),
    "an unbound method of no node": lambda w: w(Plain.times)(Plain(), X),
    "a callable object": lambda w: w(Plain())(X),
    "a callable object, static": lambda w: w(Plain(), static_argnames="n")(X, n=3),
    "a class": lambda w: w(Model)(X),
    "a partial": lambda w: w(functools.partial(_defaults, y=3.0))(X),
    "a partial with a position": lambda w: w(functools.partial(_defaults, 3.0))(X),
    "a partial of JAX": lambda w: w(jax.tree_util.Partial(_defaults, X))(X),
    "an operator": lambda w: w(operator.add)(X, X),
    "an item getter": lambda w: w(operator.itemgetter("a"))({"a": X}),
    "a function of numpy": lambda w: w(np.sin)(X),
    "a function of jax.numpy": lambda w: w(jnp.sin)(X),
    "a ufunc of jax.numpy": lambda w: w(jnp.add)(X, X),
    "a jitted function": lambda w: w(jax.jit(lambda x: x * 2))(X),
    "a jitted function with names": lambda w: w(jax.jit(_defaults, static_argnames="y"))(X, y=2),
    "grad": lambda w: w(jax.grad(lambda x: (x * x).sum()))(X),
    "vmap": lambda w: w(jax.vmap(lambda x: x * x))(X),
    "twice": lambda w: w(w(lambda x: x * 2))(X),
    "wraps": lambda w: w(_wrapped())(1.0, X),
    "wraps, with a signature": lambda w: w(_wrapped(signature=True))(1.0, X),
    "lru_cache": lambda w: w(functools.lru_cache(lambda x: x * 2))(X),
    "no function": lambda w: w(3)(X),
    "none": lambda w: w(None)(X),
    "a coroutine": lambda w: w(_coroutine)(X),
    "by position": lambda w: w(_defaults)(X, 3.0),
    "by name": lambda w: w(_defaults)(x=X, y=3.0),
    "defaults": lambda w: w(_defaults)(X),
    "the rest": lambda w: w(_defaults)(X, 3.0, 1.0, 2.0),
    "names": lambda w: w(_defaults)(X, scale=3.0, extra=1.0, more=X),
    "names in another order": lambda w: (w(_defaults)(X, more=1.0, extra=X), w(_defaults)(X, extra=X, more=1.0)),
    "static name": lambda w: w(_defaults, static_argnames="y")(X, y=2),
    "static name by position": lambda w: w(_defaults, static_argnames="y")(X, 2),
    "static number by name": lambda w: w(_defaults, static_argnums=1)(X, y=2),
    "static last": lambda w: w(_positional, static_argnums=-1)(X, 2),
    "static text": lambda w: w(lambda x, s: x if s == "a" else -x, static_argnums=1)(X, "b"),
    "static tuple": lambda w: w(lambda x, s: x.reshape(s), static_argnums=1)(X, (3, 1)),
    "static list": lambda w: w(lambda x, s: x.reshape(s), static_argnums=1)(X, [3, 1]),
    "static array": lambda w: w(lambda x, s: x * s, static_argnums=1)(X, X),
    "static 1, 1.0 and True": lambda w: [w(lambda x, s: x * s, static_argnums=1)(X, s) for s in (1, 1.0, True)],
    "static out of range": lambda w: w(lambda x: x, static_argnums=3)(X),
    "static unknown": lambda w: w(lambda x: x, static_argnames="n")(X),
    "donated": lambda w: w(lambda x: x + 1, donate_argnums=0)(jnp.asarray(X)),
    "donated by name": lambda w: w(_defaults, donate_argnames="x")(jnp.asarray(X)),
    "donated and static": lambda w: w(lambda x: x, donate_argnums=0, static_argnums=0)(X),
    "donated and used again": lambda w: (lambda v, f: (f(v), f(v))[1])(
        w(lambda x: x + 1)(X), w(lambda x: x * 2, donate_argnums=0)
    ),
    "donated twice": lambda w: (lambda v, f: f(v, v))(w(lambda x: x + 1)(X), w(lambda x, y: x + y, donate_argnums=0)),
    "too many": lambda w: w(lambda x: x)(X, X),
    "too few": lambda w: w(_positional)(X),
    "an unknown name": lambda w: w(_positional)(X, y=X, z=X),
    "a name of a positional": lambda w: w(_positional)(x=X, y=X),
    "a name twice": lambda w: w(_defaults)(X, x=X),
    "no arguments": lambda w: w(lambda: jnp.arange(3))(),
    "a result as argument": lambda w: w(lambda x: x + 1)(w(lambda x: x * 2)(X)),
    "a result closed over": lambda w: (lambda p: w(lambda x: x + p)(X))(w(lambda x: x * 2)(X)),
    "a sharding of a result": lambda w: jax.device_put(X, w(lambda x: x * 2)(X).sharding),
    "an out_sharding of a result": lambda w: jax.jit(jnp.sin, out_shardings=w(lambda x: x * 2)(X).sharding)(X),
    "a format of a result": lambda w: jax.device_put(X, w(lambda x: x * 2)(X).format),
    "a type of a result": lambda w: w(lambda x: x * 2)(X).aval.update(shape=(1,)).shape,
    "eval_shape": lambda w: jax.tree.leaves(w(lambda x: x[:2]).eval_shape(X))[0].shape,
    "trace": lambda w: w(lambda x: {"a": x}).trace(X).out_info["a"].shape,
    "lower": lambda w: w(lambda x: {"a": x}).lower(X).out_info["a"].shape,
    "weak types of trace": lambda w: w(lambda v: (v + 1, 2, X)).trace(1.5).out_info[0].weak_type,
    "weak types of lower": lambda w: [t.weak_type for t in w(lambda v: (v + 1, 2, X)).lower(1.5).out_info],
    "weak types of compile": lambda w: [t.weak_type for t in w(lambda v: (v, X)).lower(1.5).compile().out_info],
    "the tree of lower": lambda w: str(w(lambda x, y: {"a": x}).lower(X, y=(X,)).out_tree),
    "compile": lambda w: w(lambda x: {"a": x}).lower(X).compile()(X),
    "the types of compile": lambda w: w(lambda x: {"a": x}).lower(X).compile().out_info["a"].shape,
    "compile with other shapes": lambda w: w(lambda x: x).lower(X).compile()(X[:2]),
    "compile with another tree": lambda w: w(lambda x: x).lower(X).compile()((X,)),
    "clear_cache": lambda w: (lambda f: (f(X), f.clear_cache(), f(X)))(w(lambda x: x + 1)),
    "the name": lambda w: (w(_defaults).__name__, w(_defaults).__doc__, w(_defaults).__module__),
    "the signature": lambda w: str(inspect.signature(w(_defaults))),
    "the wrapped": lambda w: w(_defaults).__wrapped__ is _defaults,
    "repr of the result": lambda w: repr(w(lambda x: (x, 2.0))(X)),
    "str of the result": lambda w: str(w(lambda x: x * 3)(X)),
}


async def _coroutine(x: Any) -> Any:
    return x
