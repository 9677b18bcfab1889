# pyright: basic
"""Measures proportional shares (paper, Figure 9): clients compete for one island, and each always has work.

    python bench/shares.py --weights 1:2:4:8 --seconds 10 --trace shares.json

Prints the fraction of all runs that each client got, and its deviation from the client's weight.
"""

import argparse
import contextlib
import threading
import time

import jax
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw


def make_program(sharding, size):
    work = jax.jit(lambda x: jax.lax.fori_loop(0, 72, lambda i, y: jax.numpy.tanh(y @ y), x), in_shardings=sharding)
    return pw.program(lambda x: work(x))


def measure(weights, seconds, size, program):
    """Returns the runs of each client in the time in which all of them compete."""
    x = np.eye(size, dtype=np.float32)
    program(x).block_until_ready()
    done, stop, ready = [0] * len(weights), threading.Event(), threading.Barrier(len(weights) + 1)

    def work(number):
        with pw.Client(f"client{number}", weights[number]):
            mine = program(x)
            ready.wait()
            while not stop.is_set():
                mine = program(mine)
                done[number] += 1
            mine.block_until_ready()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(len(weights))]
    for thread in threads:
        thread.start()
    ready.wait()
    time.sleep(seconds / 5)
    before = list(done)
    time.sleep(seconds)
    counts = [b - a for a, b in zip(before, done, strict=True)]
    stop.set()
    for thread in threads:
        thread.join()
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", action="append", help="default: 1:1:1:1 and 1:2:4:8")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--size", type=int, default=64, help="rows of the matrix that is multiplied")
    parser.add_argument("--trace", help="a file for Perfetto")
    options = parser.parse_args()
    mesh = pw.make_virtual_device_set().add_slice(devices=1).mesh("x")
    program = make_program(NamedSharding(mesh, P()), options.size)
    with pw.trace(options.trace) if options.trace else contextlib.nullcontext():
        for text in options.weights or ["1:1:1:1", "1:2:4:8"]:
            weights = [float(w) for w in text.split(":")]
            counts = measure(weights, options.seconds, options.size, program)
            total, heavy = sum(counts), sum(weights)
            print(f"weights {text}: {total} runs, {1e3 * options.seconds / total:.2f} ms each")
            for number, (count, weight) in enumerate(zip(counts, weights, strict=True)):
                share, due = count / total, weight / heavy
                print(f"  client{number}  {share:6.1%} of {due:6.1%}, off by {share / due - 1:+.1%}")


if __name__ == "__main__":
    main()
