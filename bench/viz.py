# pyright: basic
"""Measures the time of pictures: `pwc viz` of a pipeline of about 10,000 calls, and its page until it can be used.

    python bench/viz.py [--calls 10000] [--stages 4] [--microbatches 0]

The plan is compiled once, with its phases, by this user. Each figure is the best of three, next to the time that
`pwc inspect` takes to open the same plan. The browser is the Chromium of this machine; without one its rows are left
out, and the table says so.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
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
from pathways.dialect.phases import Phase
from pathways.dialect.plan.plan_file import save_plan

jit: Any = jax.jit
tree_map: Any = jax.tree.map
WIDTH = 8
ROOT = Path(__file__).parent.parent
VIEWS = ("dataflow", "schedule", "memory", "shardings", "devices")
READY = "document.documentElement.dataset.ready === 'yes'"
FRAME = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


def stage(weights: Any, x: Any) -> Any:
    return jnp.tanh(x @ weights)


def updated(weights: Any, gradient: Any) -> Any:
    return weights - 0.1 * gradient


def traced(stages: int, microbatches: int) -> Any:
    """Lowers a training step of a pipeline: a scan over microbatches, a slice a stage."""
    slices = pw.make_virtual_device_set()
    meshes = [slices.add_slice(devices=1).mesh("x") for _ in range(stages)]
    placed = [jit(stage, in_shardings=NamedSharding(mesh, P())) for mesh in meshes]

    def loss(params: Any, x: Any, y: Any) -> Any:
        for function, weights in zip(placed, params, strict=True):
            x = function(weights, x)
        return jnp.mean((x - y) ** 2)

    def step(params: Any, xs: Any, ys: Any) -> Any:
        def one(total: Any, xy: Any) -> Any:
            value, grads = jax.value_and_grad(loss)(params, *xy)
            return tree_map(jnp.add, total, grads), value

        total, losses = lax.scan(one, tree_map(jnp.zeros_like, params), (xs, ys))
        return tree_map(updated, params, total), losses

    batch = jax.ShapeDtypeStruct((microbatches, 4, WIDTH), jnp.float32)
    weights = [jax.ShapeDtypeStruct((WIDTH, WIDTH), jnp.float32)] * stages
    return pw.program(step).lower(weights, batch, batch)


def write_plan(path: Path, stages: int, microbatches: int) -> int:
    """Compiles a pipeline under 1f1b, and writes its plan with its phases; returns the number of its calls."""
    lowered = traced(stages, microbatches)
    program = lowered.copied_program()
    calls = sum(1 for _ in program.calls())
    compilation = Compilation(program, lowered.constants, Session(None))
    compilation.advance(Phase.PLAN, options=Options(schedule="1f1b"), keep_dumps=True)
    save_plan(compilation.plan(with_phases=True), path)
    return calls


def pwc(*arguments: str) -> float:
    """Returns the seconds that a command takes as a separate process: the best of three."""
    best = float("inf")
    for _ in range(3):
        begin = time.perf_counter()
        subprocess.run(
            [sys.executable, "-c", RUN, *arguments], check=True, capture_output=True, cwd=Path(__file__).parent.parent
        )
        best = min(best, time.perf_counter() - begin)
    return best


RUN = "from pathways.cli.main import main; main()"


def in_browser(chromium: str, path: Path) -> dict[str, float]:
    """Returns the seconds until the page can be used, and until each view is drawn: the best of three."""
    from playwright.sync_api import sync_playwright

    best: dict[str, float] = {}
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        view = browser.new_page(viewport={"width": 1280, "height": 800})
        for _ in range(3):
            begin = time.perf_counter()
            view.goto(path.as_uri())
            view.wait_for_function(READY)
            best["page"] = min(best.get("page", 1e9), time.perf_counter() - begin)
            for name in VIEWS:
                begin = time.perf_counter()
                view.click(f"#tab-{name}")
                view.evaluate(FRAME)
                best[name] = min(best.get(name, 1e9), time.perf_counter() - begin)
        browser.close()
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=10_000, help="about how many calls the program has")
    parser.add_argument("--stages", type=int, default=4)
    parser.add_argument("--microbatches", type=int, default=0, help="in place of --calls")
    chosen = parser.parse_args()
    microbatches = chosen.microbatches or max(1, chosen.calls // (4 * chosen.stages - 2))
    with tempfile.TemporaryDirectory() as folder:
        plan, page = Path(folder, "plan.bin"), Path(folder, "plan.html")
        calls = write_plan(plan, chosen.stages, microbatches)
        print(
            f"{calls:,} calls, {chosen.stages} stages, {microbatches} microbatches; plan {plan.stat().st_size:,} bytes"
        )
        print(f"  pwc inspect   {pwc('inspect', str(plan)):.2f} s (what opening the plan takes)")
        print(f"  pwc viz       {pwc('viz', str(plan), '-o', str(page)):.2f} s, page {page.stat().st_size:,} bytes")
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        if chromium is None:
            print("  no browser: neither chromium nor google-chrome is on the PATH")
            return
        for what, seconds in in_browser(chromium, page).items():
            print(f"  {what:13} {seconds:.2f} s")


if __name__ == "__main__":
    main()
