"""Tests that end stages of a pipeline share the computations of middle stages; the rest is computed separately."""

from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from support.training import training_step

import pathways as pw
from pathways.compiler.computations.merge import count_operations
from pathways.dialect.ir.program import ProgramIR

LAYERS, WIDTH, WORDS = 12, 16, 6
LARGE_OPERATIONS = 64
TOKENS = np.arange(32, dtype=np.int32).reshape(8, 4) % WORDS


def layer(x: Any, weights: dict[str, Any]) -> Any:
    x = x - x.mean(-1, keepdims=True)
    x = x / jnp.sqrt((x * x).mean(-1, keepdims=True) + 1e-3)
    return x + jax.nn.gelu(x @ weights["up"] + weights["bias"]) @ weights["down"]


def unrolled(params: Any, tokens: Any) -> Any:
    x = params["words"][tokens]
    for i in range(LAYERS):
        with jax.named_scope(f"layer_{i}"):
            x = layer(x, params[f"{i}"])
    return jnp.square(jax.nn.log_softmax(x @ params["head"])).mean()


def scanned(params: Any, tokens: Any) -> Any:
    x, _ = lax.scan(lambda x, w: (layer(layer(layer(x, w), w), w), None), params["words"][tokens], params["layers"])
    return jnp.square(jax.nn.log_softmax(x @ params["head"])).mean()


def parameters(scan: bool) -> dict[str, Any]:
    rng = np.random.default_rng(0)

    def draw(*shape: int) -> Any:
        return 0.3 * rng.standard_normal(shape).astype(np.float32)

    square = (LAYERS, WIDTH, WIDTH)
    stack = {"up": draw(*square), "bias": draw(LAYERS, WIDTH), "down": draw(*square)}
    params = {"words": draw(WORDS, WIDTH), "head": draw(WIDTH, WORDS)}
    if scan:
        return params | {"layers": stack}
    return params | {str(i): {k: w[i] for k, w in stack.items()} for i in range(LAYERS)}


OPTIMIZER = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-2))


def calls_of_large_computations(program: ProgramIR) -> Counter[str]:
    """Counts the calls of each computation that takes long to compile."""
    large = {name for name, op in program.computations.items() if count_operations(op) >= LARGE_OPERATIONS}
    return Counter(call.callee for call in program.calls() if call.callee in large)


@pytest.mark.long("a model of another library is compiled: 1 to 60 s each")
@pytest.mark.parametrize(("count", "scan"), [(3, False), (4, True)], ids=["unrolled", "scanned"])
def test_end_stages_share_the_computations_of_middle_stages(count: int, scan: bool) -> None:
    loss, params = (scanned, parameters(True)) if scan else (unrolled, parameters(False))
    made = pw.make_virtual_device_set()
    slices = [made.add_slice(devices=1) for _ in range(count)]
    step = pw.program(training_step(pw.pipeline(loss, slices, microbatches=2), OPTIMIZER))
    state = OPTIMIZER.init(params)
    lowered = step.lower(params, state, TOKENS)
    if not scan:  # a scanned stage has three stacks, whose update is small
        alone = [name for name, times in calls_of_large_computations(ProgramIR(lowered.module)).items() if times == 1]
        assert len(alone) <= 1, "the norm of all gradients alone"
    plan = lowered.compile().plan
    stages = [c.name for c in plan.computations if c.name.startswith("stage")]
    assert len(stages) == 3, "forward, and backward in two parts"
    ours, theirs = step(params, state, TOKENS), jax.jit(training_step(loss, OPTIMIZER))(params, state, TOKENS)
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-4, atol=1e-5)


def updates(calls: Any, first: Any, second: Any, entangled: bool) -> Any:
    """Builds a program with a long update of one value on each of two slices; the first slice also updates a second."""

    def program(x: Any, y: Any) -> Any:
        a, b, c = (call(v) for call, v in zip(calls, (x, x, y), strict=True))
        norm = a.sum() + b.sum() + c.sum()  # all operations below depend on all calls
        a, b, c = a * norm, b * norm, c * norm
        for i in range(LARGE_OPERATIONS // 2):
            a, b = a * 1.01 + float(i), b * 1.01 + float(i)
        return first(a), second(b), c + (a.sum() if entangled else 1.0)

    return program


@pytest.mark.parametrize(
    ("first", "second", "entangled", "computations"),
    [
        (jnp.tanh, jnp.tanh, False, 1),
        (jnp.tanh, jnp.tanh, True, 2),  # the rest reads a value of the common part
        (jnp.tanh, jnp.exp, False, 2),  # there is no common part
    ],
    ids=["common", "entangled", "different"],
)
def test_only_a_part_common_to_two_groups_becomes_a_shared_computation(
    first: Any, second: Any, entangled: bool, computations: int
) -> None:
    made = pw.make_virtual_device_set()
    one, other = (NamedSharding(made.add_slice(devices=1).mesh("x"), P()) for _ in range(2))
    placed = [jax.jit(jnp.sin, in_shardings=home) for home in (one, other, one)]
    step = pw.program(updates(placed, first, second, entangled))
    x, y = np.linspace(-1, 1, 8, dtype=np.float32), np.linspace(0, 1, 4, dtype=np.float32)
    assert len(calls_of_large_computations(ProgramIR(step.lower(x, y).module))) == computations
    plain = jax.jit(updates([jnp.sin] * 3, first, second, entangled))
    for ours, theirs in zip(step(x, y), plain(x, y), strict=True):
        np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=1e-5)
