# pyright: basic
"""Measures what the paper did not: the loss of an island, elastic changes, snapshots, resharding, the start of hosts.

python bench/paper/recovery.py
"""

import tempfile
import time
from pathlib import Path
from statistics import median

import jax
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from row import Figure, Row

import pathways as pw

MIB = 64
"""Size of the arrays that are saved and resharded."""
ROUNDS = 3


def seconds(work):
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def step_on(devices):
    mesh = devices.add_slice(devices=4).mesh("x")
    place = NamedSharding(mesh, P("x"))
    return pw.program(jax.jit(add, in_shardings=place, out_shardings=place))


def add(x):
    return x + 1


def lost_island():
    """Returns the seconds from the error of a lost island to the end of the next step there."""
    found = []
    with pw.cluster(islands=2, devices=4):
        step, x = step_on(pw.make_virtual_device_set()), np.zeros(8, np.float32)
        step(x).block_until_ready()
        for _ in range(ROUNDS):
            with pw.testing.fault(kind="lose", computation="add"):
                try:
                    step(x).block_until_ready()
                    raise AssertionError("nothing was lost")
                except pw.PathwaysError:
                    begin = time.perf_counter()
            step(x).block_until_ready()
            found.append(time.perf_counter() - begin)
    return median(found)


def elastic():
    """Returns the seconds to add an island, and to remove it."""
    with pw.cluster(islands=1, devices=4):
        added = seconds(lambda: pw.add_island("devices=4"))
        return added, seconds(lambda: pw.remove_island("island1"))


def snapshot(folder):
    """Returns the seconds to write and to read an array on one host, and those of its bytes by NumPy."""
    with pw.cluster("islands=1,devices=4"):
        step = step_on(pw.make_virtual_device_set())
        x = step(np.ones(MIB << 18, np.float32))
        x.block_until_ready()
        path = Path(folder) / "snapshot"
        saved = median(seconds(lambda: pw.save(x, path)) for _ in range(ROUNDS))
        read = median(seconds(lambda: pw.restore(x, path)) for _ in range(ROUNDS))
    whole = np.ones(MIB << 18, np.float32)
    return saved, read, median(seconds(lambda: np.save(Path(folder) / "plain.npy", whole)) for _ in range(ROUNDS))


def reshard():
    """Returns the seconds to move an array from one layout to another inside an island."""
    devices = pw.make_virtual_device_set()
    mesh = devices.add_slice(devices=4).mesh("x")
    rows, columns = NamedSharding(mesh, P("x")), NamedSharding(mesh, P(None, "x"))
    one = jax.jit(lambda x: x + 1, in_shardings=rows, out_shardings=rows)
    other = jax.jit(lambda x: x * 2, in_shardings=columns, out_shardings=columns)
    both, alone = pw.program(lambda x: other(one(x))), pw.program(lambda x: one(x))
    x = np.ones((4096, MIB << 6), np.float32)
    y = alone(x)
    ways = [both, alone]
    times = [[seconds(lambda way=way: way(y).block_until_ready()) for _ in range(ROUNDS + 1)] for way in ways]
    return median(times[0][1:]) - median(times[1][1:])


def start(topology, timed):
    def work():
        with pw.cluster(topology, timed=timed):
            pass

    return seconds(work)


def main():
    row = Row("recovery", "Loss, elasticity and data (not in the paper)", "not measured by the paper")
    row.measured.append(
        Figure("from the error of a lost island to the end of the next step there", f"{lost_island():.2f} s")
    )
    added, removed = elastic()
    row.measured.append(Figure("an island of four devices is added; removed", f"{added:.2f} s; {removed * 1e3:.0f} ms"))
    with tempfile.TemporaryDirectory() as folder:
        saved, read, plain = snapshot(folder)
    row.measured.append(Figure(f"snapshot of {MIB} MiB written; read", f"{saved:.2f} s; {read:.2f} s",
                               f"{plain / saved:.2f} of the rate of np.save"))  # fmt: skip
    row.measured.append(
        Figure(f"{MIB} MiB from rows to columns of four devices", f"{MIB / 1024 / reshard():.1f} GiB/s")
    )
    row.measured.append(Figure("start and end of 4 host processes", f"{start('islands=4,devices=1', False):.1f} s"))
    row.measured.append(
        Figure("start and end of 512 timed hosts", f"{start('islands=1,hosts=512,devices=4', True):.1f} s")
    )
    row.short = ["the time to detect a loss is not included, and nothing is restored from a snapshot"]
    row.write()


if __name__ == "__main__":
    main()
