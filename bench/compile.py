# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false
"""Measures the time to compile: our own phases, separate from JAX's tracing and lowering. XLA does not run at all.

    python bench/compile.py
    python bench/compile.py --before FOLDER     # beside another checkout of this project

The first program is a training step of 16 stages, 96 transformer layers and 64 microbatches under 1F1B. Then come steps
from 4 stages, 8 layers and 8 microbatches to 64, 128 and 256: the time must grow no faster than their values. Each
measurement is the best of several, each in its own process. Compared programs run in rotation.

*Own phases* are the time from the Python function to the finished plan, without JAX's own time: `jax.make_jaxpr`, and
lowering each distinct computation to StableHLO. They include verification after every pass, and `rest`. `rest` is the
copy that a compilation works on, and the time outside all phases. JAX's trace is also measured by itself, since inside
of a compilation Python's search for cycles pauses, which makes it faster.

Shardy's time is that of `apply_mpmd_partitioning` of this jaxlib alone (`shardy_mpmd.py`), on the same step. It starts
from a module with named stages, and makes one of fragments on meshes, scheduled as 1F1B. JAX's tracing and lowering is
excluded there, too. It is measured once, since it takes minutes. `--no-shardy` leaves it out.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw

Measured = tuple[dict[str, float], int, int, int]
"""Seconds by phase, the number of calls and of values of the program before calls are merged, and the peak MiB."""
LARGE = (16, 96, 64)
GROWING = ((4, 8, 8), (8, 32, 32), LARGE, (32, 128, 128), (64, 128, 256))
"""Stages, layers and microbatches of steps of increasing size."""
ROOT = Path(__file__).parents[1]
jit: Any = jax.jit


def norm(gain: Any, x: Any) -> Any:
    return gain * x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6)


def block(params: Any, x: Any) -> Any:
    """Computes a transformer layer: attention, then a multilayer perceptron, each after a norm."""
    h = norm(params["norm1"], x)
    q, k, v = (h @ params[name] for name in ("q", "k", "v"))
    x = x + jax.nn.softmax(q @ k.T / 6.0) @ v @ params["o"]
    return x + jax.nn.gelu(norm(params["norm2"], x) @ params["up"]) @ params["down"]


def run_stage(params: Any, x: Any) -> Any:
    for own in params:
        x = block(own, x) if isinstance(own, dict) else jnp.tanh(x @ own)
    return x


def pipeline(stages: int, layers: int, microbatches: int, width: int = 32) -> tuple[pw.Program, tuple[Any, ...]]:
    """Returns a training step over one slice a stage, and the types of its arguments."""
    made = pw.make_virtual_device_set()
    meshes = [made.add_slice(devices=1).mesh("x") for _ in range(stages)]
    placed = [jit(run_stage, in_shardings=NamedSharding(m, P())) for m in meshes]

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
        square, wide = array(width, width), 4 * width
        projections = dict.fromkeys(("q", "k", "v", "o"), square)
        norms = dict.fromkeys(("norm1", "norm2"), array(width))
        return projections | norms | {"up": array(width, wide), "down": array(wide, width)}

    params = [[layer() for _ in range(max(layers // stages, 1))] for _ in range(stages)]
    return pw.program(step), (params, array(microbatches, 8, width))


def options(**chosen: str) -> Any:
    """Returns the compiler's options, which older checkouts define in another module."""
    places = ("pathways.compiler.pass_manager", "pathways.compiler.pipeline")
    return import_module(next(p for p in places if find_spec(p))).Options(**chosen)


def measure(stages: int, layers: int, microbatches: int) -> Measured:
    program, arguments = pipeline(stages, layers, microbatches)
    begin = time.perf_counter()
    lowered = program.lower(*arguments)
    compilation = lowered.compiled(None, options(schedule="1f1b"))
    planning = time.perf_counter()
    compilation.plan()
    end = time.perf_counter()
    seconds = lowered.timing | compilation.timing.passes | {"plan": end - planning}
    seconds["rest"] = end - begin - sum(seconds.values())
    return seconds, *size(lowered.module), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def size(module: Any) -> tuple[int, int]:
    """Returns the number of calls of a traced program, and of the values that they take and make."""
    (main,) = [o for o in module.body.operations if "pw.program" in o.operation.attributes]
    block = main.regions[0].blocks[0]
    nodes = [o.operation for o in block.operations if o.operation.name.startswith("pw.")]
    return len(nodes), len(block.arguments) + sum(len(n.results) for n in nodes)


def measure_shardy(stages: int, layers: int, microbatches: int) -> float | None:
    """Returns the seconds of Shardy's partitioner; None if jaxlib has none."""
    from shardy_mpmd import seconds

    _, (params, xs) = pipeline(stages, layers, microbatches)
    return seconds(run_stage, params, xs)


def measure_jax(stages: int, layers: int, microbatches: int) -> float:
    """Returns the seconds of JAX's trace by itself."""
    program, arguments = pipeline(stages, layers, microbatches)
    begin = time.perf_counter()
    jax.make_jaxpr(program.function)(*arguments)
    return time.perf_counter() - begin


def apart(folder: Path, what: str, *sizes: int) -> Any:
    """Measures in a separate process, with the `pathways` of a checkout."""
    command = [sys.executable, __file__, f"--{what}", *map(str, sizes)]
    environment = os.environ | {"PYTHONPATH": str(folder.resolve())}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def own(seconds: dict[str, float]) -> float:
    """Returns the seconds of all phases that are not JAX's."""
    return sum(s for name, s in seconds.items() if not name.startswith("jax "))


def show(what: str, seconds: dict[str, float], calls: int, values: int, peak: int) -> None:
    ours, jaxs = own(seconds), sum(seconds.values()) - own(seconds)
    print(f"{what}: {calls:,} calls, {values:,} values")
    print("  " + ", ".join(f"{name} {s:.2f}" for name, s in seconds.items()))
    each = f"{ours / calls * 1e6:.0f} us a call, {ours / values * 1e6:.1f} us a value"
    print(f"  own phases {ours:.2f} s, {each}; JAX {jaxs:.2f} s, ratio {ours / jaxs:.1f}; peak {peak} MiB", flush=True)


def compare(before: Path | None, repeat: int, shardy: bool) -> None:
    """Compares the large step: this checkout, Shardy's partitioner, and another checkout."""
    folders = [ROOT] if before is None else [before, ROOT]
    runs: dict[Path, list[Measured]] = {f: [] for f in folders}
    theirs: float | None = None
    traces: list[float] = []
    for turn in range(repeat):
        for folder in folders:
            runs[folder].append(apart(folder, "measure", *LARGE))
        traces.append(apart(ROOT, "measure-jax", *LARGE))
        if shardy and not turn:
            theirs = apart(ROOT, "measure-shardy", *LARGE)
    best = {f: min(found, key=lambda run: own(run[0])) for f, found in runs.items()}
    name = "{} stages, {} layers, {} microbatches, 1f1b".format(*LARGE)
    for folder in folders:
        show(name if folder == ROOT else f"{name}, in {folder}", *best[folder])
    ours = own(best[ROOT][0])
    alone = min(traces) + best[ROOT][0]["jax lower"]
    print(f"  JAX by itself {alone:.2f} s: ratio of our own phases {ours / alone:.1f}")
    if before is not None:
        print(f"  ratio of its own phases to ours: {own(best[before][0]) / ours:.2f}")
    if theirs is not None:
        print(f"  Shardy's partitioner {theirs:.1f} s: ratio to our own phases {theirs / ours:.1f}", flush=True)


def grow(sizes: int, repeat: int) -> None:
    """Measures the smallest of GROWING."""
    found: list[tuple[int, float]] = []
    for stages, layers, microbatches in GROWING[:sizes]:
        runs: list[Measured] = [apart(ROOT, "measure", stages, layers, microbatches) for _ in range(repeat)]
        best = min(runs, key=lambda run: own(run[0]))
        show(f"{stages} stages, {layers} layers, {microbatches} microbatches", *best)
        found.append((best[2], own(best[0])))
    for (few, less), (many, more) in pairwise(found):
        print(f"{many / few:.1f} x the values take {more / less:.1f} x the time")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--sizes", type=int, default=len(GROWING), help="how many sizes; 0: the large step alone")
    parser.add_argument("--before", type=Path, help="another checkout, to compare with")
    parser.add_argument("--no-shardy", action="store_true", help="leave Shardy's partitioner out")
    for what in ("--measure", "--measure-jax", "--measure-shardy"):
        parser.add_argument(what, type=int, nargs=3, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.measure:
        measure(2, 2, 2)  # warm-up: the first compilation in a process does more
        print(json.dumps(measure(*chosen.measure)))
    elif chosen.measure_jax:
        measure(2, 2, 2)
        print(json.dumps(measure_jax(*chosen.measure_jax)))
    elif chosen.measure_shardy:
        print(json.dumps(measure_shardy(*chosen.measure_shardy)))
    else:
        compare(chosen.before, chosen.repeat, not chosen.no_shardy)
        grow(chosen.sizes, chosen.repeat)


if __name__ == "__main__":
    main()
