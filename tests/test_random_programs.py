"""Random programs on slices equal plain JAX on one device.

`pytest tests/test_random_programs.py --programs 1000 --first-program 0` compares more of them.
"""

from typing import Any

import jax
import numpy as np
import pytest
from support.random_programs import INPUTS, SHAPE, draw

import pathways as pw


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    first: Any = metafunc.config.getoption("--first-program")
    count: Any = metafunc.config.getoption("--programs")
    metafunc.parametrize("seed", range(first, first + count))


def test_a_random_program_on_slices_equals_plain_jax(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = [0.5 * rng.standard_normal(SHAPE).astype(np.float32) for _ in range(INPUTS)]
    placed, plain = draw(seed)
    jit: Any = jax.jit
    expected = jit(plain)(*values)
    for ours, theirs in zip(pw.program(placed)(*values), expected, strict=True):
        np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=2e-4, atol=2e-5)
