# pyright: basic
"""Measures dispatch (paper, Figure 5): computations a second by call, by chain and fused, beside native JAX and Ray.

    python bench/paper/figure5.py [--rounds 5]

A computation is an all-reduce of one number for each device, and an addition; its result is the next one's argument. A
chain has 128 of them. Native JAX and ours use CPU devices of this process, and ours also those of a host process. Ray
is an actor with native JAX: a call for each computation (O), a chain of references (C), and a method that loops (F).
The ways of one process run in rotation: native JAX with the host process, then ours here, then Ray. Calls of JAX and
ours are waited for 16 at a time, and those of Ray one at a time, as its users get results.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from functools import partial
from statistics import median

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from row import Figure, Row

import pathways as pw
from pathways.runtime.launch.ray_api import connect_to_ray
from pathways.runtime.launch.ray_trial import trial_cluster

CHAIN = 128
"""Computations of a chain."""
DEVICES = (2, 4, 8)
IN_FLIGHT = 16
"""Calls of native JAX before the next wait: more than 32 collectives in flight hang XLA's CPU devices."""


def computation(mesh, length=1):
    @partial(jax.shard_map, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    def chain(x):
        for _ in range(length):
            x = jax.lax.pmean(x, "x") + 1
        return x

    place = NamedSharding(mesh, P("x"))
    return jax.jit(chain, in_shardings=place, out_shardings=place)


def repeated(step, length=CHAIN):
    def run(x):
        for _ in range(length):
            x = step(x)
        return x

    return run


def native(count):
    mesh = Mesh(np.array(jax.devices()[:count]), ("x",))
    one, fused = computation(mesh), computation(mesh, CHAIN)
    x = one(np.zeros(count, np.float32))
    return {"JAX-O": lambda: by_call(one, x), "JAX-F": lambda: fused(x)}


def by_call(step, x):
    """Calls a step for each computation, and waits after each IN_FLIGHT of them."""
    some = repeated(step, IN_FLIGHT)
    for _ in range(CHAIN // IN_FLIGHT):
        x = some(x).block_until_ready()
    return x


def ours(count, where):
    devices = pw.make_virtual_device_set()
    mesh = devices.add_slice(devices=count).mesh("x")
    one, fused = computation(mesh), computation(mesh, CHAIN)
    each, whole = pw.program(lambda x: one(x)), pw.program(lambda x: fused(x))
    x = each(np.zeros(count, np.float32))
    chain = pw.program(repeated(one)).lower(x)
    apart, merged = chain.compile(merge=False), chain.compile()
    return {f"PW-O{where}": lambda: by_call(each, x), f"PW-C{where}": lambda: apart(x),
            f"PW-C{where}, merged": lambda: merged(x), f"PW-F{where}": lambda: whole(x)}  # fmt: skip


class Actor:
    """An island by Ray: native JAX in an actor."""

    def __init__(self, count):
        mesh = Mesh(np.array(jax.devices()[:count]), ("x",))
        self.ways = {length: computation(mesh, length) for length in (1, CHAIN)}

    def run(self, x, length=1):
        return np.asarray(self.ways[length](x))


def by_ray(count, rounds):
    """Returns the rates of Ray. This process does not call JAX."""
    with trial_cluster(1, 2) as trial:
        ray = connect_to_ray(trial.address)
        try:
            return rates(ways_of_ray(ray, count), rounds)
        finally:
            ray.shutdown()


def ways_of_ray(ray, count):
    kind = ray.remote(num_cpus=1)(Actor).options(runtime_env={"env_vars": dict(XLA_FLAGS=os.environ["XLA_FLAGS"])})
    actor = kind.remote(count)
    x = np.zeros(count, np.float32)
    ray.get([actor.run.remote(x, length) for length in (1, CHAIN)])
    return {"Ray-O": lambda: repeated(lambda x: ray.get(actor.run.remote(x)))(x),
            "Ray-C": lambda: ray.get(repeated(lambda x: actor.run.remote(x))(x)),
            "Ray-F": lambda: ray.get(actor.run.remote(x, CHAIN))}  # fmt: skip


def rates(ways, rounds):
    """Returns computations a second of each way; the first round warms up."""
    times = {name: [] for name in ways}
    for _ in range(rounds + 1):
        for name, way in ways.items():
            begin = time.perf_counter()
            value = np.asarray(way())
            times[name].append(time.perf_counter() - begin)
            assert value.ravel()[0] >= CHAIN, name
    return {name: CHAIN / median(found[1:]) for name, found in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ray", type=int, help="measures Ray alone, with so many devices, in a process of its own")
    chosen = parser.parse_args()
    rounds = chosen.rounds
    if chosen.ray:
        print(json.dumps(by_ray(chosen.ray, rounds)))
        return
    row, lines = Row(
        "figure5", "Dispatch of small computations (Figure 5)",
        "by call (O), JAX is far faster than any single controller; fused (F), both are equal to 1,000 cores; a "
        "chain (C) is faster than JAX's calls to 256 cores; Ray takes about 10 times as long a computation",
    ), {}  # fmt: skip
    for count in DEVICES:
        here = ours(count, "")
        with pw.cluster(islands=1, devices=count):
            found = rates(native(count) | ours(count, ", host"), rounds)
        found |= rates(here, rounds)
        words = [sys.executable, __file__, "--rounds", str(rounds), "--ray", str(count)]
        found |= json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout.splitlines()[-1])
        for name, rate in found.items():
            lines.setdefault(name, []).append((count, rate))
            print(f"{count} devices, {name}: {rate:,.0f} a second", flush=True)
    count = DEVICES[-1]
    last = {name: points[-1][1] for name, points in lines.items()}
    for name, rate in last.items():
        base = "JAX-F" if "-F" in name else "JAX-O"
        row.measured.append(Figure(f"{name}, {count} devices", f"{rate:,.0f} computations/s",
                                   f"{rate / last[base]:.2f} of {base}"))  # fmt: skip
    row.short = ["Ray's compiled graphs are left out: with ray 2.60 they did not answer within 10 seconds here",
                 "by call, ours is slower than JAX: a call is a run, which is scheduled and sent to a host",
                 "devices, hosts, controller and client share two cores"]  # fmt: skip
    row.write(("devices", "computations/s", lines))


if __name__ == "__main__":
    main()
