"""Tests that emitted MPMD text, interpreted on real devices, gives the results of plain JAX and of our own runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from support.emitting import scheduled, some_value
from support.mpmd_interpreter import MpmdInterpreter
from support.processes import load_file
from support.random_programs import INPUTS, SHAPE, draw

import pathways as pw
from pathways.api.stages import Lowered
from pathways.compiler.schedule import PROGRAM

jit: Any = jax.jit


def run(lowered: Lowered, leaves: Sequence[Any], schedule: str = PROGRAM) -> list[Any]:
    """Interprets the emitted module for all inputs of the program, with keys as their data. Returns the results."""
    compilation = scheduled(lowered, schedule)
    names = [a.name for a in compilation.program.arguments if not a.is_constant]
    return MpmdInterpreter(compilation.emit("mpmd")).run(dict(zip(names, leaves, strict=True)))


@pytest.mark.long("more random examples of the same kind", keep=("[0-4]",))
@pytest.mark.parametrize("seed", range(16))
def test_random_programs_equal_plain_jax(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = [0.5 * rng.standard_normal(SHAPE).astype(np.float32) for _ in range(INPUTS)]
    placed, plain = draw(seed)
    results = run(pw.program(placed).lower(*values), values)
    for ours, theirs in zip(results, jit(plain)(*values), strict=True):
        np.testing.assert_allclose(ours, np.asarray(theirs), rtol=2e-4, atol=2e-5)


@pytest.mark.long("training is compared with plain JAX: 5 to 40 s each", keep=("mixture_of_experts-*",))
@pytest.mark.parametrize(
    ("sample", "program", "schedule"),
    [
        ("mixture_of_experts", "moe_step", PROGRAM),
        ("train_lm", "train_step", "zero-bubble"),
    ],
)
def test_samples_equal_our_own_runs(root: Path, sample: str, program: str, schedule: str) -> None:
    """The samples donate arguments, use meshes of unequal sizes, merge calls and split backward calls."""
    module = load_file(root / "samples" / f"{sample}.py")
    lowered = getattr(module, program).lower(*module.example_args())
    shapes = jax.tree.leaves(module.example_args())
    rng = np.random.default_rng(0)
    leaves = [some_value(rng, leaf) for leaf in shapes]
    expected = lowered.compile(schedule=schedule).run_flat([np.array(leaf) for leaf in leaves])
    for ours, theirs in zip(run(lowered, leaves, schedule), expected, strict=True):
        np.testing.assert_allclose(ours, np.asarray(theirs), rtol=1e-5, atol=1e-7)


def step_of_all_features() -> Any:
    """Returns a step with two meshes over the same devices, constants of several types, a key, an unused and a returned
    argument."""
    devices = pw.make_virtual_device_set()
    wide, narrow = devices.add_slice(devices=4), devices.add_slice(devices=1)
    line, grid, one = wide.mesh("x"), wide.mesh(("data", "model"), (2, 2)), narrow.mesh("one")
    double = jit(lambda v: v * 2, in_shardings=NamedSharding(line, P("x")), out_shardings=NamedSharding(line, P("x")))
    square = jit(
        lambda v: v @ v.T,
        in_shardings=NamedSharding(grid, P(("model", "data"))),
        out_shardings=NamedSharding(grid, P("model", "data")),
    )
    noisy = jit(lambda v, k: v + jax.random.normal(k, v.shape), in_shardings=NamedSharding(one, P()))
    flags, halves = np.arange(64).reshape(8, 8) % 3 == 0, np.full((8, 8), 0.5, jnp.bfloat16)
    mixed = jit(
        lambda v: (jnp.where(flags, v, -v), v.astype(jnp.bfloat16) * halves), in_shardings=NamedSharding(one, P())
    )
    table = np.arange(1024, dtype=np.float32).reshape(4, 256)

    def step(v: Any, unused: Any, key: Any, back: Any) -> Any:
        doubled = double(v)
        z = noisy(square(doubled), key)
        return doubled, z, mixed(z), back, table, double(v)

    return step


def test_a_step_of_all_features_equals_our_own_run() -> None:
    key = jax.random.key(3)
    v, back = np.arange(32, dtype=np.float32).reshape(8, 4), np.zeros((0, 3), np.float32)
    step = pw.program(step_of_all_features())
    results = run(step.lower(v, np.int32(7), key, back), [v, np.int32(7), np.asarray(jax.random.key_data(key)), back])
    expected = jax.tree.leaves(step(v, np.int32(7), key, back))
    assert len(results) == len(expected) == 7
    for ours, theirs in zip(results, expected, strict=True):
        np.testing.assert_array_equal(ours, np.asarray(theirs))


def test_the_interpreter_detects_a_use_after_a_donation() -> None:
    """The other tests rely on this: a function that donates an operand of a later call makes the run fail."""
    device = pw.make_virtual_device_set().add_slice(devices=1).mesh("x")
    first, second = (jit(lambda x, n=n: x + n, in_shardings=NamedSharding(device, P())) for n in (1, 2))
    lowered = pw.program(lambda x: (first(x), second(x))).lower(np.ones(4, np.float32))
    text = scheduled(lowered).emit("mpmd")
    assert "buffer_donor" not in text and "aliasing" not in text
    plain = "(%operands5B05D: tensor<4xf32> {"
    assert plain in text
    whole = MpmdInterpreter(text.replace(plain, f"{plain}tf.aliasing_output = 0 : i32, "))
    with pytest.raises((RuntimeError, ValueError), match=r"donated|deleted"):
        whole.run({"x": np.ones(4, np.float32)})
