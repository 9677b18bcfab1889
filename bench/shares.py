# pyright: basic
"""Measures proportional shares (paper, Figure 9): clients compete for one island, and each always has work.

    python bench/shares.py --weights 1:2:4:8 --seconds 10 --trace shares.json
    python bench/shares.py --unmodified 1 --unmodified 2 --weights 1 --size 160

Prints the fraction of all runs that each client got, and its deviation from the client's weight. `--unmodified` adds a
JAX script, which is a client of a proxy with this weight. All of them then use one shared cluster. Its scheduler
weighs processes: several clients of one process would get equal shares, so give one weight of a client.
"""

import argparse
import collections
import contextlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import jax
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw

IN_FLIGHT = 64
"""Runs that a script has enqueued at any time, so that it always has work."""


def computation(x):
    return jax.lax.fori_loop(0, 72, lambda i, y: jax.numpy.tanh(y @ y), x)


def make_program(sharding, size):
    work = jax.jit(computation, in_shardings=sharding)
    return pw.program(lambda x: work(x))


def script(size):
    """Runs the computation for ever as plain JAX; prints a line for each run that has ended."""
    work, x = jax.jit(computation), jax.numpy.eye(size)
    recent = collections.deque([x], IN_FLIGHT)
    while True:
        recent.append(work(recent[-1]))
        recent[0].block_until_ready()
        print(flush=True)


def measure(weights, seconds, size, program, unmodified=()):
    """Returns the runs of each client, and of each script, in the time in which all of them compete."""
    x = np.eye(size, dtype=np.float32)
    program(x).block_until_ready()
    count = len(weights) + len(unmodified)
    done, stop, ready = [0] * count, threading.Event(), threading.Barrier(count + 1)

    def follow(place, environment):
        words = [sys.executable, __file__, "--script", "--size", str(size)]
        with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            lines = iter(process.stdout or ())
            next(lines)
            ready.wait()
            for _ in lines:
                done[place] += 1
                if stop.is_set():
                    break
            process.kill()

    def work(number):
        with pw.Client(f"client{number}", weights[number]):
            mine = program(x)
            ready.wait()
            while not stop.is_set():
                mine = program(mine)
                done[number] += 1
            mine.block_until_ready()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(len(weights))]
    threads += [threading.Thread(target=follow, args=(len(weights) + n, p)) for n, p in enumerate(unmodified)]
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


@contextlib.contextmanager
def shared_cluster(weights):
    """Starts a shared cluster of one device, and a proxy for each weight; yields the environments of their clients."""
    pwc, name = [str(Path(sys.executable).with_name("pwc"))], f"shares{os.getpid()}"
    subprocess.run([*pwc, "cluster", "start", "islands=1,devices=1", "--name", name], check=True, capture_output=True)
    try:
        with contextlib.ExitStack() as stack:
            environments = []
            for weight in weights:
                words = [*pwc, "proxy", "--address", name, "--listen", "127.0.0.1:0", "--weight", str(weight)]
                proxy = stack.enter_context(subprocess.Popen(words, stdout=subprocess.PIPE, text=True))
                stack.callback(proxy.terminate)
                stated = next(line for line in proxy.stdout or () if line.startswith("export "))
                environments.append({**os.environ, **dict(each.split("=", 1) for each in stated.split()[1:])})
            stack.enter_context(pw.connect(name))
            yield environments
    finally:
        subprocess.run([*pwc, "cluster", "stop", "--address", name], check=True, capture_output=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", action="append", help="default: 1:1:1:1 and 1:2:4:8")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--size", type=int, default=64, help="rows of the matrix that is multiplied")
    parser.add_argument("--trace", help="a file for Perfetto")
    parser.add_argument("--unmodified", type=float, action="append", default=[], help="weight of a JAX script")
    parser.add_argument("--script", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.script:
        script(options.size)
    with contextlib.ExitStack() as stack:
        scripts = stack.enter_context(shared_cluster(options.unmodified)) if options.unmodified else ()
        mesh = pw.make_virtual_device_set().add_slice(devices=1).mesh("x")
        program = make_program(NamedSharding(mesh, P()), options.size)
        if options.trace:
            stack.enter_context(pw.trace(options.trace))
        for text in options.weights or ["1:1:1:1", "1:2:4:8"]:
            weights = [float(w) for w in text.split(":")]
            counts = measure(weights, options.seconds, options.size, program, scripts)
            weights += options.unmodified
            total, heavy = sum(counts), sum(weights)
            print(f"weights {text}: {total} runs, {1e3 * options.seconds / total:.2f} ms each")
            for number, (count, weight) in enumerate(zip(counts, weights, strict=True)):
                share, due = count / total, weight / heavy
                name = f"client{number}" if number < len(weights) - len(options.unmodified) else f"script of {weight:g}"
                print(f"  {name:12}  {share:6.1%} of {due:6.1%}, off by {share / due - 1:+.1%}")


if __name__ == "__main__":
    main()
