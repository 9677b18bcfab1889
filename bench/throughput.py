# pyright: basic
"""Compares many clients of small programs (paper, Figure 8) with one native JAX loop: runs a second.

    python bench/throughput.py

They use one device and programs of about 0.33 ms. The loop calls the same jitted function on the same device, alone.
Both are measured in rotation; above 1 the clients together are faster.
"""

import argparse
import statistics
import threading
import time

import jax
import numpy as np
from jax.sharding import NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

import pathways as pw
from pathways.api.process import process

CLIENTS, RUNS = 16, 100


def work(x):
    return jax.lax.fori_loop(0, 72, lambda i, y: jax.numpy.tanh(y @ y), x)


def by_clients(program, x):
    ready, threads = threading.Barrier(CLIENTS + 1), []

    def client(number):
        with pw.Client(f"client{number}"):
            mine = program(x)
            mine.block_until_ready()
            ready.wait()
            for _ in range(RUNS):
                mine = program(mine)
            mine.block_until_ready()

    for number in range(CLIENTS):
        threads.append(threading.Thread(target=client, args=(number,)))
        threads[-1].start()
    ready.wait()
    begin = time.perf_counter()
    for thread in threads:
        thread.join()
    return CLIENTS * RUNS / (time.perf_counter() - begin)


def by_loop(step, x):
    step(x).block_until_ready()
    begin = time.perf_counter()
    for _ in range(CLIENTS * RUNS):
        x = step(x)
    x.block_until_ready()
    return CLIENTS * RUNS / (time.perf_counter() - begin)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", type=int, default=64)
    options = parser.parse_args()
    mesh = pw.make_virtual_device_set().add_slice(devices=1).mesh("x")
    placed = jax.jit(work, in_shardings=NamedSharding(mesh, P()))
    program = pw.program(lambda x: placed(x))
    host = np.eye(options.size, dtype=np.float32)
    program(host).block_until_ready()
    device = process().machine.islands[0].devices[0]
    x, step = jax.device_put(host, SingleDeviceSharding(device)), jax.jit(work)
    ours, native = [], []
    for _ in range(options.rounds):
        ours.append(by_clients(program, host))
        native.append(by_loop(step, x))
    a, b = statistics.median(ours), statistics.median(native)
    print(f"jax {jax.__version__}, {CLIENTS} clients, float32[{options.size}, {options.size}]")
    print(f"clients      {a:8.0f} runs a second")
    print(f"native loop  {b:8.0f} runs a second, {1e3 / b:.3f} ms each; clients / loop {a / b:.2f}")


if __name__ == "__main__":
    main()
