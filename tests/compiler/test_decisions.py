"""Tests what the record of decisions says of slices: their island, and their devices as a range or a list."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw

jit: Any = jax.jit


@pytest.mark.parametrize(
    ("sizes", "chosen"),
    [((1,), ["[0]"]), ((2, 1), ["[0, 1]", "[2]"]), ((4, 3), ["[0..3]", "[4..6]"])],
)
def test_a_slice_says_its_island_and_its_devices(sizes: tuple[int, ...], chosen: list[str]) -> None:
    devices = pw.make_virtual_device_set()
    meshes = [devices.add_slice(devices=size).mesh("x") for size in sizes]
    calls = [jit(lambda x: x + 1, in_shardings=NamedSharding(mesh, P())) for mesh in meshes]

    def program(x: Any) -> list[Any]:
        return [call(x) for call in calls]

    plan = pw.program(program).lower(np.ones(4, np.float32)).compile("islands=1,devices=8").plan
    island = plan.topology.islands[0].name
    slices = [d for d in plan.decisions if d.kind == "slice"]
    assert [d.chosen for d in slices] == [f"{island} {devices}" for devices in chosen]


def test_a_move_between_slices_says_why() -> None:
    devices = pw.make_virtual_device_set()
    first, second = (
        jit(lambda x: x + 1, in_shardings=NamedSharding(devices.add_slice(devices=1).mesh("x"), P())) for _ in range(2)
    )
    plan = pw.program(lambda x: second(first(x))).lower(np.ones(4, np.float32)).compile().plan
    (move,) = [d for d in plan.decisions if d.kind == "transfer"]
    assert move.reason and move.bytes == 16


def test_the_parts_of_a_merged_call_are_decisions_of_its_step_that_move_no_bytes() -> None:
    mesh = pw.make_virtual_device_set().add_slice(devices=1).mesh("x")
    first, second = (jit(function, in_shardings=NamedSharding(mesh, P())) for function in (jnp.sin, jnp.cos))
    plan = pw.program(lambda x: second(first(x))).lower(np.ones(4, np.float32)).compile().plan
    calls = [d for d in plan.decisions if d.kind == "call"]
    (run,) = plan.runs()
    assert [d.name for d in calls] == ["sin", "cos"]
    for decision in calls:
        assert decision.reason.startswith("merged into sin+cos, which is ")
        assert (decision.steps, decision.bytes) == ((run.step,), 0)
