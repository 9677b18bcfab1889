"""Computations of a plan as JAX itself runs them."""

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
def test_modules_are_for_what_jax_calls_the_platform(platform: str) -> None:
    """JAX lowers for `cuda` or `rocm` where its backend is called `gpu`, and refuses to run what is for another."""
    where = NamedSharding(pw.make_virtual_device_set().add_slice(devices=1).mesh("x"), P())
    f = jit(lambda x: x + 1, in_shardings=where)
    (computation,) = pw.program(lambda x: f(x)).lower(np.ones(3, np.float32)).compile().plan.computations
    (name,) = exported(computation, platform, 1).platforms
    assert name == PLATFORMS[platform].lowered_as[0]  # of a platform that is not here, the first
