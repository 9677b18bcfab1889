# pyright: basic
"""Measures calls of programs of one small computation, against `jax.jit` of the same function.

    python bench/small_calls.py

The rows differ in where the arguments are, in their structure, and in donation. A result is dropped before the next
call. All ways run in rotation in one run; microseconds are medians of rounds of 200 calls.
"""

import argparse
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw

CALLS_PER_ROUND = 200
ARRAYS_PER_STATE = 200
"""The number of arrays of a state, such as the parameters of a model and the moments of its optimizer."""


def add(x):
    return x + 1


def combine(x, y):
    return {"sum": x + y, "rest": (x - y, x * y)}


def add_all(xs):
    return [x + 1 for x in xs]


class Again:
    """Calls a function that donates its argument, again and again on its own result."""

    def __init__(self, function, value):
        self.function, self.value = function, function(value)

    def __call__(self):
        self.value = self.function(self.value)


def ways():
    """Returns pairs of functions, ours and that of `jax.jit`, keyed by the kind of call."""
    place = NamedSharding(pw.make_virtual_device_set().add_slice(devices=1).mesh("x"), P())
    placed_add, placed_combine = (jax.jit(f, in_shardings=place, out_shardings=place) for f in (add, combine))
    one, tree = pw.program(lambda x: placed_add(x)), pw.program(lambda x, y: placed_combine(x, y))
    donating = pw.program(lambda x: placed_add(x), donate_argnums=0)
    jit_one, jit_tree, jit_donating = jax.jit(add), jax.jit(combine), jax.jit(add, donate_argnums=0)
    elsewhere = NamedSharding(pw.make_virtual_device_set().add_slice(devices=1).mesh("x"), P())
    placed_add_all = [jax.jit(add_all, in_shardings=p, out_shardings=p) for p in (place, elsewhere)]
    of_state = pw.program(lambda xs: placed_add_all[0](xs), donate_argnums=0)
    of_islands = pw.program(lambda x, y: (placed_add_all[0](x), placed_add_all[1](y)), donate_argnums=(0, 1))
    jit_all = jax.jit(add_all, donate_argnums=0)
    state = [np.ones(8, np.float32)] * ARRAYS_PER_STATE
    half_state = state[: ARRAYS_PER_STATE // 2]
    host = np.ones((8, 8), np.float32)
    x, compiled, j = one(host), one.lower(host).compile(), jit_one(host)
    y, k = one(x), jit_one(j)
    return {
        "a program, argument on the device": (lambda: one(x), lambda: jit_one(j)),
        "a compiled program, argument on the device": (lambda: compiled(x), lambda: jit_one(j)),
        "a program, NumPy argument": (lambda: one(host), lambda: jit_one(host)),
        "two arguments, three results in a tree": (lambda: tree(x, y), lambda: jit_tree(j, k)),
        "an argument that is donated": (Again(donating, host), Again(jit_donating, jnp.asarray(host))),
        f"a state of {ARRAYS_PER_STATE} arrays, donated": (Again(of_state, state), Again(jit_all, state)),
        f"the same on two islands, {ARRAYS_PER_STATE // 2} arrays each": (
            Again(lambda both: of_islands(*both), (half_state, half_state)),
            Again(jit_all, state),
        ),
    }


def measure(rounds):
    """Returns seconds per call, ours and jit's, keyed by the kind of call."""
    made, times = ways(), {}
    for _ in range(rounds):
        for name, pair in made.items():
            for which, way in enumerate(pair):
                begin = time.perf_counter()
                for _ in range(CALLS_PER_ROUND):
                    way()
                times.setdefault((name, which), []).append((time.perf_counter() - begin) / CALLS_PER_ROUND)
    return {name: tuple(statistics.median(times[name, which]) for which in (0, 1)) for name in made}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    print(f"jax {jax.__version__}, float32[8, 8] on one {jax.devices()[0].device_kind}")
    for name, (ours, jit) in measure(parser.parse_args().rounds).items():
        print(f"  {name:44}{1e6 * ours:8.1f} us, jit {1e6 * jit:6.1f} us, this / jit {ours / jit:6.2f}")


if __name__ == "__main__":
    main()
