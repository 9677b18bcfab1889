"""Provides the operators, methods and properties of `jax.Array` for `pw.Array`, as a base class. Each of them first
copies the values to JAX's default device.

The copy goes through the host. Then the method of the `jax.Array` is applied.
"""

import operator
from collections.abc import Callable
from typing import Any, TypeAlias

Method: TypeAlias = Callable[..., Any]
_op: Any = operator


def _operator(function: Callable[..., Any]) -> Method:
    """Builds the method for `x + other` from the operator itself, which also asks `other` if JAX has no result."""

    def method(self: Any, *others: Any) -> Any:
        return function(self.__jax_array__(), *others)

    return method


def _reflected(function: Callable[[Any, Any], Any]) -> Method:
    """Builds the method for `other + x`."""

    def method(self: Any, other: Any) -> Any:
        return function(other, self.__jax_array__())

    return method


def _method(name: str) -> Method:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.__jax_array__(), name)(*args, **kwargs)

    method.__name__ = name
    method.__doc__ = f"`jax.Array.{name}` of the values, which are fetched."
    return method


def _property(name: str) -> property:
    def get(self: Any) -> Any:
        return getattr(self.__jax_array__(), name)

    return property(get, doc=f"`jax.Array.{name}` of the values, which are fetched.")


class ArrayMethods:
    """The methods of a `jax.Array`, applied to the array that `__jax_array__` returns."""

    __array_priority__ = 100  # numpy's arrays leave operators to us, as they do for JAX's arrays

    __add__, __radd__ = _operator(_op.add), _reflected(_op.add)
    __sub__, __rsub__ = _operator(_op.sub), _reflected(_op.sub)
    __mul__, __rmul__ = _operator(_op.mul), _reflected(_op.mul)
    __truediv__, __rtruediv__ = _operator(_op.truediv), _reflected(_op.truediv)
    __floordiv__, __rfloordiv__ = _operator(_op.floordiv), _reflected(_op.floordiv)
    __mod__, __rmod__ = _operator(_op.mod), _reflected(_op.mod)
    __divmod__, __rdivmod__ = _operator(divmod), _reflected(divmod)
    __pow__, __rpow__ = _operator(pow), _reflected(pow)
    __matmul__, __rmatmul__ = _operator(_op.matmul), _reflected(_op.matmul)
    __and__, __rand__ = _operator(_op.and_), _reflected(_op.and_)
    __or__, __ror__ = _operator(_op.or_), _reflected(_op.or_)
    __xor__, __rxor__ = _operator(_op.xor), _reflected(_op.xor)
    __lshift__, __rlshift__ = _operator(_op.lshift), _reflected(_op.lshift)
    __rshift__, __rrshift__ = _operator(_op.rshift), _reflected(_op.rshift)
    __lt__, __le__ = _operator(_op.lt), _operator(_op.le)
    __gt__, __ge__ = _operator(_op.gt), _operator(_op.ge)
    # As for `jax.Array`, equality is elementwise: a class with `__eq__` and without `__hash__` cannot be hashed.
    __eq__, __ne__ = _operator(_op.eq), _operator(_op.ne)
    __neg__, __pos__ = _operator(_op.neg), _operator(_op.pos)
    __abs__, __invert__ = _operator(abs), _operator(_op.invert)
    __round__ = _operator(round)
    __getitem__, __contains__ = _operator(_op.getitem), _operator(_op.contains)
    __iter__, __reversed__ = _operator(iter), _operator(reversed)
    __dlpack__, __dlpack_device__ = _method("__dlpack__"), _method("__dlpack_device__")
    __array_namespace__ = _method("__array_namespace__")

    T, mT = _property("T"), _property("mT")
    real, imag = _property("real"), _property("imag")
    at, flat = _property("at"), _property("flat")

    all, any = _method("all"), _method("any")
    argmax, argmin = _method("argmax"), _method("argmin")
    argpartition, argsort = _method("argpartition"), _method("argsort")
    astype, view, byteswap = _method("astype"), _method("view"), _method("byteswap")
    choose, compress, take = _method("choose"), _method("compress"), _method("take")
    clip, round = _method("clip"), _method("round")
    conj, conjugate = _method("conj"), _method("conjugate")
    cumprod, cumsum = _method("cumprod"), _method("cumsum")
    diagonal, trace = _method("diagonal"), _method("trace")
    dot = _method("dot")
    flatten, ravel, reshape = _method("flatten"), _method("ravel"), _method("reshape")
    max, min, ptp = _method("max"), _method("min"), _method("ptp")
    mean, std, var = _method("mean"), _method("std"), _method("var")
    nonzero = _method("nonzero")
    prod, sum = _method("prod"), _method("sum")
    repeat = _method("repeat")
    searchsorted, sort = _method("searchsorted"), _method("sort")
    squeeze, swapaxes, transpose = _method("squeeze"), _method("swapaxes"), _method("transpose")
    to_device = _method("to_device")
