# pyright: basic
"""Shardy's MPMD partitioner, from jaxlib, on the training step of `bench/compile.py`.

It takes one module in which every stage of every microbatch is a named computation, and gives one of fragments on
meshes. JAX has no front end for it, so that the calls of stages, as JAX lowers them, are made named computations here;
that is not timed.
"""

import importlib
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import jaxlib
from jax.extend import core
from jax.extend.mlir import ir

_PREFIX = "stage"


def partitioner() -> Any:
    """The module of jaxlib that has the partitioner; None where it has none. It looks for jaxlib inside of jax."""
    importlib.import_module("jaxlib._jax")
    sys.modules.setdefault("jax.jaxlib", jaxlib)
    for name in [n for n in sys.modules if n.startswith("jaxlib.")]:
        sys.modules.setdefault(f"jax.{name}", sys.modules[name])
    try:
        importlib.import_module("jaxlib.mlir.dialects.mpmd")
        return importlib.import_module("jaxlib._sdy_mpmd")
    except ImportError:
        return None


def seconds(stage: Callable[..., Any], params: Sequence[Any], xs: Any) -> float | None:
    """What the partitioner takes for training `stage` with `params` of each stage on the microbatches `xs`."""
    found = partitioner()
    if found is None:
        return None
    module: Any = jax.jit(_step(stage, xs), keep_unused=True).lower(params, xs).compiler_ir("stablehlo")
    importlib.import_module("jaxlib.mlir._mlir_libs._sdyMpmd").register_dialect(module.context)
    with module.context, ir.Location.unknown():
        _name_stages(module, len(params))
    homes = [f"m{i}" for i, own in enumerate(params) for _ in jax.tree.leaves(own)]
    start = time.perf_counter()
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
        phases=found.PartitioningPhase.ALL,
    )
    return time.perf_counter() - start


def _step(stage: Callable[..., Any], xs: Any) -> Callable[..., Any]:
    """The training step with its loop over microbatches written out, as the partitioner wants it."""

    def named(number: int) -> Any:
        def one(own: Any, x: Any) -> Any:
            return stage(own, x)

        one.__name__ = f"{_PREFIX}{number}_"
        return jax.jit(one)

    def loss(params: Sequence[Any], x: Any) -> Any:
        for number, own in enumerate(params):
            x = named(number)(own, x)
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
    """Wraps each call of a stage; of those of a microbatch the first half is forward."""
    operations = module.body.operations
    (main,) = [o for o in operations if o.operation.name == "func.func" and o.attributes["sym_name"].value == "main"]
    count = 0
    for op in list(main.regions[0].blocks[0].operations):
        callee = op.operation.attributes["callee"].value if op.operation.name == "func.call" else ""
        if not callee.startswith(_PREFIX):
            continue
        microbatch, at = divmod(count, 2 * stages)
        count += 1
        number = callee.removeprefix(_PREFIX).split("_")[0]
        taken, made = list(op.operation.operands), list(op.operation.results)
        types = [r.type for r in made]
        wrapped = ir.Operation.create(
            "mpmd.named_computation",
            results=types,
            operands=taken,
            attributes={
                "origin": ir.Attribute.parse(f'#mpmd.user_origin<"{_PREFIX}{number}"({int(at >= stages)})>'),
                "mpmd.call_counter": ir.IntegerAttr.get(ir.IntegerType.get_unsigned(32), microbatch),
            },
            regions=1,
            ip=ir.InsertionPoint(op.operation),
        )
        block = wrapped.regions[0].blocks.append(*[v.type for v in taken])
        for old, new in zip(made, wrapped.results, strict=True):
            old.replace_all_uses_with(new)
        called = {"callee": op.operation.attributes["callee"]}
        inner = ir.Operation.create(
            "func.call", results=types, operands=list(block.arguments), attributes=called, ip=ir.InsertionPoint(block)
        )
        ir.Operation.create("mpmd.return", operands=list(inner.results), ip=ir.InsertionPoint(block))
        op.operation.erase()
