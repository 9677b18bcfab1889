"""Predicted memory matches measured memory and is split by owner. Rematerialization makes plans fit."""

import importlib
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from support.pipelines import block, pipe

import pathways as pw
from pathways.api.process import analyzer, process
from pathways.compiler.driver import Compilation
from pathways.compiler.pass_manager import Options
from pathways.compiler.passes.base import Session
from pathways.compiler.schedule import PROGRAM, SCHEDULES
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.mlir import parse, text
from pathways.dialect.plan.instructions import Run
from pathways.dialect.plan.memory import peak, timeline
from pathways.dialect.plan.nouns import Plan
from pathways.dialect.plan.order import linearize
from pathways.dialect.topology import parse_topology
from pathways.runtime.client.arguments import Bound
from pathways.runtime.host.load.steps import Preparer
from pathways.runtime.host.run.frame import Frame

MODELS = ("flax_nnx", "equinox_mlp")


def analyzed(lowered: Any, topology: str, **options: Any) -> Plan:
    """Compiles a plan whose temporaries are those that XLA reports for its executables."""
    program = ProgramIR(parse(text(lowered.module), lowered.module.context))
    compilation = Compilation(program, lowered.constants, Session(parse_topology(topology), analyzer=analyzer()))
    compilation.advance(options=Options(**options))
    return compilation.plan()


class Meter:
    """Runs a plan instruction by instruction, waits after each, and measures live bytes on every device."""

    def __init__(self, plan: Plan, arguments: list[Any]) -> None:
        self.plan = plan
        self.loaded: Any = pw.Compiled(plan)._loaded  # pyright: ignore[reportPrivateUsage]
        order = linearize(plan)
        engine = self.loaded._engine
        prepared: Any = Preparer(plan, engine.sides, process().controller.executables)
        steps = [
            prepared._run(i, at, (), last=False) if isinstance(i, Run) else prepared._other(at, i, (), is_last=False)
            for at, i in order
        ]
        self.frame = Frame(prepared.size, engine.constants, base=0)
        self.values = self.frame.values
        self.loaded._binder.bind(Bound(), self.values, arguments, [None] * len(arguments))
        self.held = [
            self.values[self.loaded._offsets[p.island] + p.slot] for p in plan.inputs if p.slot >= 0 and not p.donated
        ]
        self.peaks: dict[str, int] = {s.island: 0 for s in plan.streams}
        self.after: list[tuple[str, int, dict[int, int]]] = []
        self.note({})
        for (at, instruction), step in zip(order, steps, strict=True):
            island = plan.streams[at].island
            if isinstance(instruction, Run):
                self.note({island: self.extra(instruction, island)})
            step.enqueue(self.frame)
            for array in self.values:
                if array is not None:
                    array.block_until_ready()
            self.note({})

    def live(self, island: str) -> dict[int, int]:
        """Returns live bytes on each device of an island, by device number."""
        devices: dict[Any, int] = {d: i for i, d in enumerate(self.loaded._islands[island].devices)}
        found: dict[int, int] = dict.fromkeys(devices.values(), 0)
        for array in {id(a): a for a in (*self.values, *self.held) if a is not None}.values():
            for shard in array.addressable_shards:
                if shard.device in devices:
                    found[devices[shard.device]] += int(shard.data.nbytes)
        return found

    def extra(self, run: Run, island: str) -> dict[int, int]:
        """Returns the bytes that XLA reports for a run besides its arguments, by device number."""
        mesh = self.plan.meshes[run.mesh]
        devices = self.loaded._sides.devices(run.mesh)
        module = self.plan.computations[run.computation].module
        stats: Any = self.loaded._controller.executables.load(module, devices).get_compiled_memory_stats()
        table = 8 * len(run.outputs) if len(run.outputs) > 1 else 0  # pointers, not data
        size = int(stats.output_size_in_bytes - table - stats.alias_size_in_bytes + stats.temp_size_in_bytes)
        return dict.fromkeys(mesh.devices, size)

    def note(self, extra: dict[str, dict[int, int]]) -> None:
        for island in self.peaks:
            more = extra.get(island, {})
            now = max(size + more.get(d, 0) for d, size in self.live(island).items())
            self.peaks[island] = max(self.peaks[island], now)


@pytest.mark.long("a model of another library is compiled: 1 to 60 s each", keep=("1f1b-equinox_mlp",))
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("schedule", [PROGRAM, "1f1b"])
def test_predicted_peaks_match_measured_peaks(name: str, schedule: str) -> None:
    model = importlib.import_module(f"support.models.{name}").built
    plan = analyzed(model.program.lower(*model.arguments), "islands=3,devices=2", schedule=schedule)
    assert plan.temporaries == "measured"
    meter = Meter(plan, jax.tree.leaves(model.arguments))
    for stream in plan.streams:
        assert meter.peaks[stream.island] == pytest.approx(stream.peak_bytes, rel=0.05)


def test_bytes_of_owners_add_up_to_the_peak() -> None:
    plan = pipe(slices=3, microbatches=6, stage=block).lowered().compile("islands=3,devices=1", schedule="gpipe").plan
    for stream in plan.streams:
        found = peak(plan, stream.island)
        assert found.bytes == stream.peak_bytes == sum(size for _, size in found.owners)
        at = [owners for step, owners in timeline(plan, stream.island, 0) if step == found.step]
        assert sum(at[0].values()) <= found.bytes
        names = {owner for owner, _ in found.owners}
        assert "params" in names and any(o.startswith("activations of microbatch") for o in names)


def results(step: Any, arguments: tuple[Any, ...]) -> list[Any]:
    return [np.asarray(v) for v in jax.tree.leaves(step(*arguments))]


@pytest.mark.long("more schedules of the same kind", keep=("1f1b",))
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_rematerialization_makes_a_plan_fit_into_memory(schedule: str) -> None:
    p = pipe(slices=2, microbatches=8, stage=block)
    lowered = p.lowered()
    sizes = [
        max(s.peak_bytes for s in lowered.compile("islands=2,devices=1", schedule=schedule, remat=r).plan.streams)
        for r in ("no", "always")
    ]
    assert sizes[1] < sizes[0]
    memory = f"islands=2,devices=1,memory={sizes[0] - 1}"
    with pytest.raises(PathwaysError) as caught:
        lowered.compile(memory, schedule=schedule)
    assert caught.value.code == "PWC0302" and "--remat auto (-" in str(caught.value)
    step = lowered.compile(memory, schedule=schedule, remat="auto")
    assert "computed again" in step.plan.schedule.note
    for have, need in zip(results(step, p.arguments), results(jax.jit(p.plain), p.arguments), strict=True):
        np.testing.assert_allclose(have, need, rtol=1e-5, atol=1e-6)


def test_the_advice_of_a_memory_error_makes_the_plan_fit() -> None:
    """Compiles with the schedule that the error recommends."""
    lowered = pipe(slices=2, microbatches=8, stage=block).lowered()
    free = lowered.compile("islands=2,devices=1", schedule="gpipe").plan
    worst = max(s.peak_bytes for s in free.streams)
    with pytest.raises(PathwaysError) as caught:
        lowered.compile(f"islands=2,devices=1,memory={worst - 1}", schedule="gpipe")
    message = str(caught.value)
    assert "activations of 8 microbatches" in message and "--schedule 1f1b (-" in message and ", fits)" in message
    lowered.compile(f"islands=2,devices=1,memory={worst - 1}", schedule="1f1b")


def test_compare_schedules_lists_every_schedule(root: Path) -> None:
    from support.processes import pwc_here

    source = str(root / "tests" / "golden" / "errors" / "out-of-memory.py")
    exit_code, stdout, stderr = pwc_here("compile", source, "--compare-schedules", "--schedule", "1f1b", "--analyze")
    assert exit_code == 0, stderr
    rows = {line.split()[0]: line for line in stdout.partition("compared")[2].splitlines()[1:] if line[:1] != " "}
    assert {PROGRAM, *SCHEDULES} <= rows.keys() and "11.1%" in rows["1f1b"] and "KiB on island" in rows["gpipe"]
    assert "temporaries of executables measured" in stdout and "schedule 1f1b" in stdout
