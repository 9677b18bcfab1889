# pyright: basic
"""Compares a loop of data-dependent length, over two slices of one device: one call of a plan against a Python loop.

    python bench/loops.py

The Python loop uses `jax.jit` and `jax.device_put` on the same devices. It reads its condition from the device before
every iteration, as it must. A third way, the limit, makes the launches and copies of the plan by bare PJRT, and nothing
else. All run in rotation in one run. Microseconds are for one iteration (two computations, two transfers, the
condition), and ratios are of medians. Above 1 the plan is faster.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
from bare_plan import BarePlan
from in_turns import medians
from jax import lax
from jax.sharding import NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

import pathways as pw
from pathways.api.process import process

TURNS, WIDTH = 200, 16


def grow(x):
    return x * 1.01


def shrink(x):
    return x - 0.001


def below(x, limit):
    return x.max() < limit


def make_program():
    devices = pw.make_virtual_device_set()
    one, two = (NamedSharding(devices.add_slice(devices=1).mesh("x"), P()) for _ in range(2))
    f, g = jax.jit(grow, in_shardings=one), jax.jit(shrink, in_shardings=two)
    return pw.program(lambda x, limit: lax.while_loop(lambda v: below(v, limit), lambda v: g(f(v)), x))


def by_hand(f, g, test, x, limit, one, two):
    while bool(test(x, limit)):
        x = jax.device_put(g(jax.device_put(f(x), two)), one)
    return x.block_until_ready()


def bare(test, body, x, limit):
    """Runs the loop by bare PJRT. `test` and `body` are the bodies of the plan; the body overwrites what it carries."""
    x = jnp.array(x, copy=True)
    while np.asarray(test([limit, x])[0]):
        (x,) = body([limit, x])
    return x.block_until_ready()


def measure(rounds):
    """Returns seconds per turn, keyed by implementation."""
    host = np.ones(WIDTH, np.float32)
    limit = host.max()
    for _ in range(TURNS):
        limit = np.float32(limit * np.float32(1.01)) - np.float32(0.001)
    limit = np.float32(limit - 0.01)
    compiled = make_program().lower(host, limit).compile()
    x, bound = pw.program(lambda x, limit: (x, limit))(host, limit)
    first, second = (i.devices[0] for i in process().machine.islands[:2])
    one, two = SingleDeviceSharding(first), SingleDeviceSharding(second)
    hand = (jax.jit(grow), jax.jit(shrink), jax.jit(below), jax.device_put(host, one), jax.device_put(limit, one))
    assert np.allclose(np.asarray(compiled(x, bound)), np.asarray(by_hand(*hand, one, two)), rtol=1e-5)
    test = BarePlan(compiled.plan.of_body(0), 1, through_host=True)
    limits = test, BarePlan(compiled.plan.of_body(1), 1, devices=test.by_island, through_host=True)
    given = [jax.device_put(value, test.devices[0]) for value in (host, limit)]
    assert np.allclose(np.asarray(bare(*limits, *given)), np.asarray(by_hand(*hand, one, two)), rtol=1e-5)
    ways = {
        "bare PJRT": lambda: bare(*limits, *given),
        "plan": lambda: compiled(x, bound).block_until_ready(),
        "by hand": lambda: by_hand(*hand, one, two),
    }
    return {name: median / TURNS for name, median in medians(ways, rounds).items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    found = measure(parser.parse_args().rounds)
    print(f"jax {jax.__version__}, a loop of about {TURNS} turns over two devices, float32[{WIDTH}]")
    for name, median in found.items():
        print(f"  {name:10}{1e6 * median:8.1f} us a turn, by hand / this {found['by hand'] / median:6.2f}")


if __name__ == "__main__":
    main()
