# pyright: basic
"""Runs Shardy's MPMD partitioner, from jaxlib, on the training step of `bench/compile.py`.

It takes one module in which every stage of every microbatch is a named computation, and gives one of fragments on
meshes. JAX has no front end for it. So this module turns the calls of stages, as JAX lowers them, into named
computations; that is not timed.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core
from jax.extend.mlir import ir

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.shardy_mpmd import partitioner, register

_PREFIX = "stage"


def seconds(stage: Callable[..., Any], params: Sequence[Any], xs: Any) -> float | None:
    """Returns the partitioner's seconds for training `stage` with `params` of each stage on the microbatches `xs`."""
    try:
        partitioner()
    except PathwaysError as error:
        print(error)
        return None
    module = named(stage, params, xs)
    start = time.perf_counter()
    partition(module, params, "ALL")
    return time.perf_counter() - start


def named(stage: Callable[..., Any], params: Sequence[Any], xs: Any) -> Any:
    """Returns the module of a training step in which every stage of every microbatch is a named computation."""
    module: Any = jax.jit(_step(stage, xs), keep_unused=True).lower(params, xs).compiler_ir("stablehlo")
    register(module.context)
    with module.context, ir.Location.unknown():
        _name_stages(module, len(params))
    return module


def partition(module: Any, params: Sequence[Any], phases: str) -> Any:
    """Partitions such a module over one device a stage, up to a phase of Shardy's; returns the changed module."""
    homes = [f"m{i}" for i, own in enumerate(params) for _ in jax.tree.leaves(own)]
    found = partitioner()
    found.apply_mpmd_partitioning(
        module,
        func_name="main",
        named_meshes=[(f"m{i}", [("x", 1)]) for i in range(len(params))],
        assignment={f"{_PREFIX}{i}": f"m{i}" for i in range(len(params))},
        input_meshes=[*homes, "m0"],
        output_meshes=[*homes, f"m{len(params) - 1}"],
        donate_argnums=[],
        partitioning_options={"mpmd_pipeline_schedule": "1F1B"},
        fragment_merge_rules=[],
        fragment_schedule_rules=[],
        phases=getattr(found.PartitioningPhase, phases),
    )
    return module


def _step(stage: Callable[..., Any], xs: Any) -> Callable[..., Any]:
    """Returns the training step with its loop over microbatches unrolled, as the partitioner needs it."""

    def of_stage(number: int) -> Any:
        def one(own: Any, x: Any) -> Any:
            return stage(own, x)

        one.__name__ = f"{_PREFIX}{number}_"
        return jax.jit(one)

    def loss(params: Sequence[Any], x: Any) -> Any:
        for number, own in enumerate(params):
            x = of_stage(number)(own, x)
        return (x**2).mean()

    def step(params: Sequence[Any], xs: Any) -> Any:
        flat = jax.tree.leaves(params)
        microbatch = core.jaxpr_as_fun(jax.make_jaxpr(jax.value_and_grad(loss))(params, xs[0]))
        total, values = [jnp.zeros_like(p) for p in flat], []
        for x in xs:
            value, *grads = microbatch(*flat, x)
            total = [t + g for t, g in zip(total, grads, strict=True)]
            values.append(value)
        return [p - 0.1 * g for p, g in zip(flat, total, strict=True)], jnp.stack(values).mean()

    return step


def _name_stages(module: Any, stages: int) -> None:
    """Turns calls of stages into `mpmd.call`s with their microbatch, and their callees into named computations.

    The first half of the calls of a microbatch is forward.
    """
    functions = {f.attributes["sym_name"].value: f for f in module.body.operations if _is_function(f)}
    named_before: set[str] = set()
    count = 0
    for op in list(functions["main"].regions[0].blocks[0].operations):
        callee = op.operation.attributes["callee"].value if op.operation.name == "func.call" else ""
        if not callee.startswith(_PREFIX):
            continue
        microbatch, at = divmod(count, 2 * stages)
        count += 1
        if callee not in named_before:
            named_before.add(callee)
            _name_body(functions[callee], callee.removeprefix(_PREFIX).split("_")[0], at >= stages)
        _replace(op, "mpmd.call", ir.InsertionPoint(op.operation), {
            "callee": op.operation.attributes["callee"],
            "call_counter": ir.IntegerAttr.get(ir.IntegerType.get_unsigned(32), microbatch),
        })  # fmt: skip


def _is_function(op: Any) -> bool:
    return op.operation.name == "func.func"


def _replace(op: Any, name: str, at: Any, attributes: dict[str, Any]) -> None:
    old = op.operation
    types = [r.type for r in old.results]
    new = ir.Operation.create(name, results=types, operands=list(old.operands), attributes=attributes, ip=at)
    for one, other in zip(old.results, new.results, strict=True):
        one.replace_all_uses_with(other)
    old.erase()


def _name_body(function: Any, number: str, backward: bool) -> None:
    """Moves the body of a function into a named computation of a stage."""
    block = function.regions[0].blocks[0]
    *operations, end = [op.operation for op in block.operations]
    made, types = list(end.operands), [v.type for v in end.operands]
    wrapped = ir.Operation.create(
        "mpmd.named_computation",
        results=types,
        operands=list(block.arguments),
        attributes={"origin": ir.Attribute.parse(f'#mpmd.user_origin<"{_PREFIX}{number}"({int(backward)})>')},
        regions=1,
        ip=ir.InsertionPoint(end),
    )
    inside = wrapped.regions[0].blocks.append(*[a.type for a in block.arguments])
    last = ir.Operation.create("mpmd.return", operands=made, ip=ir.InsertionPoint(inside))
    for op in operations:
        op.move_before(last)
    known = {old: new for old, new in zip(block.arguments, inside.arguments, strict=True)}
    for op in (*operations, last):
        for i, value in enumerate(op.operands):
            if value in known:
                op.operands[i] = known[value]
    ir.Operation.create("func.return", operands=list(wrapped.results), ip=ir.InsertionPoint(end))
    end.erase()
