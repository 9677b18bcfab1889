# pyright: basic
"""Compares simulated steps with real ones: pipelines of matrix products on CPU devices of this process.

    python bench/simulated.py [--rounds 15]

The times of computations are measured in runs that wait for each computation before the next, so that none delays
another. The figures of the machine are those of `pwc calibrate`. The simulated step is compared with the median of real
steps, in the same process.
"""

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

import jax
import jax.numpy as jnp
import numpy as np

import pathways as pw
from pathways.api.calibration import calibrate
from pathways.api.simulation import times_of

SIZES = ((2, 4, 256, 128), (4, 4, 256, 128), (2, 8, 512, 64), (4, 8, 256, 64))
"""Stages, microbatches, width of the products, and rows of a microbatch."""
SCHEDULES = ("gpipe", "1f1b", "zero-bubble")


def program(stages, microbatches, width, rows):
    def loss(params, batch):
        for w in params:
            for _ in range(4):
                batch = jnp.tanh(batch @ w)
        return jnp.mean(batch * batch)

    devices = pw.make_virtual_device_set()
    cut = pw.pipeline(loss, [devices.add_slice(devices=1) for _ in range(stages)], microbatches=microbatches)

    @pw.program
    def step(params, batch):
        value, gradients = jax.value_and_grad(cut)(params, batch)
        return value, [w - 0.01 * g for w, g in zip(params, gradients, strict=True)]

    rng = np.random.default_rng(0)
    params = [np.float32(rng.normal(size=(width, width)) / width**0.5) for _ in range(stages)]
    return step.lower(params, np.ones((rows * microbatches, width), np.float32)), params, rows * microbatches


def seconds(compiled, arguments):
    begin = time.perf_counter()
    jax.tree.map(lambda array: array.block_until_ready(), compiled(*arguments))
    return time.perf_counter() - begin


def compared(size, schedule, machine, rounds):
    lowered, params, rows = program(*size)
    arguments = params, np.ones((rows, size[2]), np.float32)
    real = lowered.compile(schedule=schedule)
    alone = lowered.compile(schedule=schedule, dispatch="sequential")
    for compiled in (real, alone, real, alone):
        seconds(compiled, arguments)
    took = median(seconds(real, arguments) for _ in range(rounds))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        with pw.trace(path):
            for _ in range(8):
                seconds(alone, arguments)
        times = times_of(path)
    topology = real.plan.topology
    figures = {f: getattr(machine.islands[0], f) for f in ("ici_gbps", "call_us", "host_us", "ici_us")}
    islands = tuple(replace(island, **figures) for island in topology.islands)
    here = replace(machine, islands=islands)
    return took, real.simulate(here, measured=times, one_process=True).seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    machine = calibrate(pw.Topology((pw.Island("island0", 2), pw.Island("island1", 2))))
    print(f"jax {jax.__version__}, {machine.host_cores:g} effective cores")
    errors = []
    for size in SIZES:
        for schedule in SCHEDULES:
            took, predicted = compared(size, schedule, machine, rounds)
            errors.append(abs(predicted / took - 1))
            name = f"{size[0]} stages, {size[1]} microbatches, width {size[2]}, {schedule}"
            print(
                f"{name:55} real {took * 1e3:7.2f} ms, simulated {predicted * 1e3:7.2f} ms, {predicted / took - 1:+.1%}"
            )
    print(f"median error {median(errors):.1%}, worst {max(errors):.1%}")


if __name__ == "__main__":
    main()
