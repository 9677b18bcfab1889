"""Copies to the host the bytes of an array that a program closes over. `emit.py` calls it, because these bytes become
part of the plan.
"""

from typing import Any, cast

import numpy as np

from pathways.compiler.frontends.jax import compat
from pathways.dialect.dtypes import ArrayType, numpy_dtype
from pathways.dialect.jax_api import key_data


def read_constant(array: Any, stored: ArrayType) -> np.ndarray[Any, Any]:
    """Copies an array to the host, in the form in which it is stored."""
    if not isinstance(array, np.ndarray) and hasattr(array, "dtype") and compat.is_key(compat.aval_of(array)):
        array = key_data(array)
    host: np.ndarray[Any, Any] = np.asarray(cast("Any", array))
    dtype = numpy_dtype(stored.dtype)
    if host.dtype != dtype:
        host = host.astype(dtype)
    return np.ascontiguousarray(host).reshape(stored.shape)
