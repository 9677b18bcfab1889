"""Checks the argument values of a call against the types that the plan states, and converts them to the form in which
devices store them. Loaded plans and the API call it before they copy values to devices.
"""

import contextlib
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.dtypes import native, numpy_dtype
from pathways.dialect.jax_api import dtypes, key_data
from pathways.dialect.plan.nouns import Port
from pathways.dialect.user_line import caller
from pathways.runtime.client.arrays import FAILURES, LOCAL_ARRAY
from pathways.runtime.client.handles import Handle
from pathways.runtime.errors import WrongInput


def handle_of(value: Any) -> Handle | None:
    """Returns the handle of an array that an earlier run made, None for other values."""
    handle = getattr(value, "handle", None)
    return handle if isinstance(handle, Handle) else None


def wait_for_jax(values: Iterable[Any]) -> None:
    """Waits for arrays of JAX. A run must not keep its slot while it waits for other work of the user."""
    for value in values:
        if isinstance(value, LOCAL_ARRAY):
            with contextlib.suppress(*FAILURES):  # reading the array raises the error
                value.block_until_ready()


def as_host(value: Any, port: Port, program: str) -> "np.ndarray[Any, Any]":
    """Converts a host value to the stored form of `port`. Raises PWC0501 for a different shape or element type."""

    def refuse(have: str, *also: type[Exception]) -> PathwaysError:
        shape = list(port.type.shape) if port.dtype == port.type.dtype else "stored as " + str(port.type)
        rule = f"{port.dtype} {shape}"
        error = WrongInput(name=port.name, program=program, have_=have, rule=rule, where=caller())
        return PathwaysError(error, also=also)

    if port.dtype.startswith("key<"):
        value = _key_data(value, port.dtype, refuse)
    if port.dtype == "float0":
        value = np.zeros(np.shape(value), bool)
    if isinstance(value, np.ma.MaskedArray):
        raise refuse("a numpy masked array, whose mask would be lost")
    if not hasattr(value, "dtype") and not isinstance(value, int | float | complex | bool):
        raise refuse(f"a {type(value).__name__}")
    host: np.ndarray[Any, Any] = native(np.asarray(value))
    dtype = numpy_dtype(port.type.dtype)
    if host.shape != port.type.shape:
        raise refuse(f"{host.dtype} {list(host.shape)}")
    if host.dtype.kind == "V" and host.dtype.itemsize == dtype.itemsize and dtype.kind == "V":
        host = host.view(dtype)  # NumPy files keep the bytes of bfloat16 and similar types, not the name
    if type(value) is int and dtype.kind in "iu" and not np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
        raise refuse(f"{value}, which {dtype} cannot hold", OverflowError)
    if host.dtype != dtype:
        if not _converts(host.dtype, dtype, strong=hasattr(value, "dtype")):
            raise refuse(f"{host.dtype} {list(host.shape)}")
        host = host.astype(dtype)
    return host


def _key_data(value: Any, dtype: str, refuse: Any) -> Any:
    if not isinstance(value, jax.Array) or not dtypes.issubdtype(value.dtype, dtypes.prng_key):
        if getattr(value, "dtype", None) == np.uint32:
            return value
        raise refuse(f"{getattr(value, 'dtype', type(value).__name__)}, not a typed key (jax.random.key)")
    if str(value.dtype) != dtype:
        raise refuse(str(value.dtype))
    return key_data(value)


def _converts(have: "np.dtype[Any]", want: "np.dtype[Any]", *, strong: bool) -> bool:
    """Whether JAX itself would convert: 64 bits to 32, or a Python number to any type of its kind or above."""
    if strong:
        return have.kind == want.kind and have.itemsize == 2 * want.itemsize and have.itemsize >= 8
    ranks = {"b": 0, "i": 1, "u": 1, "f": 2, "V": 2, "c": 3}
    return ranks.get(have.kind, 9) <= ranks.get(want.kind, 2)
