"""Computes on a mesh of all devices that JAX finds, and compares each result with numpy, until it is killed.

An unmodified JAX program: it ends by itself only if a result is wrong or a call fails. Prints a line for each round.
"""

import itertools
import sys

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P


def main(seed: int) -> None:
    mesh = Mesh(np.array(jax.devices()), ("x",))
    step = jax.jit(lambda v, w: (v * 3 + w.sum() + v[::-1], w + 1), donate_argnums=1)
    rng = np.random.default_rng(seed)
    v, w = (rng.integers(0, 1 << 20, 1 << 12).astype(np.uint32) for _ in range(2))
    there = jax.device_put(v, NamedSharding(mesh, P("x")))
    given = jax.device_put(w, NamedSharding(mesh, P()))
    for number in itertools.count():
        for _ in range(5):
            there, given = step(there, given)
            v, w = v * np.uint32(3) + w.sum(dtype=np.uint32) + v[::-1], w + np.uint32(1)
        np.testing.assert_array_equal(np.asarray(there), v)
        np.testing.assert_array_equal(np.asarray(given), w)
        print(number, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
