"""Tests where a plan that needs too much memory is refused."""

from typing import Any

import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from support.codes import code_of

import pathways as pw
from pathways.dialect.jax_api import jit


def test_a_plan_may_fill_the_memory_of_its_devices_but_not_exceed_it() -> None:
    slices = pw.make_virtual_device_set()
    homes = [NamedSharding(slices.add_slice(devices=1).mesh("x"), P()) for _ in range(2)]
    first, second = (jit(lambda x, by=by: x * by, in_shardings=home) for by, home in enumerate(homes, 2))
    lowered = pw.program(lambda x: second(first(x))).lower(np.ones(256, np.float32))
    peaks = [stream.peak_bytes for stream in lowered.compile("islands=2,devices=1").plan.streams]

    def compiled(memory: int) -> Any:
        return lowered.compile(f"islands=2,devices=1,memory={memory}")

    assert [stream.peak_bytes for stream in compiled(max(peaks)).plan.streams] == peaks
    assert code_of(lambda: compiled(max(peaks) - 1)) == "PWC0302"
