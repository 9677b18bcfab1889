# pyright: basic
"""Measures the control plane (paper, Figure 6): the smallest computation that hides its work, up to 512 hosts.

    python bench/paper/figure6.py

The controller is real, and hosts answer at once (`bench/controller.py`), so that only the controller is measured. Next
to it are runs on timed hosts, which do all work of a host and share this machine's cores, and a call of a Ray actor.
"""

import sys
import time
from pathlib import Path
from statistics import median

import jax
import numpy as np
from row import Figure, Row

import pathways as pw

sys.path.insert(0, str(Path(__file__).parents[1]))
import controller

HOSTS = (16, 64, 512)
PAPER = {16: 2.3, 512: 35.0}
"""Milliseconds of the whole system, each host on a machine of its own."""


def on_timed_hosts(hosts, seconds=0.001):
    """Returns the milliseconds that a run on all hosts takes in addition to its computation."""
    with pw.cluster(f"islands=1,hosts={hosts},devices=4", timed={"add": seconds}):
        devices = pw.make_virtual_device_set().add_slice(devices=4 * hosts)

        def add(x):
            return jax.lax.psum(x, "i") + 1

        step, x = jax.pmap(add, axis_name="i", devices=devices.tpus), np.zeros(4 * hosts, np.float32)
        program = pw.program(lambda x: step(x))
        program(x).block_until_ready()
        times = []
        for _ in range(7):
            begin = time.perf_counter()
            program(x).block_until_ready()
            times.append(time.perf_counter() - begin)
    return 1e3 * (median(times) - seconds)


def main():
    row, lines = Row(
        "figure6", "The computation that hides the control plane (Figure 6)",
        "2.3 ms on 16 hosts and 35 ms on 512: 144 and 68 us a host",
    ), {"controller": [], "timed hosts, two cores": [], "paper": list(PAPER.items())}  # fmt: skip
    for hosts in HOSTS:
        each, cpu = controller.measured(hosts, 20, tls=False)
        beside = f"{cpu:.1f} us of its CPU; the controller alone"
        value = f"{each:.1f} us a host and run: {each * hosts / 1e3:.2f} ms"
        row.measured.append(Figure(f"controller, {hosts} hosts", value, beside))
        lines["controller"].append((hosts, each * hosts / 1e3))
        whole = on_timed_hosts(hosts)
        lines["timed hosts, two cores"].append((hosts, whole))
        row.measured.append(
            Figure(
                f"timed hosts, {hosts}", f"{whole:.1f} ms a run", f"paper: {PAPER[hosts]} ms" if hosts in PAPER else ""
            )
        )
    submit, answered = controller.by_ray()
    value = f"{submit:.0f} us to submit a call, {answered:.0f} us until it is answered"
    row.measured.append(Figure("Ray, one actor", value,
                               f"512 actors: {submit * 512 / 1e3:.0f} ms to submit"))  # fmt: skip
    row.assumes = ["a client has four runs in flight; each is one message to each host and one back"]
    row.short = [
        "the paper's figures are of a whole system on machines of its own; ours are of a controller alone, "
        "or of all hosts on two cores",
        "512 timed hosts on two cores take a host's CPU time 512 times, which separate machines do at once",
    ]
    row.write(("hosts", "ms", lines))


if __name__ == "__main__":
    main()
