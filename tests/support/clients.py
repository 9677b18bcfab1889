"""Builds small programs for tests with several clients, and returns the code of the error that a call raises."""

from typing import Any

import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw
from pathways.dialect.jax_api import jit

X = np.arange(8, dtype=np.float32)


def on(devices: int = 2) -> NamedSharding:
    return NamedSharding(pw.make_virtual_device_set().add_slice(devices=devices).mesh("x"), P("x"))


def make(amount: float, sharding: NamedSharding | None = None) -> Any:
    call = jit(lambda x: x + amount, in_shardings=sharding or on())
    return pw.program(lambda x: call(x))
