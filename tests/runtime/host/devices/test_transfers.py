"""Tests how a small value is copied from one CPU device to another: by PJRT, or through the host in a loop."""

from typing import Any

import jax
import numpy as np
import pytest
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw
from pathways.runtime.host.devices import pjrt

jit: Any = jax.jit
X = np.arange(8, dtype=np.float32)


def stages() -> list[Any]:
    """Makes two computations on one device each. A value that goes from one to the other is copied."""
    devices = pw.make_virtual_device_set()
    places = [NamedSharding(devices.add_slice(devices=1).mesh("x"), P()) for _ in range(2)]
    return [jit(lambda x: x + 1, in_shardings=place, out_shardings=place) for place in places]


@pytest.mark.embedded
def test_only_loops_copy_small_values_through_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = stages()
    straight = pw.program(lambda x: second(first(x)))
    loop = pw.program(lambda x: lax.while_loop(lambda v: v.sum() < 100, lambda v: second(first(v)), x))
    copied: list[tuple[int, ...]] = []
    real = pjrt.read_replica

    def read_replica(array: Any, *, is_here: bool) -> Any:
        copied.append(array.shape)
        assert is_here
        return real(array, is_here=is_here)

    for program, want in ((straight, X + 2), (loop, X + 10)):
        program(X).block_until_ready()
        monkeypatch.setattr(pjrt, "read_replica", read_replica)
        result = program(X).block_until_ready()
        monkeypatch.undo()
        np.testing.assert_array_equal(np.asarray(result), want)
        assert (X.shape in copied) == (program is loop)
