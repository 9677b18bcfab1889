# pyright: basic
"""Compares simulated steps with steps of timed devices: real controller, hosts and streams, while each call holds its
devices for its predicted time.

    python bench/paper/predictions.py [--rounds 5] [--step 0.2]

The samples, pipelines of three models and a mixture of experts run on five islands of different speed, under every
schedule and three placements. The rates of the machine are scaled so that a step takes about `--step` seconds, so that
two cores suffice for the hosts. Two figures are measured first, with calls that take no time: a host's time for an
instruction, and the latency of a hop.
"""

import argparse
import importlib
import itertools
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from row import Figure, Row

import pathways as pw

sys.path.insert(0, str(Path(__file__).parents[2] / "samples"))
SCHEDULES = ("gpipe", "1f1b", "interleaved", "zero-bubble")
PLACEMENTS = ("spread", "min-cut", "balanced")
SPEEDS = (0.6, 1.0, 0.8, 1.0, 1.2)
"""Relative speeds of the islands."""
CLEARLY = 0.05
"""Two steps are ranked if they differ by more than this."""


def islands(rate, host_us=0.0, dcn_us=100.0):
    made = tuple(
        pw.Island(f"island{n}", 4, flops=rate * speed, efficiency=1.0, memory_gbps=rate, ici_gbps=rate / 1e7,
                  ici_us=10.0, call_us=30.0, host_us=host_us or None)
        for n, speed in enumerate(SPEEDS)
    )  # fmt: skip
    return pw.Topology(made, dcn_gbps=rate / 2e8, dcn_us=dcn_us)


@dataclass
class Case:
    name: str
    program: Any
    arguments: Any
    following: Any
    """Makes the arguments of the next step from those of this one and its results."""
    schedules: Any = SCHEDULES


def pipeline(name, loss, params, batch, stages, interleaved=False):
    devices = pw.make_virtual_device_set()
    slices = [devices.add_slice(devices=2) for _ in range(stages)]
    cut = pw.pipeline(loss, slices * 2 if interleaved else slices, microbatches=8)

    @pw.program
    def step(params, batch):
        value, gradients = jax.value_and_grad(cut)(params, batch)
        return jax.tree.map(lambda w, g: w - 0.01 * g, params, gradients), value

    schedules = ("interleaved",) if interleaved else ("gpipe", "1f1b", "zero-bubble")
    return Case(name, step, (params, batch), lambda args, out: (out[0], args[1]), schedules)


def random(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32) / shape[0] ** 0.5


def perceptron(params, batch):
    for w in params:
        batch = jnp.tanh(batch @ w)
    return jnp.mean(batch * batch)


def convolutions(params, batch):
    for w in params:
        batch = jax.nn.relu(jax.lax.conv_general_dilated(batch, w, (1, 1), "SAME"))
    return jnp.mean(batch * batch)


def cases():
    lm, moe = (importlib.import_module(name) for name in ("train_lm", "mixture_of_experts"))
    params = lm.init_params()
    state = lm.OPTIMIZER.init(params)
    yield Case("train_lm", lm.train_step, (params, state, next(iter(lm.batches(1)))),
               lambda args, out: (out[0], out[1], args[2]), ("program", "gpipe", "1f1b"))  # fmt: skip
    x = random(moe.TOKENS, moe.WIDTH)
    yield Case("mixture_of_experts", moe.moe_step, (moe.init_params(), x, np.sin(x)),
               lambda args, out: (out[0], *args[1:]), ("program",))  # fmt: skip
    yield pipeline("perceptron, 4 stages", perceptron, [random(64, 64)] * 16, random(64, 64), 4)
    yield pipeline("perceptron, 2 x 4 stages", perceptron, [random(64, 64)] * 16, random(64, 64), 4, interleaved=True)
    yield pipeline("convolutions, 4 stages", convolutions, [random(8, 8, 3, 3)] * 8, random(32, 8, 8, 8), 4)
    yield pipeline("transformer, 2 stages", transformer, transformer_params(lm), random_tokens(lm), 2)


def transformer(params, tokens):
    lm = importlib.import_module("train_lm")
    hidden = lm.layers(params, params["embed"][tokens[:, :-1]] + params["position"])
    logits = lm.norm(hidden) @ params["unembed"]
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[:, 1:, None], -1))


def transformer_params(lm):
    first, last = lm.init_params()
    return first | last | {"layers": first["layers"] + last["layers"]}


def random_tokens(lm):
    return np.random.default_rng(0).integers(0, 256, (32, lm.CONTEXT + 1)).astype(np.int32)


def seconds_of(compiled, case, rounds):
    """Returns the median seconds of a step, and the arguments of the next."""
    arguments, found = case.arguments, []
    for number in range(rounds + 2):
        begin = time.perf_counter()
        out = compiled(*arguments)
        jax.tree.map(lambda array: array.block_until_ready(), out)
        if number > 1:  # arguments are arrays of this process before the first, and constants are made
            found.append(time.perf_counter() - begin)
        arguments = case.following(arguments, out)
    return median(found)


def measured_overheads(rounds):
    """Measures a host's microseconds for an instruction, and those of a hop, with calls that take no time."""
    with pw.cluster(islands(1e18, dcn_us=0.001), timed={"<lambda>": 0.0}):
        devices = pw.make_virtual_device_set()
        here, there = (devices.add_slice(devices=1) for _ in range(2))
        one, other = (jax.pmap(lambda x: x + 1, devices=s.tpus) for s in (here, there))

        def chain(length, functions):
            def run(x):
                for _, function in zip(range(length), itertools.cycle(functions), strict=False):
                    x = function(x)
                return x

            compiled = pw.program(run).lower(np.ones(1, np.float32)).compile(merge=False)
            return seconds_of(compiled, Case("", None, (np.ones(1, np.float32),), lambda args, out: args), rounds)

        call = (chain(96, [one]) - chain(32, [one])) / 64
        hop = (chain(48, [one, other]) - chain(16, [one, other])) / 32
    return call * 1e6, (hop - call) * 1e6


def compared(case, rounds, step, host_us, hop_us):
    """Yields schedule, placement, and the real and simulated seconds of a step."""
    rate = 1e9
    lowered = case.program.lower(*case.arguments)
    with pw.cluster(islands(rate), timed=True):
        rate *= lowered.compile(schedule=case.schedules[0]).simulate(islands(rate)).seconds / step
    machine = islands(rate)
    there = islands(rate, host_us, machine.dcn_us + hop_us)
    for placement in PLACEMENTS:
        with pw.cluster(machine, timed=True):  # slices stay where the first program of a cluster places them
            for schedule in case.schedules:
                compiled = lowered.compile(schedule=schedule, placement=placement)
                yield schedule, placement, seconds_of(compiled, case, rounds), compiled.simulate(there).seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--step", type=float, default=0.2, help="seconds")
    chosen = parser.parse_args()
    rounds = chosen.rounds
    host_us, hop_us = measured_overheads(rounds)
    row = Row("predictions", "Predictions beside timed devices (not in the paper)", "not in the paper")
    errors, wrong, pairs, lines = [], 0, 0, {}
    for case in cases():
        found = list(compared(case, rounds, chosen.step, host_us, hop_us))
        for schedule, placement, real, predicted in found:
            print(
                f"{case.name:26} {schedule:12} {placement:9} {real * 1e3:7.1f} ms, predicted {predicted * 1e3:7.1f} ms",
                flush=True,
            )
        mine = [predicted / real - 1 for _, _, real, predicted in found]
        errors += map(abs, mine)
        lines[case.name] = [(real * 1e3, predicted * 1e3) for _, _, real, predicted in found]
        for (_, _, a, x), (_, _, b, y) in itertools.combinations(found, 2):
            if abs(a / b - 1) > CLEARLY:
                pairs += 1
                wrong += (a > b) != (x > y)
        row.measured.append(Figure(f"{case.name}, {len(found)} schedules and placements",
                                   f"error of a step from {min(mine):+.1%} to {max(mine):+.1%}"))  # fmt: skip
    row.measured.append(Figure("all", f"median error {median(errors):.1%}, worst {max(errors):.1%}",
                               f"{wrong} of {pairs} pairs that differ by over 5 % are ranked wrongly"))  # fmt: skip
    row.assumes = [f"{host_us:.0f} us of a host for an instruction and {hop_us:.0f} us more for a hop, measured first"]
    row.short = ["timed devices take the predicted times of calls and links, so that this validates order and queues, "
                 "not times of computations: on CPU devices the median error is 8 % (bench/simulated.py)"]  # fmt: skip
    row.write(("step of timed devices, ms", "predicted, ms", lines, False))


if __name__ == "__main__":
    main()
