"""Tests schedules as files: random legal tables equal plain JAX, illegal ones are refused, written ones read back."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from support.pipelines import STYLES, Pipe, block, graph_of, linear, model, pipe

from pathways.compiler.driver import Compilation
from pathways.compiler.pass_manager import Options
from pathways.compiler.passes.base import Session
from pathways.compiler.schedule import SCHEDULES
from pathways.compiler.schedule.table import Pipeline, Table
from pathways.dialect.call_labels import Action
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.mlir import parse, text


def random_table(pipeline: Pipeline, rng: random.Random) -> Table:
    """Returns a legal table: the actions of all slices in a random order that respects dependencies."""
    graph = graph_of(pipeline)
    names = list(pipeline.calls)
    waiting = [len(w) for w in graph.waits]
    users: list[list[int]] = [[] for _ in names]
    for i, waits in enumerate(graph.waits):
        for j in waits:
            users[j].append(i)
    ready = [i for i, n in enumerate(waiting) if not n]
    rows: list[list[Action]] = [[] for _ in pipeline.slices]
    while ready:
        i = ready.pop(rng.randrange(len(ready)))
        rows[graph.slices[i]].append(names[i])
        for j in users[i]:
            waiting[j] -= 1
            if not waiting[j]:
                ready.append(j)
    return tuple(map(tuple, rows))


def write(path: Path, table: Any) -> str:
    path.write_text("\n".join(",".join(str(a) for a in row) for row in table))
    return str(path)


def results(step: Any, arguments: tuple[Any, ...]) -> list[Any]:
    return [np.asarray(v) for v in jax.tree.leaves(step(*arguments))]


def draw_pipeline(seed: int) -> tuple[Pipe, Pipeline]:
    """Returns a random pipeline and the model of it that schedules use."""
    rng = random.Random(seed)
    slices, chunks, microbatches = rng.randint(1, 3), rng.randint(1, 2), rng.randint(2, 4)
    if slices == 1:
        chunks = 1
    style = rng.choice([s for s in STYLES if s not in ("forward only", "checkpointed")])
    devices, layers = rng.choice([1, 2]), rng.choice([1, 1, 2])
    p = pipe(
        style, slices=slices, chunks=chunks, microbatches=microbatches, devices=devices, layers=layers, seed=seed,
        stage=rng.choice([block, linear]),
    )  # fmt: skip
    return p, model(slices, chunks, microbatches, split=rng.random() < 0.4)


@pytest.mark.long("more random examples of the same kind", keep=("0", "1", "2"))
@pytest.mark.parametrize("seed", range(8))
def test_random_programs_under_random_legal_tables_equal_plain_jax(seed: int, tmp_path: Path) -> None:
    p, pipeline = draw_pipeline(seed)
    rng = random.Random(1000 + seed)
    table = write(tmp_path / "table.csv", random_table(pipeline, rng))
    lowered = p.lowered()
    expected = results(jax.jit(p.plain), p.arguments)
    for merge in (True, False):
        step = lowered.compile(schedule=table, merge=merge, remat=rng.choice(["no", "always"]))
        assert step.plan.schedule.microbatches == pipeline.microbatches
        for have, need in zip(results(step, p.arguments), expected, strict=True):
            np.testing.assert_allclose(have, need, rtol=1e-4, atol=1e-5)


def illegal_tables(table: Table, rng: random.Random) -> Iterator[list[list[str]]]:
    """Yields tables with one error each."""
    rows = [[str(a) for a in row] for row in table]

    def copy() -> list[list[str]]:
        return [list(row) for row in rows]

    at = rng.randrange(len(rows))
    cell = rng.randrange(len(rows[at]))
    missing = copy()
    missing[at].pop(cell)
    yield missing
    twice = copy()
    twice[at].insert(rng.randrange(len(rows[at])), rows[at][cell])
    yield twice
    moved = copy()
    moved[at - 1].append(moved[at].pop(cell))
    if len(rows) > 1:
        yield moved
    unknown = copy()
    unknown[at][cell] = rng.choice(["9F0", "0F99", "0X0", "F", "hello", "0F-1", "1.5", "0F"])
    yield unknown
    more = copy()
    more.append(["0F0"])
    yield more
    turned = copy()
    turned[at].reverse()  # backward before its own forward
    yield turned


@pytest.mark.parametrize("seed", range(6))
def test_random_illegal_tables_are_refused(seed: int, tmp_path: Path) -> None:
    p = pipe(slices=2 + seed % 2, microbatches=3)
    lowered, rng = p.lowered(), random.Random(seed)
    table = random_table(model(2 + seed % 2, 1, 3), rng)
    codes: list[str] = []
    for bad in illegal_tables(table, rng):
        with pytest.raises(PathwaysError) as caught:
            lowered.compile(schedule=write(tmp_path / "bad.csv", bad))
        codes.append(caught.value.code)
    assert codes[-1] == "PWC0402" and set(codes[:-1]) == {"PWC0403"}


def test_a_refused_table_names_each_fault(tmp_path: Path) -> None:
    lowered = pipe(slices=2, microbatches=3).lowered()
    rows = [[str(a) for a in row] for row in random_table(model(2, 1, 3), random.Random(0))]
    with pytest.raises(PathwaysError, match=r"have: +1 rows\n +need: +one row per slice"):
        lowered.compile(schedule=write(tmp_path / "shorter.csv", rows[:1]))
    for unknown in ("9F0", "0F99"):
        with pytest.raises(PathwaysError) as caught:
            lowered.compile(schedule=write(tmp_path / "unknown.csv", [[*rows[0], unknown], rows[1]]))
        (fault,) = caught.value.diagnostics
        assert fault.text(fault.have) == unknown


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_table_that_a_schedule_writes_gives_the_same_streams(schedule: str, tmp_path: Path) -> None:
    """Only the name of the schedule differs."""
    lowered = pipe(slices=3, microbatches=6).lowered()
    path = str(tmp_path / "table.csv")
    streams: list[Any] = []
    for options in (Options(schedule=schedule, emit_schedule=path), Options(schedule=path)):
        program = ProgramIR(parse(text(lowered.module), lowered.module.context))
        compilation = Compilation(program, lowered.constants, Session())
        compilation.advance(options=options)
        streams.append(compilation.plan().streams)
    assert streams[0] == streams[1]
    first = Path(path).read_text().splitlines()[0]
    assert first.startswith("0F0,0F1,0F2,") and len(Path(path).read_text().splitlines()) == 3
