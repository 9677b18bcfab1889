# pyright: basic
"""Compares a pipelined forward as one call of a plan with hand-written `jax.jit` and `jax.device_put`.

    python bench/pipeline.py

The forward has 8 stages and 32 microbatches of tiny work, one device a stage. Both use the same devices, and run in
rotation in one run. Microseconds are for one operation (a stage of a microbatch with its transfer), and ratios are of
medians. Above 1 the plan is faster.
"""

import argparse

import jax
import numpy as np
from in_turns import medians
from jax.sharding import NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

import pathways as pw
from pathways.api.process import process

STAGES, MICROBATCHES, WIDTH = 8, 32, 16


def work(w, x):
    return jax.numpy.tanh(x * w)


def make_program():
    devices = pw.make_virtual_device_set()
    meshes = [devices.add_slice(devices=1).mesh("x") for _ in range(STAGES)]
    stages = [jax.jit(work, in_shardings=NamedSharding(m, P())) for m in meshes]

    def forward(weights, xs):
        out = []
        for x in xs:
            for stage, w in zip(stages, weights, strict=True):
                x = stage(w, x)
            out.append(x)
        return out

    return pw.program(forward)


def by_hand(stages, weights, xs, targets):
    out = []
    for x in xs:
        for stage, w, target in zip(stages, weights, targets, strict=True):
            x = stage(w, jax.device_put(x, target))
        out.append(x)
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    weights = [np.full(WIDTH, 0.5 + s / 10, np.float32) for s in range(STAGES)]
    xs = [np.full(WIDTH, float(m), np.float32) for m in range(MICROBATCHES)]
    compiled = make_program().lower(weights, xs).compile()
    moved = pw.program(lambda w, x: (w, x))(weights, xs)
    islands = [i.devices[0] for i in process().machine.islands if len(i.devices) == 1][:STAGES]
    targets = [SingleDeviceSharding(d) for d in islands]
    stages = [jax.jit(work) for _ in range(STAGES)]
    placed = [jax.device_put(w, t) for w, t in zip(weights, targets, strict=True)]
    first = [jax.device_put(x, targets[0]) for x in xs]
    expected = [np.asarray(a) for a in by_hand(stages, placed, first, targets)]
    ours = [np.asarray(a) for a in compiled(*moved)]
    assert all(np.allclose(a, b) for a, b in zip(ours, expected, strict=True))
    ways = {
        "plan": lambda: [a.block_until_ready() for a in compiled(*moved)],
        "by hand": lambda: jax.block_until_ready(by_hand(stages, placed, first, targets)),
    }
    found = medians(ways, rounds)
    print(f"jax {jax.__version__}, {STAGES} stages, {MICROBATCHES} microbatches, float32[{WIDTH}]")
    for name, median in found.items():
        per = 1e6 * median / STAGES / MICROBATCHES
        print(f"{name:10}{per:8.1f} us an operation, by hand / this {found['by hand'] / median:5.2f}")


if __name__ == "__main__":
    main()
