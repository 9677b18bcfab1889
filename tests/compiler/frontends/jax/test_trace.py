"""Tests the structure of phase `trace`: placed calls depend on each other only where they do in the program."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from support.processes import load_file

import pathways as pw
from pathways.compiler.driver import Compilation
from pathways.compiler.passes.base import Session
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.mlir import make_context, parse
from pathways.dialect.phases import Phase
from pathways.dialect.plan.codec import encode_plan
from pathways.dialect.topology import Island, Topology


def longest_chain(program: ProgramIR) -> int:
    """Returns the length of the longest path of placed calls."""
    depth: dict[int, int] = {}
    for node in program.flow:
        counts = 1 if node.is_call and not node.op.gathered else 0
        reached = counts + max((depth.get(v, 0) for v in node.operands), default=0)
        depth.update((r, reached) for r in node.results)
    return max(depth.values())


def placed_calls(program: ProgramIR) -> int:
    return sum(not c.gathered for c in program.calls())


def pipeline(stages: int, weights_only: bool) -> Callable[..., Any]:
    """Returns value_and_grad of a loss that scans over microbatches, through all stages."""
    devices = pw.make_virtual_device_set()
    calls: list[Any] = []
    jit: Any = jax.jit
    for _ in range(stages):
        mesh = devices.add_slice(devices=2).mesh("model")
        weights, batch = NamedSharding(mesh, P(None, "model")), NamedSharding(mesh, P())
        shardings = {"in_shardings": (weights, None if weights_only else batch)}
        calls.append(jit(lambda w, x: jnp.tanh(x @ w), **shardings))

    def loss(weights: Any, batches: Any) -> Any:
        def body(total: Any, x: Any) -> Any:
            for call, w in zip(calls, weights, strict=True):
                x = call(w, x)
            return total + (x**2).sum(), None

        return lax.scan(body, jnp.float32(0), batches)[0]

    return lambda w, x: jax.value_and_grad(loss)(w, x)


@pytest.mark.parametrize("weights_only", [False, True])
def test_microbatches_are_independent_of_each_other(weights_only: bool) -> None:
    stages = 4
    step = pw.program(pipeline(stages, weights_only))
    weights = [jax.ShapeDtypeStruct((8, 8), jnp.float32)] * stages
    distinct: set[int] = set()
    for microbatches in (1, 4, 16):
        batches = jax.ShapeDtypeStruct((microbatches, 4, 8), jnp.float32)
        program = ProgramIR(step.lower(weights, batches).module)
        assert longest_chain(program) == 2 * stages
        assert placed_calls(program) == 2 * stages * microbatches
        if microbatches > 1:
            distinct.add(len(program.computations))
    assert len(distinct) == 1


def test_the_longest_chain_of_train_lm_is_that_of_one_microbatch(root: Path) -> None:
    sample = load_file(root / "samples" / "train_lm.py")
    chains: set[int] = set()
    distinct: set[int] = set()
    for microbatches in (1, 4, 8):
        sample.MICROBATCHES = microbatches
        program = ProgramIR(sample.train_step.lower(*sample.example_args()).module)
        chains.add(longest_chain(program))
        if microbatches > 1:
            distinct.add(len(program.computations))
    # Forward and backward through the stages, after one call that JAX hoists out of the loop over microbatches.
    assert chains == {2 * sample.STAGES + 1}
    assert len(distinct) == 1


def test_sizes_of_ir_and_plan_do_not_depend_on_the_number_of_shards() -> None:
    """Ops, lines, instructions and buffers are equal; bytes differ by at most 3 %, the digits of the numbers."""
    sizes: set[tuple[int, ...]] = set()
    bytes_: list[tuple[int, int]] = []
    jit: Any = jax.jit
    for count in (2, 2048):  # not 1: a single device needs no per-device module
        slices = [pw.make_virtual_device_set().add_slice(devices=count) for _ in range(2)]
        calls = [jit(jnp.sin, in_shardings=NamedSharding(s.mesh("x"), P("x"))) for s in slices]
        lowered = pw.program(lambda x, calls=calls: calls[1](calls[0](x))).lower(jnp.zeros(2048))
        ops_ = list(ProgramIR(lowered.module).nodes())
        texts = [lowered.as_text(phase) for phase in Phase]
        compilation = Compilation(
            ProgramIR(parse(lowered.as_text(debug_info=True), make_context())),
            lowered.constants,
            Session(Topology((Island("island0", devices=2 * count),))),
        )
        compilation.advance()
        plan = compilation.plan()
        (stream,) = plan.streams
        sizes.add((len(ops_), *(t.count("\n") for t in texts), len(stream.instructions), len(stream.buffers)))
        bytes_.append((sum(map(len, texts)), len(encode_plan(plan))))
    assert len(sizes) == 1
    for few, many in zip(*bytes_, strict=True):
        assert abs(many - few) < 0.03 * few


def test_the_ir_has_the_names_that_the_user_wrote() -> None:
    mesh = pw.make_virtual_device_set().add_slice(devices=2).mesh("x")
    jit: Any = jax.jit

    def scale(x: Any) -> Any:
        return 2 * x

    placed = jit(scale, in_shardings=NamedSharding(mesh, P("x")))

    @pw.program
    def step(params: Any) -> Any:
        return {"new": placed(params["w"])}

    text = step.lower({"w": jnp.zeros(4)}).as_text()
    assert """pw.name = "params['w']\"""" in text
    assert """pw.name = "out['new']\"""" in text
    assert "module @scale" in text
    assert "func.func @step" in text
