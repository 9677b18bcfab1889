# pyright: basic
"""Measures the cost to save and restore arrays of a cluster: by its hosts, and through the client, in one .npz.

    python bench/snapshots.py [--mib 256]

Two islands have an array each. Both ways do the same in rotation. The second is `pw.save` and `pw.restore` with all
arrays in the file, as in former versions, and a program that takes them. Ratios are of medians. The peak is the memory
that the client takes beyond its memory before.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw
from pathways.api import snapshots

SLICES = pw.make_virtual_device_set()
PLACES = [NamedSharding(SLICES.add_slice(devices=4).mesh("x"), P("x")) for _ in range(2)]
WAYS = {"by the hosts": 1 << 20, "by way of the client": 1 << 62}


def memory(field):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(field)) >> 10


def measured(work):
    """Returns the seconds that some work takes, the MiB of its peak, and its result."""
    Path("/proc/self/clear_refs").write_text("5")
    before, begun = memory("VmRSS"), time.perf_counter()
    result = work()
    return time.perf_counter() - begun, memory("VmHWM") - before, result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    rows = asked.mib << 8
    make = [
        pw.program(jax.jit(lambda: jnp.arange(rows << 10, dtype=jnp.float32).reshape(rows, 1024), out_shardings=place))
        for place in PLACES
    ]
    take = pw.program(lambda *w: [jax.jit(lambda v: v, in_shardings=p)(v) for v, p in zip(w, PLACES, strict=True)])
    want = [jax.ShapeDtypeStruct((rows, 1024), jnp.float32, sharding=p) for p in PLACES]
    found = {(way, what): [] for way in WAYS for what in ("save", "restore")}
    with tempfile.TemporaryDirectory(dir=".") as folder, pw.cluster(islands=2, devices=4):
        for number in range(asked.rounds + 1):
            for way, large in WAYS.items():
                snapshots.LARGE_SNAPSHOT_BYTES, path = large, Path(folder) / "state"
                arrays = [program() for program in make]
                jax.block_until_ready(arrays)
                saved = measured(lambda arrays=arrays, path=path: pw.save(arrays, path))
                del arrays
                back = measured(lambda path=path: jax.block_until_ready(take(*pw.restore(want, path))))
                for what, (seconds, peak, _) in (("save", saved), ("restore", back)):
                    if number:  # the first round compiles
                        found[way, what].append((seconds, peak))
                del back
    here, there = WAYS
    for what in ("save", "restore"):
        seconds = {way: statistics.median(s for s, _ in found[way, what]) for way in WAYS}
        for way in WAYS:
            peak = statistics.median(p for _, p in found[way, what])
            rate = 2 * asked.mib / seconds[way]
            print(f"{what} {way:22} {seconds[way]:6.2f} s  {rate:6.0f} MiB/s  the client's peak {peak:5.0f} MiB")
        print(f"{what}: {seconds[there] / seconds[here]:.1f} times as long {there}")


if __name__ == "__main__":
    main()
