# pyright: basic
"""Measures the cost of a computation and its hop: a chain of small computations that alternates between two islands.

    python bench/hop.py [--ray-python PYTHON]

It runs with one device an island, and with four and an all-reduce in each computation. `ours` runs as a plan in one
process, and with a process for each island (`pw.cluster`). `by hand` is the best that two processes can do with JAX
alone. They pull from each other by `jax.experimental.transfer`, receive no message between the ends of a chain, and
survive no fault. `by hand, lockstep` waits for inbound values before it dispatches their users, as ours does.
`by hand, ahead` never waits, except to keep 16 executions in flight. With Ray, the islands are two actors that exchange
NumPy arrays (cheaper than JAX's). Actors are called one by one, or all at once on futures. PYTHON is one that has ray
and jax.

All ways run in rotation in one run; ratios are of medians. Above 1 ours, in processes, is faster.
"""

import argparse
import contextlib
import importlib.util
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
from hop_by_hand import computation
from in_turns import medians
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw

OURS = "ours, processes"


class Helper:
    """A process that runs `hop_by_hand.py`."""

    def __init__(self, python, role, devices):
        path = str(Path(__file__).parent / "hop_by_hand.py")
        self.process = subprocess.Popen(
            [python, path, role, str(devices)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        self.input, self.output = self.process.stdin, self.process.stdout
        self.said = self.hear()

    def tell(self, *words):
        print(*words, file=self.input, flush=True)

    def hear(self):
        line = self.output.readline()
        if not line:
            raise SystemExit(f"{self.process.args} ended with {self.process.wait()}")
        return line.strip()

    def close(self):
        self.input.close()
        self.process.wait()


class ByHand:
    """Two processes that pull values from each other."""

    def __init__(self, devices, length):
        self.peers = [Helper(sys.executable, "peer", devices) for _ in range(2)]
        for one, other in zip(self.peers, reversed(self.peers), strict=True):
            one.tell(other.said)
        self.length, self.name = length, 1

    def run(self, lockstep):
        self.name += self.length
        for number, one in enumerate(self.peers):
            one.tell(int(number == 0), self.length, int(lockstep), self.name)
        return [float(one.hear()) for one in self.peers][(self.length - 1) % 2]

    def close(self):
        for one in self.peers:
            one.close()


def make_chain(devices, length):
    ways = []
    made = pw.make_virtual_device_set()
    for island in range(2):
        mesh = made.add_slice(devices=devices, island=f"island{island}").mesh("x")
        place = NamedSharding(mesh, P("x"))
        ways.append(jax.jit(computation(mesh, devices), in_shardings=place, out_shardings=place))

    @pw.program
    def chain(x):
        for hop in range(length):
            x = ways[hop % 2](x)
        return x

    return chain


def measure(devices, options):
    """Returns seconds per hop, keyed by implementation."""
    topology, length = f"islands=2,devices={devices}", options.length
    host = np.ones(8 * devices, np.float32)
    with contextlib.ExitStack() as stack:
        embedded = make_chain(devices, length).lower(host).compile(topology)
        x = pw.program(lambda v: v)(host)
        want = float(np.asarray(embedded(x))[0])
        stack.enter_context(pw.cluster(topology))
        apart = make_chain(devices, length).lower(host).compile()
        y = pw.program(lambda v: v)(host)
        hand = stack.enter_context(contextlib.closing(ByHand(devices, length)))
        ways = {
            OURS: lambda: float(np.asarray(apart(y))[0]),
            "ours, embedded": lambda: float(np.asarray(embedded(x))[0]),
            "by hand, lockstep": lambda: hand.run(True),
            "by hand, ahead": lambda: hand.run(False),
        }
        if options.ray_python:
            ray = stack.enter_context(contextlib.closing(Helper(options.ray_python, "ray", devices)))

            def actors(lockstep):
                ray.tell(length, int(lockstep), 2, 1)
                return float(ray.hear())

            ways |= {"Ray, one by one": lambda: actors(True), "Ray, all at once": lambda: actors(False)}
        assert all(np.isclose(way(), want) for way in ways.values())
        return {name: median / length for name, median in medians(ways, options.rounds).items()}


def compare(devices, options):
    found = measure(devices, options)
    print(f"{devices} device{'s and an all-reduce' if devices > 1 else ''} an island, a chain of {options.length}")
    for name, median in found.items():
        print(f"  {name:18}{1e6 * median:8.1f} us a hop, this / {OURS} {median / found[OURS]:6.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--length", type=int, default=128, help="computations")
    parser.add_argument("--ray-python", help="an interpreter that has ray and jax; without one, Ray is left out")
    options = parser.parse_args()
    options.ray_python = options.ray_python or (sys.executable if importlib.util.find_spec("ray") else None)
    print(f"jax {jax.__version__}")
    if not options.ray_python:
        print("ray cannot be imported here, and is left out: --ray-python PYTHON names another interpreter")
    for devices in (1, 4):
        compare(devices, options)


if __name__ == "__main__":
    main()
