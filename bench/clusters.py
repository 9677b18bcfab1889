# pyright: basic
"""Compares calls on a cluster of the driver's own (`pw.cluster`) with the same calls on a shared cluster.

    python bench/clusters.py [--before TREE] [--rounds 12]

The calls run over two islands of one device: one hop with an argument on the host, and one with an argument on the
device. Then come 200 calls that do not wait for each other, and 8 consecutive hops. Each way is a separate driver
process. The drivers time one block of calls after another in rotation, so that noise affects all equally. Figures are
medians of blocks, in microseconds a call, and ratios to this tree's own cluster in the same round (median). `--before`
adds the same for another tree, which has its own environment in `.venv`, or is imported by this one.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

CALLS = {"host argument": 60, "resident": 60, "pipelined": 200, "8 hops": 30}


class Driver:
    """A process that times blocks of calls on command."""

    def __init__(self, tree, way, address):
        python = tree / ".venv" / "bin" / "python"
        self.process = subprocess.Popen(
            [str(python) if python.exists() else sys.executable, __file__, "--driver", way, "--address", address],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": str(tree)},
        )  # fmt: skip
        self.hear()

    def hear(self):
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.process.args} ended with {self.process.wait()}")
        return line.strip()

    def time(self, work):
        assert self.process.stdin is not None
        print(work, file=self.process.stdin, flush=True)
        return float(self.hear())

    def close(self):
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def drive(way, address):
    """Times the blocks that standard input names, in a separate process."""
    import jax
    import numpy as np
    from jax.sharding import NamedSharding
    from jax.sharding import PartitionSpec as P

    import pathways as pw

    with pw.cluster(islands=2, devices=1) if way == "own" else pw.connect(address):
        devices = pw.make_virtual_device_set()
        places = [NamedSharding(devices.add_slice(devices=1).mesh("x"), P()) for _ in range(2)]
        first, second = (jax.jit(lambda x: x + 1, in_shardings=place, out_shardings=place) for place in places)
        hop = pw.program(lambda x: second(first(x)))
        back = pw.program(lambda x: first(second(x)))

        def eight(x):
            for _ in range(4):
                x = second(first(x))
            return x

        chain = pw.program(eight)
        values = np.ones(64, np.float32)
        here = back(values)
        here.block_until_ready()

        def pipelined(count):
            for _ in range(count):
                last = hop(here)
            last.block_until_ready()

        works = {
            "host argument": lambda count: [hop(values).block_until_ready() for _ in range(count)],
            "resident": lambda count: [hop(here).block_until_ready() for _ in range(count)],
            "pipelined": pipelined,
            "8 hops": lambda count: [chain(here).block_until_ready() for _ in range(count)],
        }
        for work in works.values():
            work(5)
        print("ready", flush=True)
        for line in sys.stdin:
            count = CALLS[line.strip()]
            works[line.strip()](3)
            begin = time.perf_counter()
            works[line.strip()](count)
            print((time.perf_counter() - begin) / count * 1e6, flush=True)


def cluster_of(tree, name):
    """Starts a shared cluster of two islands from a tree; returns the command line of that tree's `pwc`."""
    pwc = tree / ".venv" / "bin" / "pwc"
    command = [str(pwc)] if pwc.exists() else [sys.executable, "-m", "pathways.cli.main"]
    subprocess.run([*command, "cluster", "start", "islands=2,devices=1", "--name", name], check=True)
    return command


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--driver", choices=["own", "shared"])
    parser.add_argument("--address", default="")
    chosen = parser.parse_args()
    if chosen.driver:
        drive(chosen.driver, chosen.address)
        return
    trees = {"": Path(__file__).resolve().parents[1]}
    if chosen.before:
        trees["before, "] = chosen.before.resolve()
    drivers, stops = {}, []
    try:
        for said, tree in trees.items():
            name = f"bench{os.getpid()}{len(stops)}"
            stops.append([*cluster_of(tree, name), "cluster", "stop", "--name", name])
            for way in ("own", "shared"):
                drivers[said + way] = Driver(tree, way, name)
        times = {(way, work): [] for work in CALLS for way in drivers}
        for _ in range(chosen.rounds):
            for work in CALLS:
                for way, driver in drivers.items():
                    times[way, work].append(driver.time(work))
    finally:
        for driver in drivers.values():
            driver.close()
        for stop in stops:
            subprocess.run(stop, check=False)
    for work in CALLS:
        print(work)
        for way in drivers:
            ratios = [mine / own for mine, own in zip(times[way, work], times["own", work], strict=True)]
            print(f"  {way:16}{statistics.median(times[way, work]):8.0f} us   {statistics.median(ratios):5.2f}x of own")


if __name__ == "__main__":
    main()
