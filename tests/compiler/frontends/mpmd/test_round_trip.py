"""Tests that programs written in Shardy's dialect and read back give the same results; samples equal bit for bit."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from support.emitting import scheduled, some_value
from support.processes import load_file
from support.random_programs import INPUTS, SHAPE, draw

import pathways as pw
from pathways.compiler.schedule import PROGRAM


def both(lowered: pw.Lowered, leaves: Sequence[Any], schedule: str = PROGRAM) -> list[tuple[Any, Any]]:
    """Returns each result of the program after reading it from its text, with that of the original program."""
    text = scheduled(lowered, schedule).emit("mpmd")
    again = pw.from_mpmd(text).compile()
    ours = lowered.compile(schedule=schedule)
    by_name = dict(zip((p.name for p in ours.plan.inputs), leaves, strict=True))
    taken = [by_name[p.name] for p in again.plan.inputs]  # the text has no unused arguments
    expected = ours.run_flat([np.array(x) for x in leaves])
    found = again.run_flat([np.array(x) for x in taken])
    assert [p.name for p in again.plan.results] == [p.name for p in ours.plan.results]
    return list(zip(found, expected, strict=True))


@pytest.mark.long(
    "a model of another library is compiled: 1 to 60 s each", keep=("figure2-f-program", "mixture_of_experts-*")
)
@pytest.mark.parametrize(
    ("sample", "program", "schedule"),
    [
        ("figure2", "f", PROGRAM),
        ("mixture_of_experts", "moe_step", PROGRAM),
        ("train_lm", "train_step", "zero-bubble"),
    ],
)
def test_samples_give_the_same_bits_after_a_round_trip(root: Path, sample: str, program: str, schedule: str) -> None:
    function = getattr(load_file(root / "samples" / f"{sample}.py"), program)
    rng = np.random.default_rng(0)
    leaves = [some_value(rng, leaf) for leaf in jax.tree.leaves(function.example_args)]
    for one, other in both(function.lower(*function.example_args), leaves, schedule):
        # Its calls are joined in another way, which XLA rounds alike only with its optimizations.
        exact = sample != "train_lm" or "PATHWAYS_TESTS_OPTIMIZED" in os.environ
        rtol, atol = (0, 0) if exact else (1e-4, 1e-5)
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=rtol, atol=atol)


@pytest.mark.long("more random examples of the same kind", keep=("[1-4]",))
@pytest.mark.parametrize("seed", range(8))
def test_random_programs_give_close_results_after_a_round_trip(seed: int) -> None:
    """Results are only close: Shardy makes one mesh of several meshes on one slice, so other calls are merged."""
    rng = np.random.default_rng(seed)
    values = [0.5 * rng.standard_normal(SHAPE).astype(np.float32) for _ in range(INPUTS)]
    for one, other in both(pw.program(draw(seed)[0]).lower(*values), values):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-4, atol=1e-6)
