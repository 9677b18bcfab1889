"""Fuzzes plan files: opens, shows and runs mutants. Each must raise a coded error or give the interpreter's results.

To run ten thousand mutants by hand (mutant n has seed n):

    python tests/support/fuzz_plans.py --count 10000 --first 0

A worker process reads, validates, shows and runs one plan after another. A crash, a hang or an uncoded error is a
finding. The results of plans that run are compared with those of `plan_interpreter.py`.
"""

import argparse
import contextlib
import json
import os
import random
import resource
import select
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

ROOT = Path(__file__).parents[2]
PATIENCE = 120.0
"""Seconds without an answer after which a worker counts as hung."""
MEMORY = 12 << 30
"""Limit of a worker's memory, in bytes: a small file that needs more is a finding."""


def outcome_of(path: str) -> str:
    """Judges one plan file.

    Returns an error code, `same` (the run matches the interpreter), a reason not to run the plan, or a finding, which
    begins with `FOUND`.
    """
    from pathways.dialect.diagnostics import PathwaysError

    try:
        return _opened_and_run(path)
    except PathwaysError as error:
        return error.code
    except BaseException:
        return f"FOUND uncoded: {traceback.format_exc()}"


def _opened_and_run(path: str) -> str:
    from pathways.api.reference import compare
    from pathways.api.stages import Compiled
    from pathways.cli import inspect as shown
    from pathways.cli.diff import changed_lines
    from pathways.cli.inputs import random_inputs
    from pathways.cli.plan_lines import plan_lines
    from pathways.cli.why import render
    from pathways.dialect.plan.open_plan import open_plan
    from support.plan_interpreter import Endless, Interpreter, Stuck

    plan = open_plan(path)
    texts = [shown.describe_plan(plan), shown.actions(plan), *(shown.usage(plan, s) for s in plan.streams)]
    texts += [render(plan.decisions), *changed_lines(plan, plan), *plan_lines(plan)]
    if (bad := next((c for text in texts for c in text if not (c.isprintable() or c == "\n")), None)) is not None:
        return f"FOUND {bad!r} goes to the terminal"
    json.dumps(shown.json_of(plan), allow_nan=False)
    if max((len(m.devices) for m in plan.meshes), default=0) > 8:
        return "too large to be run here"
    compiled = Compiled(plan, path=path)
    arguments = random_inputs(plan)
    try:
        expected = Interpreter().run(plan, arguments)
    except Endless:
        return "endless"
    except Stuck as error:
        return f"FOUND the plan passed, but {error}"
    for name, result, value in zip((p.name for p in plan.results), compiled.run_flat(arguments), expected, strict=True):
        difference = compare(name, result.stored(), value)
        if not difference.close:
            return f"FOUND {difference}"
    compiled.unflatten(expected)
    return "same"


def work() -> None:
    """Runs the worker: reads one path per line from stdin, writes one outcome per line."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    import jax

    warnings.simplefilter("error")
    jax.config.update("jax_num_cpu_devices", 8)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        answers.write(json.dumps(outcome_of(line.rstrip("\n"))) + "\n")
        answers.flush()


@dataclass
class Worker:
    """A process that judges plans. It is replaced after each crash, and after `lives` plans."""

    folder: Path
    lives: int = 150
    _process: "subprocess.Popen[str] | None" = None
    _judged: int = 0

    def judge(self, raw: bytes, name: str) -> str:
        """Returns the outcome of one plan. Keeps the file if the outcome is a finding."""
        path = self.folder / f"{name}.bin"
        path.write_bytes(raw)
        process = self._running()
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(f"{path}\n")
            process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], PATIENCE)
        line = process.stdout.readline() if ready else ""
        if line:
            found: str = json.loads(line)
        else:
            if ready:  # the worker has closed its end of the pipe: it is exiting
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(10)
            code = self.end()
            found = f"FOUND death: {code}" if ready else "FOUND a hang"
        self._judged += 1
        if not found.startswith("FOUND"):
            path.unlink()
        return found

    def _running(self) -> "subprocess.Popen[str]":
        if self._process is not None and self._judged % self.lives == 0:
            self.end()
        if self._process is None:
            env = os.environ | {
                "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "PATHWAYS_HANG_TIMEOUT": "30", "JAX_PLATFORMS": "cpu",
            }  # fmt: skip
            command = [sys.executable, "-c", "from support import fuzz_plans; fuzz_plans.work()"]
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, env=env
            )
        return self._process

    def end(self) -> int | None:
        """Kills the process unless it has exited; returns its exit code."""
        process, self._process = self._process, None
        if process is None:
            return None
        if process.poll() is None:
            process.kill()
        with contextlib.suppress(BrokenPipeError):
            process.communicate()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        return process.returncode


def base_plans() -> list[Any]:
    """Compiles small plans of every kind: donation, several slices, resharding, constants, loops and branches."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import NamedSharding
    from jax.sharding import PartitionSpec as P

    import pathways as pw
    from support import branching

    jit: Any = jax.jit
    devices = pw.make_virtual_device_set()
    a, b, c = (
        devices.add_slice(devices=4).mesh("x"),
        devices.add_slice(devices=4).mesh(("p", "q"), (2, 2)),
        devices.add_slice(devices=1).mesh("z"),
    )
    held = np.arange(64, dtype=np.float32).reshape(8, 8)
    large = np.arange(1024, dtype=np.float32).reshape(32, 32)
    encode = jit(lambda w, x: jnp.tanh(x @ w), in_shardings=(NamedSharding(b, P(None, "q")), NamedSharding(b, P("p"))))
    loss = jit(lambda h, y: ((h.sum(-1) - y) ** 2).mean(), in_shardings=NamedSharding(c, P()))

    def step(w: Any, x: Any, y: Any) -> Any:
        value, grad = jax.value_and_grad(lambda w: loss(encode(w, x), y))(w)
        return w - 0.1 * grad, {"loss": value}

    fa = jit(lambda a, b: a @ b + held, in_shardings=(NamedSharding(a, P("x")), NamedSharding(a, P(None, "x"))))
    fb = jit(lambda a: jnp.sin(a) * 2, in_shardings=NamedSharding(b, P("p", "q")))
    fc = jit(lambda a, k: (a.sum(0) + k, a.T, (k * 2).astype(jnp.bfloat16)), in_shardings=NamedSharding(c, P()))

    def moving(a: Any, b: Any, k: Any) -> Any:
        u = fa(a, b)
        v = fb(u)
        s, t, q = fc(v, k)
        return u, v, s, fa(t, u), q, fb(jnp.asarray(large)[:8, :8])

    def scaled(scale: float) -> Any:
        split = NamedSharding(pw.make_virtual_device_set().add_slice(devices=2).mesh("x"), P("x"))
        return jit(lambda x: x * scale, in_shardings=split, out_shardings=split)

    double, half, more = scaled(2.0), scaled(0.5), scaled(1.5)
    w, x, y = np.ones((4, 8), np.float32) / 8, np.ones((8, 4), np.float32), np.ones(8, np.float32)
    square = np.arange(64, dtype=np.float32).reshape(8, 8) / 64
    one = np.arange(4, dtype=np.float32)
    return [
        pw.program(step, donate_argnums=0).lower(w, x, y).compile().plan,
        pw.program(step, donate_argnums=0).lower(w, x, y).compile("islands=1,devices=8").plan,
        pw.program(moving).lower(square, square, square[0]).compile().plan,
        pw.program(lambda v: (half(double(v)), more(double(half(v))))).lower(one).compile().plan,
        branching.looping().lower(branching.X, np.int32(3)).compile().plan,
    ]


def findings(folder: Path, first: int, count: int, plans: list[Any] | None = None) -> Iterator[tuple[int, str]]:
    """Yields (number, outcome) of mutants `first` to `first + count`; files of findings stay in the folder."""
    from support.plan_mutations import mutant

    plans = plans or base_plans()
    worker = Worker(folder)
    try:
        for number in range(first, first + count):
            raw = mutant(plans[number % len(plans)], random.Random(number))
            if raw is not None:
                yield number, worker.judge(raw, str(number))
    finally:
        worker.end()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="where plans with findings stay; default: a new one")
    chosen = parser.parse_args()
    folder: Path = chosen.folder or Path(tempfile.mkdtemp(prefix="fuzz-plans-"))
    folder.mkdir(exist_ok=True)
    seen: Counter[str] = Counter()
    for number, outcome in findings(folder, chosen.first, chosen.count):
        seen[outcome.split()[0]] += 1
        if outcome.startswith("FOUND"):
            print(f"{number} ({folder}/{number}.bin): {outcome}", flush=True)
    print(dict(seen.most_common()))
    sys.exit(1 if seen["FOUND"] else 0)


if __name__ == "__main__":
    main()
