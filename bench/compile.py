# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false
"""How long compiling takes: our own phases apart from JAX's tracing and lowering. XLA is not run at all.

    python bench/compile.py

First a training step of 16 stages, 96 transformer layers and 64 microbatches under 1F1B, the best of three; then
pipelines of about 100, 1,000 and 10,000 calls, whose time must grow no faster than they do. For comparison, the same
step took Shardy's MPMD partitioner 66 s and JaxPP 22 s (jaxlib 0.12, 2 cores); those systems are not run here.
"""

import argparse
import sys
import time
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw
from pathways.compiler.driver import Compilation
from pathways.compiler.pass_manager import Options
from pathways.compiler.passes.base import Session
from pathways.dialect.ir.program import Program
from pathways.dialect.mlir import bytecode, parse

SHARDY, JAXPP = 66.0, 21.7
"""Seconds that others took for 16 stages, 96 layers and 64 microbatches, tracing and XLA apart."""
jit: Any = jax.jit


def block(params: Any, x: Any) -> Any:
    """A transformer layer without what costs no operations: attention, then a multilayer perceptron."""
    h = jnp.tanh(x @ params["a"])
    x = x + jax.nn.softmax(h @ h.T / 6.0) @ h @ params["b"]
    return x + jax.nn.gelu(x @ params["c"]) @ params["d"]


def pipeline(stages: int, layers: int, microbatches: int, width: int = 32) -> tuple[pw.Program, tuple[Any, ...]]:
    """A training step over one slice a stage, and the types of its arguments."""
    made = pw.make_virtual_device_set()

    def stage(params: Any, x: Any) -> Any:
        for own in params:
            x = block(own, x) if isinstance(own, dict) else jnp.tanh(x @ own)
        return x

    meshes = [made.add_slice(devices=1).mesh("x") for _ in range(stages)]
    placed = [jit(stage, in_shardings=NamedSharding(m, P())) for m in meshes]

    def loss(params: Any, x: Any) -> Any:
        for one, own in zip(placed, params, strict=True):
            x = one(own, x)
        return (x**2).mean()

    def step(params: Any, xs: Any) -> Any:
        def body(total: Any, x: Any) -> Any:
            value, grads = jax.value_and_grad(loss)(params, x)
            return jax.tree.map(jnp.add, total, grads), value

        grads, values = lax.scan(body, jax.tree.map(jnp.zeros_like, params), xs)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), values.mean()

    def array(*shape: int) -> Any:
        return jax.ShapeDtypeStruct(shape, jnp.float32)

    def layer() -> Any:
        if not layers:
            return array(width, width)
        wide = 4 * width
        return {"a": array(width, width), "b": array(width, width), "c": array(width, wide), "d": array(wide, width)}

    params = [[layer() for _ in range(max(layers // stages, 1))] for _ in range(stages)]
    return pw.program(step), (params, array(microbatches, 8, width))


def measure(stages: int, layers: int, microbatches: int) -> tuple[dict[str, float], int, int]:
    """Seconds by phase, and how many calls and values the program has before calls are merged."""
    program, arguments = pipeline(stages, layers, microbatches)
    lowered = program.lower(*arguments)
    module = parse(bytecode(lowered.module.operation), lowered.module.context)
    compilation = Compilation(Program(module), lowered.constants, Session())
    flow = compilation.program.flow
    calls, values = len(flow.nodes), len(flow.values)
    compilation.program.changed()
    compilation.advance(options=Options(schedule="1f1b"))
    start = time.perf_counter()
    compilation.plan()
    seconds = lowered.timing | compilation.timing.passes | {"plan": time.perf_counter() - start}
    return seconds, calls, values


def own(seconds: dict[str, float]) -> float:
    """All but JAX's part."""
    return sum(s for name, s in seconds.items() if not name.startswith("jax "))


def show(what: str, seconds: dict[str, float], calls: int, values: int) -> None:
    ours, jaxs = own(seconds), sum(seconds.values()) - own(seconds)
    print(f"{what}: {calls:,} calls, {values:,} values")
    print("  " + ", ".join(f"{name} {s:.2f}" for name, s in seconds.items()))
    print(f"  own phases {ours:.2f} s, {ours / calls * 1e3:.2f} ms a call; JAX {jaxs:.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--largest", type=int, default=10_000, help="calls of the largest pipeline")
    options = parser.parse_args()
    measure(2, 2, 2)  # what only the first compilation in a process does
    best = min((measure(16, 96, 64) for _ in range(options.repeat)), key=lambda found: own(found[0]))
    show("16 stages, 96 layers, 64 microbatches, 1f1b", *best)
    ours = own(best[0])
    print(f"  ratio to Shardy MPMD's {SHARDY:.0f} s: {ours / SHARDY:.3f}; to JaxPP's {JAXPP:.0f} s: {ours / JAXPP:.3f}")
    found: list[tuple[int, float]] = []
    for wanted in (100, 1000, 10_000):
        if wanted <= options.largest:
            runs = [measure(4, 0, wanted // 15) for _ in range(options.repeat)]
            best = min(runs, key=lambda run: own(run[0]))
            show(f"about {wanted:,} calls", *best)
            found.append((best[1], own(best[0])))
    for (few, less), (many, more) in pairwise(found):
        print(f"{many / few:.1f} x the calls take {more / less:.1f} x the time")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
