"""Tests that simulated times follow the rates of the machines: work is divided over the devices of meshes,
transfers over links.
"""

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from support.pipelines import block, pipe

import pathways as pw
from pathways.dialect.topology import Island, Topology

jit: Any = jax.jit
EXACT: Any = {"efficiency": 1.0, "call_us": 1e-9, "memory_gbps": 1e9}
"""Figures under which a call takes its flops alone."""


def seconds(p: Any, devices: int, *, dcn: float, flops: float = 1e12) -> float:
    islands = tuple(Island(f"i{n}", devices, flops=flops, **EXACT) for n in range(2))
    return p.lowered().simulate(Topology(islands, dcn_gbps=dcn), schedule="gpipe").seconds


def two_stages(*, devices: int) -> Any:
    made = pw.make_virtual_device_set()
    homes = [NamedSharding(made.add_slice(devices=devices).mesh("x"), P()) for _ in range(2)]
    first, second = (jit(lambda w, x: x @ w, in_shardings=home) for home in homes)
    program = pw.program(lambda a, b, xs: [second(b, first(a, xs[m])) for m in range(2)])
    return program.lower(jnp.ones((8, 16)), jnp.ones((16, 32)), jnp.ones((2, 4, 8)))


def test_a_forward_pipeline_of_two_microbatches_takes_the_time_computed_by_hand() -> None:
    """Work takes 1 and 4 us, a transfer 128 ns; the second slice waits for its first microbatch."""
    islands = tuple(Island(name, 1, flops=1024e6, **EXACT) for name in "ab")
    found = two_stages(devices=1).simulate(Topology(islands, dcn_gbps=2.0), schedule="gpipe")
    wanted = 1e-6 + 128e-9 + 2 * 4e-6
    assert (found.seconds, found.bubble) == (pytest.approx(wanted), pytest.approx(1 - 10e-6 / (2 * wanted)))
    (link,) = found.links
    assert link.bytes == 2 * 4 * 16 * 4


def test_a_transfer_inside_of_an_island_uses_the_links_of_all_devices() -> None:
    islands = (Island("a", 4, flops=1024e6, ici_gbps=2.0, **EXACT),)
    found = two_stages(devices=2).simulate(Topology(islands))
    assert found.seconds == pytest.approx(0.5e-6 + 2 * 128e-9 / 2 + 2 * 2e-6) and not found.links


@pytest.mark.long(
    "more policies: 1 s each",
    keep=(
        "spread",
        "optimal",
    ),
)
@pytest.mark.parametrize("policy", ["spread", "balanced", "min-cut", "optimal"])
def test_the_estimate_of_a_placement_is_a_lower_bound_of_its_simulation(policy: str) -> None:
    """Both take their times from one cost model. The text of the plan states the estimate."""
    islands = tuple(Island(f"i{n}", 2, flops=flops, **EXACT) for n, flops in enumerate((1e9, 4e9)))
    lowered = pipe(slices=4, microbatches=4, stage=block).lowered()
    topology = Topology(islands, dcn_gbps=0.1)
    number, unit = lowered.compile(topology, placement=policy).plan.placement.partition("about ")[2].split()[:2]
    estimate = float(number) * {"s": 1.0, "ms": 1e-3, "us": 1e-6}[unit]
    simulated = lowered.simulate(topology, placement=policy).seconds
    assert 0.3 * simulated < estimate <= 1.005 * simulated  # the text is rounded


def test_twice_the_devices_halve_the_simulated_time() -> None:
    """Transfers take almost no time here."""
    on_one_device = seconds(pipe(slices=2, microbatches=4, stage=block), 1, dcn=1e9)
    found = seconds(pipe(slices=2, microbatches=4, stage=block, devices=2), 2, dcn=1e9)
    assert found == pytest.approx(on_one_device / 2, rel=1e-3)


def test_half_the_rate_doubles_the_simulated_time() -> None:
    p = pipe(slices=2, microbatches=4, stage=block)
    assert seconds(p, 1, dcn=1e9, flops=5e11) == pytest.approx(2 * seconds(p, 1, dcn=1e9), rel=1e-3)
    moves = seconds(p, 1, dcn=1e-3, flops=1e18)  # almost no work
    assert seconds(p, 1, dcn=5e-4, flops=1e18) == pytest.approx(2 * moves, rel=1e-3)
