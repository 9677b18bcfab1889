"""Converts array values from the form in which devices store them to the form that users see. Examples are typed PRNG
keys, float0 and weak types. `pw.Array` calls it when its values are read.
"""

import functools
from typing import Any

import jax
import numpy as np

from pathways.api.errors import Narrowed
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.jax_api import device_put, dtypes, eval_shape, random
from pathways.dialect.memo import remembered_by_identity
from pathways.dialect.plan.nouns import Port
from pathways.dialect.user_line import caller
from pathways.runtime.host.devices import pjrt


def as_jax(stored: "np.ndarray[Any, Any]", name: str, dtype: str, weak: bool) -> Any:
    """Makes a `jax.Array` of the stored values of `name`, on JAX's default device, uncommitted.

    `dtype` is the element type that the user sees. Raises PWC0216 if JAX would narrow the values.
    """
    with jax.ensure_compile_time_eval():  # makes a value, not an operation, even inside a user's `jax.jit`
        if dtype.startswith("key<"):
            return typed_keys(stored, dtype)
        if dtype == "float0":
            return np.zeros(stored.shape, jax.dtypes.float0)
        narrow = dtypes.canonicalize_dtype(stored.dtype)
        if narrow != stored.dtype:
            error = Narrowed(name=name, dtype=str(stored.dtype), narrow=str(narrow), where=caller())
            raise PathwaysError(error)
        array = device_put(stored)
        return pjrt.weakly_typed(array) if weak else array


def shown_values(values: "np.ndarray[Any, Any]", weak: bool) -> str:
    """Formats values as the `repr` of a `jax.Array` does."""
    end = f"dtype={values.dtype.name}{', weak_type=True' if weak else ''})"
    width: int = np.get_printoptions()["linewidth"]
    if values.size == 0:
        text = f"[], shape={values.shape}"
    else:
        text = np.array2string(values, prefix="Array(", suffix=",", separator=", ", max_line_width=width)
    last = len(text) - text.rfind("\n") + 1
    gap = " " * len("Array(") if last + len(end) + 1 > width else " "
    return f"Array({text},{gap}{end}"


_IMPLEMENTATIONS = {"fry": "threefry2x32", "rbg": "rbg", "urbg": "unsafe_rbg"}


def typed_keys(stored: "np.ndarray[Any, Any]", dtype: str) -> Any:
    """Makes typed PRNG keys from their data. `dtype` is the type that the user sees, for example `key<fry>`."""
    name = dtype[4:-1]
    return random.wrap_key_data(stored, impl=_IMPLEMENTATIONS.get(name, name))


def key_dims(port: Port) -> int:
    """Counts the dimensions that the stored form adds: one for a typed key, stored as a vector of words."""
    return 1 if port.dtype.startswith("key<") else 0


@functools.cache
def _key_dtype(name: str) -> Any:
    return eval_shape(lambda: random.key(0, impl=_IMPLEMENTATIONS.get(name, name))).dtype


@remembered_by_identity
def user_signature(port: Port) -> tuple[tuple[int, ...], Any, bool]:
    """Returns the shape, the element type and the weak type of an array as the user sees them."""
    stored = port.type.shape
    return stored[: len(stored) - key_dims(port)], user_dtype(port), port.weak


def user_dtype(port: Port) -> Any:
    if port.dtype.startswith("key<"):
        return _key_dtype(port.dtype[4:-1])
    if port.dtype == "float0":
        return jax.dtypes.float0
    return pjrt.numpy_dtype(port.dtype)
