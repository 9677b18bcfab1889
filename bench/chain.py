# pyright: basic
"""A chain of 128 small computations with an all-reduce on 4 CPU devices: one call of the plan against a Python loop.

    python bench/chain.py

The loop calls the same jitted function on the same devices, in the same run, with as many executions in flight as the
runtime allows itself; both are repeated in turns, and the ratio is of the medians. Above 1 the plan is faster.
"""

import argparse
import collections
import statistics
import time

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw
from pathways.api.process import process

LENGTH, DEVICES, WINDOW = 128, 4, 16


def work(x):
    """One add and one all-reduce a device."""
    return x + 1e-3 * lax.pmean(x, "x")


def make_step(mesh):
    sharding = NamedSharding(mesh, P("x"))
    body = jax.shard_map(work, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False)
    return jax.jit(body, in_shardings=sharding, out_shardings=sharding), sharding


def make_plan():
    step, _ = make_step(pw.make_virtual_device_set().add_slice(devices=DEVICES).mesh("x"))

    @pw.program
    def chain(x):
        for _ in range(LENGTH):
            x = step(x)
        return x

    return chain


def native_loop(step, x):
    """A Python loop that never has more than WINDOW executions in flight: with over 32, jax 0.10 hangs."""
    flying = collections.deque()
    for _ in range(LENGTH):
        x = step(x)
        flying.append(x)
        if len(flying) > WINDOW:
            flying.popleft().block_until_ready()
    return x.block_until_ready()


def timed(function, *args):
    start = time.perf_counter()
    function(*args)
    return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    rounds = parser.parse_args().rounds
    chain = make_plan()
    host = np.ones(8 * DEVICES, np.float32)
    x = chain(host)
    expected = np.asarray(x)
    island = next(iter(process().machine.bound.values()))
    step, sharding = make_step(Mesh(np.array(island.devices), ("x",)))
    y = jax.device_put(host, sharding)
    assert np.allclose(np.asarray(native_loop(step, y)), expected)
    ours, native = [], []
    for _ in range(rounds):
        ours.append(timed(lambda: chain(x).block_until_ready()))
        native.append(timed(native_loop, step, y))
    a, b = statistics.median(ours), statistics.median(native)
    print(f"jax {jax.__version__}, {DEVICES} CPU devices, chain of {LENGTH}, {host.dtype}[{host.size}]")
    print(f"plan         {1e6 * a / LENGTH:8.1f} us a computation")
    print(f"native loop  {1e6 * b / LENGTH:8.1f} us a computation")
    print(f"ratio        {b / a:8.2f} (native / plan)")


if __name__ == "__main__":
    main()
