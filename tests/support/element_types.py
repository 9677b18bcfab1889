"""Creates random arrays of every element type."""

from typing import Any

import numpy as np

from pathways.dialect.dtypes import numpy_dtype


def random_of(dtype: str, shape: tuple[int, ...], seed: int) -> Any:
    """Returns an array of random bit patterns of the type, including subnormals and NaNs of every kind."""
    rng = np.random.default_rng(seed)
    wanted = numpy_dtype(dtype)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if wanted.kind == "V" and dtype.startswith(("int", "uint", "float4")):  # below a byte: unused bits must be 0
        return np.asarray(rng.integers(0, 2, shape)).astype(wanted)
    bits = rng.integers(0, 256, (*shape, wanted.itemsize), dtype=np.uint8)
    return bits.view(wanted).reshape(shape)
