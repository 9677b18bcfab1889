# pyright: basic
"""Measures many clients of one island (paper, Figures 8 and 11): 1, 4, 8 and 16 clients with programs of 0.33 ms.

    python bench/paper/figure8.py [--seconds 2]

Clients are threads of this process. Devices are timed, and the fraction of the time in which they are occupied is
shown. `bench/throughput.py` compares many clients with native JAX in a loop.
"""

import argparse
import threading
import time

import jax
import numpy as np
from row import Figure, Row

import pathways as pw

CLIENTS = (1, 4, 8, 16)
SIZES = (0.04e-3, 0.33e-3, 1.04e-3, 2.4e-3)
"""Seconds of a computation."""


def add(x):
    return jax.lax.psum(x, "i") + 1


def runs_a_second(program, x, clients, seconds):
    """Returns the runs a second of all clients, each of which always has runs in line."""
    done, stop = [0] * clients, threading.Event()

    def work(number):
        with pw.Client(f"client{number}"):
            y = program(x)
            while not stop.is_set():
                for _ in range(8):
                    y = program(y)
                y.block_until_ready()
                done[number] += 8

    threads = [threading.Thread(target=work, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    before, begin = sum(done), time.perf_counter()
    time.sleep(seconds)
    rate = (sum(done) - before) / (time.perf_counter() - begin)
    stop.set()
    for thread in threads:
        thread.join()
    return rate


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0)
    seconds = parser.parse_args().seconds
    row, lines = Row(
        "figure8", "Many clients of one island (Figures 8 and 11)",
        "one client does not saturate the devices with programs of 0.33 ms, many reach about 100 %; together they "
        "are at least as fast as JAX; fewer clients are needed for larger computations",
    ), {}  # fmt: skip
    for took in SIZES:
        with pw.cluster("islands=1,devices=8", timed={"add": took}):
            devices = pw.make_virtual_device_set().add_slice(devices=8)
            step, x = jax.pmap(add, axis_name="i", devices=devices.tpus), np.zeros(8, np.float32)
            program = pw.program(lambda x, step=step: step(x))
            for clients in CLIENTS:
                rate = runs_a_second(program, x, clients, seconds)
                lines.setdefault(f"{took * 1e3:g} ms", []).append((clients, 100 * rate * took))
                row.measured.append(Figure(f"{took * 1e3:g} ms, {clients} clients", f"{rate:,.0f} runs/s",
                                           f"devices occupied {rate * took:.0%} of the time"))  # fmt: skip
    row.short = [
        "with 0.33 ms, devices are occupied about 60 % of the time, where the paper reaches about 100 %: "
        "clients, the controller and the host share two cores, which limits all runs to about 2,000 a second",
        "native JAX is not compared here (bench/throughput.py)",
    ]
    row.write(("clients", "% of the time that devices are occupied", lines, False))


if __name__ == "__main__":
    main()
