# pyright: basic
"""Runs everything that needs a GPU, on all GPUs of this host: samples, random programs and benches, as one table.

    python bench/gpu.py                 # also: make gpu
    python bench/gpu.py --split 4       # four clients of each GPU stand for as many GPUs: islands of one device each
    python bench/gpu.py --pretend 8     # CPU devices stand for GPUs: shows that this script works, and nothing of GPUs

Every task runs twice if it can: with slices as large as fit on one island of all devices, and with slices of one device
on islands of one device each. Each row is a separate process. Results are compared with plain JAX, with matrices
multiplied in full precision. Without a GPU there is nothing to run, which is no failure.
"""

import argparse
import contextlib
import importlib.util
import io
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

ROOT = Path(__file__).parent.parent
ROW_TIMEOUT_S = 600
"""Limit of one row; a row that takes longer counts as hung."""
MAX_SLICE_DEVICES = 4
"""Maximum devices of a slice in the tasks."""
FIND = "import jax; d = jax.devices(); print(jax.default_backend(), len(d), d[0].device_kind, jax.__version__, sep='|')"


@dataclass(frozen=True)
class Task:
    """A task, with the devices of its slices as they are written. Without `cut` it cannot run with fewer."""

    name: str
    slices: tuple[int, ...]
    cut: bool = True
    equality: bool = True
    """Whether the task compares with plain JAX; otherwise it measures."""


TASKS = {
    t.name: t
    for t in (
        Task("figure2", (2, 2, 2), cut=False),
        Task("train_lm", (4, 4)),
        Task("mixture_of_experts", (2, 2, 2)),
        Task("random_programs", (2, 4, 1)),
        Task("chain", (1,), equality=False),
        Task("pipeline", (1,), equality=False),
    )
}


@dataclass(frozen=True)
class Row:
    task: Task
    size: int
    """Maximum devices of a slice."""
    islands: int
    """Number of islands of one device each; 0: one island of all devices."""
    missing: str = ""
    """The reason for which it cannot run here."""

    @property
    def how(self) -> str:
        return f"islands of one device: {self.islands}" if self.islands else f"one island, slices of up to {self.size}"


def rows(count: int, *, together: bool = True) -> Iterator[Row]:
    """Yields a row for each task and layout: islands of one device and, with `together`, one island of all.

    If `count` devices are too few, the row says so.
    """
    for task in TASKS.values():
        sizes = [MAX_SLICE_DEVICES, MAX_SLICE_DEVICES // 2, 1] if task.cut else [MAX_SLICE_DEVICES]
        size = next((s for s in sizes if sum(min(s, n) for n in task.slices) <= count), 0)
        needs = f"needs {len(task.slices) if task.cut else sum(task.slices)} devices"
        if task.name == "chain":  # its slice is the whole island
            size = count
        if together and task.name != "pipeline":  # its stages are devices
            yield Row(task, size or sizes[-1], 0, "" if size else needs)
        if task.cut:
            yield Row(task, 1, count, "" if len(task.slices) <= count else needs)


def run(row: Row, environment: dict[str, str], *options: str) -> tuple[str, str, float]:
    """Runs a row; returns its result, all that it printed, and its seconds."""
    if row.missing:
        return f"not run: {row.missing}", "", 0.0
    which = ["--task", row.task.name, "--size", str(row.size), "--islands", str(row.islands)]
    if row.task.equality:
        environment = environment | {"JAX_DEFAULT_MATMUL_PRECISION": "highest"}
    begin = time.perf_counter()
    try:
        command = [sys.executable, __file__, *which, *options]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=ROW_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"FAILED: not done in {ROW_TIMEOUT_S} s", "", float(ROW_TIMEOUT_S)
    seconds = time.perf_counter() - begin
    if done.returncode:
        return f"FAILED: exit code {done.returncode}", done.stdout[-2000:] + done.stderr[-4000:], seconds
    return done.stdout.splitlines()[-1], "" if row.task.equality else done.stdout, seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pretend", type=int, default=0, metavar="N", help="N CPU devices stand for GPUs")
    parser.add_argument("--split", type=int, default=0, metavar="N", help="N clients of each GPU, as if it were N GPUs")
    parser.add_argument("--programs", type=int, default=12, help="how many random programs")
    parser.add_argument("--only", choices=TASKS, help="one of the tasks")
    parser.add_argument("--task", choices=TASKS, help=argparse.SUPPRESS)
    parser.add_argument("--size", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--islands", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.task:
        print(do(given))
        return 0
    # Always set, so that the tests do not choose CPU themselves. Empty: JAX chooses.
    platforms = "cpu" if given.pretend else os.environ.get("JAX_PLATFORMS", "")
    environment = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": platforms}
    if given.pretend:
        flag = f"--xla_force_host_platform_device_count={given.pretend}"
        environment["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flag}"
    if given.split:  # otherwise each client would take most of the GPU's memory
        environment["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    found = subprocess.run([sys.executable, "-c", FIND], env=environment, capture_output=True, text=True, check=False)
    if found.returncode:
        print(found.stderr, file=sys.stderr)
        return 1
    platform, count, kind, version = found.stdout.splitlines()[-1].split("|")
    if platform == "cpu" and not given.pretend:
        print(f"no GPU here (jax {version} finds {kind} devices): nothing to run")
        return 0
    title = f"{count} x {kind} ({platform}), jax {version}"
    if given.split:
        return table(f"{title}, split in {given.split}", int(count) * given.split, environment, given)
    return table(title, int(count), environment, given)


def table(title: str, count: int, environment: dict[str, str], given: argparse.Namespace) -> int:
    """Runs all rows and prints each, then the output of benches and failures. Returns 1 if a row failed."""
    print(f"{title}\n\n| what | how | result | seconds |\n|---|---|---|---|", flush=True)
    options = ["--pretend", str(given.pretend), "--split", str(given.split), "--programs", str(given.programs)]
    texts, failed = [], False
    for row in rows(count, together=not given.split):
        if given.only not in (None, row.task.name):
            continue
        result, text, seconds = run(row, environment, *options)
        failed |= result.startswith("FAILED")
        print(f"| {row.task.name} | {row.how} | {result} | {seconds:.0f} |", flush=True)
        texts += [f"\n{row.task.name}, {row.how}:\n{text}"] if text else []
    print(*texts, sep="", end="")
    return int(failed)


def do(given: argparse.Namespace) -> str:
    """Runs one row in this process; returns the text of its result."""
    import jax

    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    if given.pretend:
        stand_in()
    if given.split:
        split_devices(given.split)
    cut_slices(given.size, given.islands)
    match given.task:
        case "figure2":
            with contextlib.redirect_stdout(io.StringIO()):
                sample = load(ROOT / "samples" / "figure2.py")
            y, z = sample.f(sample.v)
            assert (list(y), list(z)) == ([3.0, 5.0], [2.0, 4.0]), (y, z)
            return f"{y} {z}, as the paper says"
        case "train_lm" | "mixture_of_experts":
            losses = load(ROOT / "samples" / f"{given.task}.py").train(5)
            worst = max(abs(ours - plain) / abs(plain) for ours, plain in losses)
            assert worst < 1e-4, losses
            return f"{len(losses)} steps, losses differ from plain JAX by {worst:.1e} at most"
        case "random_programs":
            import pytest

            count = str(given.programs)
            code = pytest.main(
                ["-q", str(ROOT / "tests" / "test_random_programs.py"), "--programs", count, "--may-leave"]
            )
            assert code == 0, code
            return f"{count} programs equal plain JAX"
        case "chain":
            bench = load(ROOT / "bench" / "chain.py")
            bench.DEVICES = given.size
        case _:
            bench = load(ROOT / "bench" / "pipeline.py")
            bench.STAGES = min(bench.STAGES, given.islands)
    sys.argv[1:] = []
    bench.main()
    return f"ran on {jax.default_backend()}; ratios below"


def load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def stand_in() -> None:
    """Makes CPU devices look like GPUs: there are no others, and they are not started separately."""
    from pathways.dialect.platforms import PLATFORMS

    PLATFORMS["cpu"] = replace(PLATFORMS["cpu"], made_at_will=None, apart=0)


def split_devices(parts: int) -> None:
    """Presents each device of the host as several: one for each of several clients of JAX's backend.

    The clients are independent of each other and share the computing of one device. No computation spans several of
    them.
    """
    import jax
    from jax._src import xla_bridge

    from pathways.runtime.host.devices import pjrt

    bridge = cast("Any", xla_bridge)
    platform = jax.devices()[0].client.platform
    factory = next(
        bridge._backend_factories[n].factory
        for n in _ALIASES.get(platform, (platform,))
        if n in bridge._backend_factories
    )
    clients = [jax.devices()[0].client, *(factory() for _ in range(parts - 1))]
    pjrt.host_devices = lambda: [d for of in zip(*(c.devices() for c in clients), strict=True) for d in of]


_ALIASES = {"gpu": ("cuda", "rocm")}
"""The names of JAX's backends that differ from the platform that they state."""


def cut_slices(most: int, islands: int) -> None:
    """Limits slices and meshes to `most` devices. With `islands` the host seems to have one-device islands."""
    import pathways.api.process as ours
    from pathways import Island, Topology, VirtualDeviceSet, VirtualSlice

    sets, slices, processes = cast("Any", (VirtualDeviceSet, VirtualSlice, ours))
    add, mesh = sets.add_slice, slices.mesh

    def add_cut(self, devices=None, **asked):
        asked |= {} if devices is None else {"devices": devices}
        return add(self, **{name: min(most, n) if name.endswith("devices") else n for name, n in asked.items()})

    def mesh_cut(self, names, shape=None, **types):
        axes = 1 if isinstance(names, str) else len(names)
        left, sizes = len(self.devices), []
        for wanted in (shape or (left,)) if not isinstance(shape, int) else (shape,):
            sizes.append(min(wanted, left))
            left //= sizes[-1]
        return mesh(self, names, tuple(sizes) if axes == len(sizes) else None, **types)

    sets.add_slice, slices.mesh = add_cut, mesh_cut
    if islands:
        host = Topology(tuple(Island(f"island{n}", devices=1) for n in range(islands)))
        processes.host_topology = lambda: host


if __name__ == "__main__":
    sys.exit(main())
