"""Measures the machine or the cluster at hand, for predictions of times: flop/s, memory, overheads, links. `pwc
calibrate` calls it.

Each figure is the median of several runs of a small program, on devices that do nothing else.
"""

import os
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from pathways.api.array import Array
from pathways.api.process import process
from pathways.api.program import program
from pathways.api.simulation import times_of
from pathways.api.tracing import trace
from pathways.compiler.frontends.jax.devices import make_virtual_device_set
from pathways.dialect.platforms import platform_named
from pathways.dialect.topology import Topology

TIMED_CALLS = 7
"""Calls of which the median is taken."""
MATRIX_WIDTH = 2048
"""Rows and columns of the matrices whose products measure flop/s."""
LOOP_S, MAX_TURNS = 0.05, 1 << 14
"""Seconds that a loop on a device takes at least, and its maximum number of turns."""
LARGE, SMALL = 1 << 24, 1 << 10
"""Elements of float32 in large arrays, whose bytes dominate, and in small arrays, whose overhead does."""
CHAINED_CALLS = 64
"""Calls in the program that measures the overhead of one."""
any_jax: Any = jax


def calibrate(topology: Topology) -> Topology:
    """Returns the topology with measured figures in place of those that it states.

    Links inside islands are measured if each has two devices, and links between islands if there are two.
    """
    one = _OneDevice()
    flops, memory = one.flops(), one.memory_gbps()
    host, call = one.overheads()
    has_links = all(island.size > 1 for island in topology.islands)
    ici_us, ici_gbps = _link(_inside_an_island()) if has_links else (None, None)
    figures = {
        "flops": flops, "efficiency": 1.0, "memory_gbps": memory, "host_us": host, "call_us": call, "ici_us": ici_us,
        "ici_gbps": ici_gbps,
    }  # fmt: skip
    islands = tuple(replace(island, **_rounded(figures)) for island in topology.islands)
    dcn_us, dcn_gbps = _link(_between_islands()) if len(islands) > 1 else (topology.dcn_us, topology.dcn_gbps)
    cores = _cores() if platform_named(process().platform).on_host else None
    found = {"dcn_gbps": dcn_gbps, "dcn_us": dcn_us, "controller_us": one.controller_us(), "host_cores": cores}
    return replace(topology, islands=islands, **_rounded(found))


def _rounded(figures: Mapping[str, float | None]) -> dict[str, Any]:
    """Keeps the figures that were measured, with the digits that a measurement can give."""
    return {name: float(f"{value:.3g}") for name, value in figures.items() if value is not None}


def _seconds(call: Callable[[], Any], rounds: int = TIMED_CALLS) -> float:
    """Returns the median seconds of a call until its results are ready. The first call compiles and is not counted."""
    any_jax.block_until_ready(_plain(call()))
    times: list[float] = []
    for _ in range(rounds):
        begin = time.perf_counter()
        for result in _plain(call()):
            result.block_until_ready()
        times.append(time.perf_counter() - begin)
    return median(times)


def _plain(results: Any) -> list[Array]:
    return jax.tree.leaves(results, is_leaf=lambda leaf: isinstance(leaf, Array))


class _OneDevice:
    """Measures one device."""

    def __init__(self) -> None:
        self.where = NamedSharding(make_virtual_device_set().add_slice(devices=1).mesh("x"), P())
        self.tiny = any_jax.jit(_add_one, in_shardings=self.where)
        self.small = program(self.tiny)(np.zeros(SMALL, np.float32))

    def flops(self) -> float:
        """Returns the flop/s of products of large matrices."""
        w, x = program(lambda *xs: xs)(*[np.full((MATRIX_WIDTH, MATRIX_WIDTH), 1 / MATRIX_WIDTH, np.float32)] * 2)
        return 2 * MATRIX_WIDTH**3 / self._seconds_of_turn(lambda w, x: x @ w, w, x)

    def memory_gbps(self) -> float:
        """Returns the GB/s at which a large array is read and written."""
        one, x = program(lambda *xs: xs)(np.float32(1), np.zeros(LARGE, np.float32))
        return 2 * 4 * LARGE / self._seconds_of_turn(lambda one, x: x + one, one, x) / 1e9

    def _seconds_of_turn(self, turn: Callable[[Any, Any], Any], fixed: Any, x: Any) -> float:
        """Returns the seconds of one turn of a loop on the device, without the overhead of a call.

        Turns are added until the overhead of the call no longer matters.
        """

        def turns(count: int) -> Any:
            def loop(fixed: Any, x: Any) -> Any:
                def body(_: Any, x: Any) -> Any:
                    return turn(fixed, x)

                return any_jax.lax.fori_loop(0, count, body, x)

            return program(any_jax.jit(loop, in_shardings=(self.where, self.where)))

        count = 1
        while (few := _seconds(partial(turns(count), fixed, x), 3)) < LOOP_S and count < MAX_TURNS:
            count *= 4
        many = _seconds(partial(turns(3 * count), fixed, x), 3)
        return max(many - few, 1e-9) / (2 * count)

    def overheads(self) -> tuple[float, float]:
        """Returns the microseconds in which a host enqueues a call, and in which a device does nothing else."""

        def chain(x: Any) -> Any:
            for _ in range(CHAINED_CALLS):
                x = self.tiny(x)
            return x

        long, short = (program(f).lower(self.small).compile(merge=False) for f in (chain, self.tiny))
        enqueued = (_seconds(lambda: long(self.small)) - _seconds(lambda: short(self.small))) / (CHAINED_CALLS - 1)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            with trace(path):
                long(self.small).block_until_ready()
            found = times_of(path)
        return max(enqueued * 1e6, 1e-3), max(median(found.values()) * 1e6, 1e-3)

    def controller_us(self) -> float:
        """Returns the microseconds in which a run of one call is started."""
        add = program(self.tiny)
        add(self.small).block_until_ready()
        times: list[float] = []
        for _ in range(TIMED_CALLS * CHAINED_CALLS):
            begin = time.perf_counter()
            result = add(self.small)
            times.append(time.perf_counter() - begin)
            result.block_until_ready()
        return median(times) * 1e6


def _add_one(x: Any) -> Any:
    return x + 1


def _one_after_another(first: Any, second: Any) -> Callable[[Any], Any]:
    def both(x: Any) -> Any:
        return second(first(x))

    return both


def _between_islands() -> tuple[Any, Any]:
    """Returns the places of a value before and after a transfer between two islands."""
    slices = make_virtual_device_set()
    here, there = (NamedSharding(slices.add_slice(devices=1).mesh("x"), P()) for _ in range(2))
    return here, there


def _inside_an_island() -> tuple[Any, Any]:
    """Returns the places of a value before and after two devices exchange their halves of it."""
    devices = make_virtual_device_set().add_slice(devices=2).tpus
    here, there = (NamedSharding(Mesh(np.array(order), ("x",)), P("x")) for order in (devices, devices[::-1]))
    return here, there


def _link(places: tuple[Any, Any]) -> tuple[float, float | None]:
    """Returns the latency of a link in microseconds, and its rate in GB/s; None if nothing was moved.

    Both come from two calls, the second at another place, in comparison with two calls at the first place.
    """
    first, second = (any_jax.jit(_add_one, in_shardings=place) for place in places)
    seconds: dict[int, float] = {}
    moved: dict[int, float] = {}
    for size in (SMALL, LARGE):
        x = program(first)(np.zeros(size, np.float32))
        moving, staying = (
            program(_one_after_another(first, then)).lower(x).compile(merge=False) for then in (second, first)
        )
        decided = [d for d in moving.plan.decisions if d.kind in ("transfer", "reshard")]
        devices = len(moving.plan.meshes[-1].devices)
        moved[size] = sum(d.bytes * len(d.steps) for d in decided) / devices
        seconds[size] = _seconds(partial(moving, x)) - _seconds(partial(staying, x))
    rate = (moved[LARGE] - moved[SMALL]) / max(seconds[LARGE] - seconds[SMALL], 1e-9)
    return max(seconds[SMALL] * 1e6, 0.0), rate / 1e9 if rate > 0 else None


def _cores() -> float:
    """Returns how many devices can compute at the same time without slowing each other down."""
    slices = make_virtual_device_set()
    count = os.cpu_count() or 1
    places = [NamedSharding(slices.add_slice(devices=1).mesh("x"), P()) for _ in range(count)]

    def products(x: Any) -> Any:
        for _ in range(32):
            x = jnp.tanh(x @ x)
        return x

    calls = [any_jax.jit(products, in_shardings=place) for place in places]
    x = np.eye(MATRIX_WIDTH // 8, dtype=np.float32)
    alone, all_of_them = program(calls[0]), program(lambda *xs: [call(x) for call, x in zip(calls, xs, strict=True)])
    given = program(lambda *xs: [any_jax.device_put(x, place) for x, place in zip(xs, places, strict=True)])(
        *[x] * count
    )
    return (
        count
        * _seconds(partial(alone, given[0]), 4 * TIMED_CALLS)
        / _seconds(partial(all_of_them, *given), 4 * TIMED_CALLS)
    )
