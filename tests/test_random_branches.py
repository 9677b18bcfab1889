"""Random programs whose loops and branches depend on data equal plain JAX on one device.

`pytest tests/test_random_branches.py --programs 1000 --first-program 0` compares more of them.
"""

from typing import Any

import jax
import numpy as np
import pytest
from support.random_programs import INPUTS, SHAPE, draw_irregular

import pathways as pw


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    first: Any = metafunc.config.getoption("--first-program")
    count: Any = metafunc.config.getoption("--programs")
    metafunc.parametrize("seed", range(first, first + count + (count // 2 if count > 10 else 0)))


def test_a_program_with_data_dependent_control_flow_equals_plain_jax(seed: int) -> None:
    rng = np.random.default_rng(seed)
    placed, plain = draw_irregular(seed)
    program, jit = pw.program(placed), jax.jit(plain)
    for _ in range(2):  # other data takes other branches
        values = [0.5 * rng.standard_normal(SHAPE).astype(np.float32) for _ in range(INPUTS)]
        expected: Any = jit(*values)
        for ours, theirs in zip(program(*values), expected, strict=True):
            np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=2e-4, atol=2e-5)
