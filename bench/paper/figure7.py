# pyright: basic
"""Measures parallel and sequential dispatch (paper, Figure 7) of a chain over more and more islands of timed devices.

    python bench/paper/figure7.py

Each stage is a computation of 0.3 ms on four devices of another host process. Sequential dispatch enqueues a
computation when the one before it is done.
"""

import time
from statistics import median

import jax
import numpy as np
from row import Figure, Row

import pathways as pw

STAGES = (1, 2, 4, 8, 16)
SECONDS = 0.3e-3


def stage(x):
    return x + 1


def rate(compiled, stages):
    """Returns computations a second of runs that are started before the last is done."""
    x, times = np.zeros(4, np.float32), []
    for _ in range(6):
        begin = time.perf_counter()
        for out in [compiled(x) for _ in range(16)]:
            out.block_until_ready()
        times.append((time.perf_counter() - begin) / 16)
    return stages / median(times[1:])


def measured(stages):
    with pw.cluster(f"islands={stages},devices=4", timed={"stage": SECONDS}):
        devices = pw.make_virtual_device_set()
        steps = [jax.pmap(stage, devices=devices.add_slice(devices=4).tpus) for _ in range(stages)]

        @pw.program
        def chain(x):
            for step in steps:
                x = step(x)
            return x

        lowered = chain.lower(np.zeros(4, np.float32))
        return [rate(lowered.compile(dispatch=way), stages) for way in ("parallel", "sequential")]


def main():
    row, lines = Row(
        "figure7", "Parallel and sequential dispatch (Figure 7)",
        "parallel dispatch is faster than sequential; the values are only in a plot",
    ), {"parallel": [], "sequential": []}  # fmt: skip
    for stages in STAGES:
        both, single = measured(stages)
        lines["parallel"].append((stages, both))
        lines["sequential"].append((stages, single))
        row.measured.append(Figure(f"{stages} stages", f"{both:,.0f} computations/s in parallel",
                                   f"{both / single:.2f} times sequential dispatch"))  # fmt: skip
    row.short = [
        "all host processes share two cores, which limits the rate from 2 stages on; devices are timed",
        "16 runs are in flight, so that the ratio also shows how runs overlap",
    ]
    row.write(("stages", "computations/s", lines))


if __name__ == "__main__":
    main()
