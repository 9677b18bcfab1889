"""Tests the export of a plan's computations as modules that JAX itself can run."""

from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw
from pathways.api.reference import exported
from pathways.dialect.platforms import PLATFORMS

jit: Any = jax.jit


@pytest.mark.parametrize("platform", list(PLATFORMS))
def test_modules_are_exported_under_the_lowering_name_of_their_platform(platform: str) -> None:
    """JAX lowers for `cuda` or `rocm`, although its backend is named `gpu`, and refuses modules for other platforms."""
    where = NamedSharding(pw.make_virtual_device_set().add_slice(devices=1).mesh("x"), P())
    f = jit(lambda x: x + 1, in_shardings=where)
    (computation,) = pw.program(lambda x: f(x)).lower(np.ones(3, np.float32)).compile().plan.computations
    (name,) = exported(computation, platform, 1).platforms
    assert name == PLATFORMS[platform].lowered_as[0]  # the first, if this machine lacks the platform
