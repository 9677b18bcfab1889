# pyright: basic
"""Compares predictions of `pw.search` with measured times, for eight ways to train a small model on two CPU devices.

    python bench/search.py

Each device gets one thread. First this runtime measures the figures that predictions need. The time of a call comes
from a model that has nothing to compute. The rate between the devices comes from sums over both of gradients of a row.
The flop/s of a device and the rate of its memory come from gradients of small microbatches. They are measured while one
device works and while two do, since two share the memory and the power of one machine. A prediction uses the average
number of devices at work. All ways run in rotation in one run, and the least time of each counts: other work on the
machine makes none of them faster. Pairs whose measured times differ by more than 20 % should be predicted in the same
order; the last line counts those that are.
"""

import argparse
import itertools
import os
import time

os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false"

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw

LAYERS, WIDTH, ROWS, APART = 6, 512, 128, 1.2
FEW_ROWS, MANY_ROWS = 16, 64
"""Rows of two batches: products cause the difference of their times, and memory the rest."""
MICROBATCHES = 8
"""Number of microbatches whose gradients are added up."""
FLOPS, PASSES = 6, 3 * MICROBATCHES + 3 * (MICROBATCHES - 1)
"""Flops for a row and parameter; passes over the parameters' memory: three for gradients, and three to add one up."""
WAYS = (
    {"stages": 1, "microbatches": 1, "schedule": "program"},
    {"stages": 1, "microbatches": 8, "schedule": "1f1b"},
    {"stages": 1, "data": 2, "microbatches": 1, "schedule": "program"},
    {"stages": 1, "data": 2, "microbatches": 4, "schedule": "1f1b"},
    {"stages": 2, "microbatches": 1, "schedule": "program"},
    {"stages": 2, "microbatches": 2, "schedule": "1f1b"},
    {"stages": 2, "microbatches": 8, "schedule": "gpipe"},
    {"stages": 2, "microbatches": 8, "schedule": "1f1b"},
)


def init(width):
    rng = np.random.default_rng(0)
    shapes = {"up": (width, 4 * width), "down": (4 * width, width)}
    return [{n: rng.standard_normal(s, np.float32) / 40 for n, s in shapes.items()} for _ in range(LAYERS)]


def loss(params, rows):
    for i, p in enumerate(params):
        with jax.named_scope(f"layer_{i}"):
            rows = rows + jnp.maximum(rows @ p["up"], 0) @ p["down"]
    return (rows**2).mean()


def measured_rates(topology, devices, call, rounds):
    """Returns flop/s and memory bytes a second of one device while `devices` compute gradients, each its own."""
    slices = pw.make_virtual_device_set()
    each = [slices.add_slice(devices=1, island="island0") for _ in range(devices)]
    gradients = [jax.grad(pw.pipeline(loss, [one], microbatches=MICROBATCHES)) for one in each]

    def steps(params, rows):
        return [gradient(own, rows) for gradient, own in zip(gradients, params, strict=True)]

    def placed(rows):
        arguments = [init(WIDTH)] * devices, np.ones((MICROBATCHES * rows, WIDTH), np.float32)
        compiled = pw.program(steps).lower(*arguments).compile(topology)
        held = compiled(*arguments)
        return lambda: jax.tree.map(ready, compiled(held, arguments[1]))

    few, many = least([placed(FEW_ROWS), placed(MANY_ROWS)], rounds)
    parameters = sum(p.size for layer in init(WIDTH) for p in layer.values())
    flops = MICROBATCHES * (MANY_ROWS - FEW_ROWS) * FLOPS * parameters / (many - few)
    rest = few - MICROBATCHES * FEW_ROWS * FLOPS * parameters / flops - (2 * MICROBATCHES - 1) * call
    return flops, PASSES * 4 * parameters / rest


def measured_link(topology, rounds):
    """Returns bytes a second between two devices that add up gradients, each made just before from rows of its own."""
    mesh = pw.make_virtual_device_set().add_slice(devices=2, island="island0").mesh("data")
    split, whole = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())
    rows = [(np.ones((2, WIDTH), np.float32), np.ones((2, 4 * WIDTH), np.float32)) for _ in range(2 * LAYERS)]
    add = jax.jit(lambda rows: [a.T @ b for a, b in rows], in_shardings=split, out_shardings=whole)
    compiled = pw.program(add).lower(rows).compile(topology)
    moved = sum(a[0].size * b[0].nbytes for a, b in rows)
    return moved / least([lambda: jax.tree.map(ready, compiled(rows))], rounds)[0]


def ready(array):
    return array.block_until_ready()


def measured_call(topology, rounds):
    """Returns the seconds of a call that computes almost nothing: one stage and microbatch, one direction."""
    tiny = pw.SplitChoice(stages=2, microbatches=8, schedule="1f1b", islands=("island0",) * 2)
    step = runner(tiny, topology, (init(4), np.ones((8, 4), np.float32)))
    return least([step], rounds)[0] / (2 * tiny.microbatches)


def least(calls, rounds):
    """Returns the least seconds of each call, all called once in each round."""
    found = [float("inf")] * len(calls)
    for _ in range(rounds):
        for i, call in enumerate(calls):
            begin = time.perf_counter()
            call()
            found[i] = min(found[i], time.perf_counter() - begin)
    return found


def runner(choice, topology, arguments):
    """Returns a function that runs one step with gradients. Its arguments are on the devices that the plan needs."""
    step = pw.program(jax.value_and_grad(pw.pipeline(loss, choice=choice)))
    compiled = step.lower(*arguments).compile(topology, schedule=choice.schedule, remat=choice.remat)
    _, placed = compiled(*arguments)  # a gradient is on the devices that need its parameter
    return lambda: jax.tree.map(ready, compiled(placed, *arguments[1:]))


def at_work(choice):
    """Returns the average number of devices that work at the same time: fewer while a pipeline fills and drains."""
    return choice.data * choice.stages * choice.microbatches / (choice.stages + choice.microbatches - 1)


def between(one, two, share):
    """Interpolates between two rates, by the time that each takes."""
    return 1 / ((1 - share) / one + share / two)


def order_of(choice):
    return choice.split, choice.microbatches, choice.schedule


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=50)
    rounds = parser.parse_args().rounds
    bare = pw.Topology((pw.Island("island0", devices=2),))
    call, link = measured_call(bare, rounds), measured_link(bare, 2 * rounds) / 1e9
    print(f"jax {jax.__version__}, {LAYERS} layers, float32[{ROWS},{WIDTH}]")
    print(f"{1e6 * call:.0f} us a call, {link:.1f} GB/s between devices")
    arguments = init(WIDTH), np.ones((ROWS, WIDTH), np.float32)
    choices = [pw.SplitChoice(islands=("island0",) * way["stages"], **way) for way in WAYS]
    rates = [measured_rates(bare, devices, call, rounds) for devices in (1, 2)]
    for devices, (flops, memory) in enumerate(rates, 1):
        print(f"a device, while {devices} work: {flops / 1e9:.1f} Gflop/s, {memory / 1e9:.1f} GB/s of memory")
    rows = []
    for choice in choices:
        flops, memory = (between(a, b, at_work(choice) - 1) for a, b in zip(*rates, strict=True))
        topology = pw.Topology((pw.Island("island0", devices=2, flops=flops, ici_gbps=link),))
        assumed = {"efficiency": 1.0, "call_seconds": call, "memory_gbps": memory / 1e9}
        rows += pw.search(loss, *arguments, topology=topology, compiled=0, only=[choice], **assumed).rows
    took = least([runner(r.choice, topology, arguments) for r in rows], rounds)
    heads = f"{'stages x data x model':24}{'microbatches':14}{'schedule':12}"
    print(f"{heads}{'predicted':>11}{'measured':>11}{'ratio':>8}")
    for row, seconds in zip(rows, took, strict=True):
        c = row.choice
        shown = f"{c.split:24}{c.microbatches:<14}{c.schedule:12}"
        print(f"{shown}{1e3 * row.seconds:8.1f} ms{1e3 * seconds:8.1f} ms{row.seconds / seconds:8.2f}")
    pairs = [(i, j) for i, j in itertools.permutations(range(len(rows)), 2) if took[i] > APART * took[j]]
    wrong = [(i, j) for i, j in pairs if rows[i].seconds <= rows[j].seconds]
    for i, j in wrong:
        (slow, fast) = (" ".join(map(str, order_of(rows[k].choice))) for k in (i, j))
        print(f"wrong: {slow} is slower than {fast}")
    right = len(pairs) - len(wrong)
    print(f"{right} of {len(pairs)} pairs that differ by more than {APART - 1:.0%} are predicted in the right order")


if __name__ == "__main__":
    main()
