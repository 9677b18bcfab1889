"""Schedules: textbook orders and bubbles, recognition, tables as files, and results equal to plain JAX."""

import random
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pipelines import STYLES, Pipe, block, linear, pipe

import pathways as pw
from pathways.compiler.schedule import PROGRAM, SCHEDULES
from pathways.compiler.schedule.arrange import UNITS
from pathways.compiler.schedule.pipeline import Pipeline, Table
from pathways.compiler.schedule.recognize import recognize
from pathways.compiler.schedule.timeline import Cycle, Graph, bubble, play
from pathways.dialect.actions import Action, read_action
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.memory import timeline
from pathways.dialect.plan import Plan, Run
from pathways.dialect.program import Program


def model(slices: int, chunks: int, microbatches: int, *, split: bool = False) -> Pipeline:
    """A pipeline without a program; calls are numbered by microbatch, forward then backward."""
    stages = slices * chunks
    kinds = ["I", "W"] if split else ["B"]
    actions = [Action(s, "F", m) for m in range(microbatches) for s in range(stages)]
    actions += [Action(s, k, m) for m in range(microbatches) for s in reversed(range(stages)) for k in kinds]
    rows = tuple(s % slices for s in range(stages))
    return Pipeline(tuple(f"s{i}" for i in range(slices)), rows, microbatches, {a: (i,) for i, a in enumerate(actions)})


def graph_of(pipeline: Pipeline) -> Graph:
    waits: list[list[int]] = []
    for action in pipeline.calls:
        s, m = action.stage, action.microbatch
        back = "I" if pipeline.is_split else "B"
        needs = [Action(s - 1, "F", m)] if action.kind == "F" else [Action(s + 1, back, m), Action(s, "F", m)]
        needs = [Action(s, "I", m)] if action.kind == "W" else needs
        waits.append([pipeline.calls[a][0] for a in needs if a in pipeline.calls])
    return Graph(waits, [pipeline.rows[a.stage] for a in pipeline.calls], [UNITS[a.kind] for a in pipeline.calls])


def behind(pipeline: Pipeline, table: Table) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = [()] * len(pipeline.calls)
    for row in table:
        for before, action in pairwise(row):
            found[pipeline.calls[action][0]] = pipeline.calls[before]
    return found


def in_flight(row: tuple[Action, ...]) -> int:
    """The most microbatches that a row keeps activations of, chunks counted each."""
    now = most = 0
    for action in row:
        now += {"F": 1, "B": -1, "W": -1}.get(action.kind, 0)
        most = max(most, now)
    return most


@given(st.integers(1, 7), st.integers(1, 12))
def test_textbook(slices: int, microbatches: int) -> None:
    whole, split = model(slices, 1, microbatches), model(slices, 1, microbatches, split=True)
    textbook = (slices - 1) / (microbatches + slices - 1)
    found: dict[str, float] = {}
    for name, make in SCHEDULES.items():
        pipeline = split if name == "zero-bubble" else whole
        table = make(pipeline)
        assert sorted(a for row in table for a in row) == sorted(pipeline.calls)
        graph = graph_of(pipeline)
        found[name] = bubble(graph, play(graph, behind(pipeline, table))).fraction
        assert found[name] >= bubble(graph, play(graph)).bound - 1e-9
        if name != "gpipe":
            assert max(in_flight(row) for row in table) <= min(slices, microbatches)
    assert found["gpipe"] == pytest.approx(textbook) and found["1f1b"] == pytest.approx(textbook)
    assert found["interleaved"] == pytest.approx(textbook)  # with one chunk a slice
    assert found["zero-bubble"] <= textbook + 1e-9
    if microbatches >= 2 * slices > 2:
        least = 3 * microbatches + slices - 1  # Qi et al., 2024, table 2: (S - 1)(F + I - W)
        assert found["zero-bubble"] == pytest.approx(1 - 3 * microbatches / least)


@given(st.integers(2, 5), st.integers(2, 4), st.integers(1, 3))
def test_interleaving_divides_the_bubble(slices: int, chunks: int, rounds: int) -> None:
    pipeline = model(slices, chunks, rounds * slices)
    graph = graph_of(pipeline)
    table = SCHEDULES["interleaved"](pipeline)
    fraction = bubble(graph, play(graph, behind(pipeline, table))).fraction
    work = chunks * rounds * slices
    assert fraction == pytest.approx((slices - 1) / (work + slices - 1))
    with pytest.raises(PathwaysError) as caught:
        SCHEDULES["1f1b"](pipeline)
    assert caught.value.code == "PWC0404"


def test_1f1b_on_every_rank_is_the_textbook_order() -> None:
    rows = [" ".join(map(str, row)) for row in SCHEDULES["1f1b"](model(3, 1, 4))]
    assert rows == [
        "0F0 0F1 0F2 0B0 0F3 0B1 0B2 0B3",
        "1F0 1F1 1B0 1F2 1B1 1F3 1B2 1B3",
        "2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3",
    ]


def test_a_circle_is_found() -> None:
    pipeline = model(2, 1, 1)
    forward, backward = Action(1, "F", 0), Action(1, "B", 0)
    with pytest.raises(Cycle) as caught:
        play(graph_of(pipeline), behind(pipeline, ((Action(0, "F", 0), Action(0, "B", 0)), (backward, forward))))
    assert set(caught.value.nodes) == {pipeline.calls[forward][0], pipeline.calls[backward][0]}


# ---- from programs


def actions_of(lowered: Any) -> dict[str, int]:
    """How many placed calls each stage has, forward and backward, and how many have no action."""
    program = Program(lowered.module)
    found = recognize(program)
    counts: dict[str, int] = {}
    for node in program.flow.calls():
        if not node.op.gathered:
            action = None if found is None else found.actions.get(node.number)
            key = "none" if action is None else f"{action.stage}{action.kind}"
            counts[key] = counts.get(key, 0) + 1
    return counts


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("layers", [1, 2])
def test_pipelines_are_recognized_however_they_are_written(style: str, layers: int) -> None:
    count = 5
    found = actions_of(pipe(style, slices=3, microbatches=count, layers=layers).lowered())
    forward = {f"{s}F": count * layers for s in range(3)}
    again = 2 if style == "checkpointed" else 1  # forward once more is part of backward
    backward = {} if style == "forward only" else {f"{s}B": again * count * layers for s in range(3)}
    assert found == forward | backward


def test_a_stage_that_leaves_nothing_behind() -> None:
    """The gradient of a matrix product's weights needs the input alone, which the first stage does not make."""
    found = actions_of(pipe(slices=2, microbatches=3, stage=lambda w, x: x @ w).lowered())
    assert found == {"0F": 3, "1F": 3, "1B": 3, "0B": 3}


def test_microbatches_as_arguments_of_their_own() -> None:
    p = pipe("forward only", slices=2, microbatches=4)
    placed = p.step

    def step(params: Any, *batches: Any) -> Any:
        return [placed(params, b[None], b[None])[0] for b in batches]

    params, x, _ = p.arguments
    assert actions_of(pw.program(step).lower(params, *x)) == {"0F": 4, "1F": 4}


def test_a_program_without_a_loop_keeps_its_order_and_says_so() -> None:
    lowered = pipe("forward only", slices=3, microbatches=1).lowered()
    plans = [lowered.compile("islands=3,devices=1", schedule=s).plan for s in (PROGRAM, "1f1b")]
    assert "no loop over microbatches" in plans[1].schedule.note and not plans[0].schedule.note
    assert plans[0].streams == plans[1].streams


def rows_of(plan: Plan) -> list[str]:
    """The actions of each island in order, as its stream has them."""
    return [
        " ".join(i.action for i in s.instructions if isinstance(i, Run) and i.action and i.parts == ())
        for s in plan.streams
    ]


S, M = 4, 16


@pytest.fixture(scope="module")
def transformer() -> Pipe:
    return pipe(slices=S, microbatches=M, stage=block)


def compiled(p: Pipe, schedule: str, **options: Any) -> Plan:
    return p.lowered().compile(f"islands={S},devices=1", schedule=schedule, **options).plan


def test_bubbles_of_a_transformer(transformer: Pipe) -> None:
    textbook = (S - 1) / (M + S - 1)
    bubbles = {s: compiled(transformer, s).schedule for s in ("gpipe", "1f1b", "zero-bubble")}
    assert bubbles["gpipe"].bubble == pytest.approx(textbook) == bubbles["1f1b"].bubble
    assert bubbles["zero-bubble"].bubble < textbook
    chunked = compiled(pipe(slices=S, chunks=2, microbatches=M, stage=block), "interleaved").schedule
    assert (chunked.stages, chunked.slices) == (2 * S, S) and chunked.bubble < textbook
    for schedule in (*bubbles.values(), chunked):
        assert schedule.bound <= schedule.bubble and schedule.estimated_bound <= schedule.estimated_bubble


@pytest.mark.parametrize("merge", [True, False])
def test_activations_in_flight(transformer: Pipe, merge: bool) -> None:
    """1F1B keeps S microbatches on stage 0, GPipe all M: counted in the buffers of the plan."""
    most: dict[str, int] = {}
    for schedule in ("gpipe", "1f1b"):
        plan = compiled(transformer, schedule, merge=merge)
        island = plan.streams[0].island
        alive = (
            sum(o.startswith("activations of microbatch") for o in owners) for _, owners in timeline(plan, island, 0)
        )
        most[schedule] = max(alive)
    assert most == {"gpipe": M, "1f1b": S}


def unit_time(plan: Plan) -> float:
    """How long a plan takes if placed calls take their units and all else takes none: a simulation of its streams."""
    ends: dict[tuple[str, int], float] = {}
    sent: dict[int, float] = {}
    clock = {s.island: 0.0 for s in plan.streams}
    pending = {s.island: list(s.instructions) for s in plan.streams}
    finish = 0.0
    while any(pending.values()):
        before = sum(map(len, pending.values()))
        for island, rest in pending.items():
            while rest:
                i = rest[0]
                kind = type(i).__name__
                if kind == "Recv":
                    if i.channel not in sent:  # pyright: ignore
                        break
                    ends[island, i.slot] = sent[i.channel]  # pyright: ignore
                elif kind == "Send":
                    sent[i.channel] = ends.get((island, i.slot), 0.0)  # pyright: ignore
                elif isinstance(i, Run):
                    start = max([clock[island], *(ends.get((island, s), 0.0) for s in i.inputs)])
                    parts = i.parts or (f"{i.action or '-'} {i.name}",)
                    placed = [p for p in parts if p[0] != "-" and p.split()[1] in ("linear", "block")]
                    clock[island] = start + sum(UNITS[read_action(p.split()[0]).kind] for p in placed)
                    finish = max(finish, clock[island])
                    ends.update(((island, s), clock[island]) for s in i.outputs)
                rest.pop(0)
        assert sum(map(len, pending.values())) < before
    return finish


@pytest.mark.parametrize("merge", [True, False])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_equal_stages_share_their_computations(schedule: str, merge: bool) -> None:
    """Twice the stages need no more of them."""
    counts = {len(compiled_on(pipe(slices=n, microbatches=8), n, schedule, merge).computations) for n in (4, 8)}
    assert len(counts) == 1


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_merging_does_not_undo_the_schedule(schedule: str) -> None:
    """IFRT's merging makes 1F1B up to 33 % longer; ours by nothing."""
    p = pipe(slices=3, microbatches=6)
    apart, merged = (compiled_on(p, 3, schedule, merge) for merge in (False, True))
    assert unit_time(merged) == unit_time(apart)
    assert count_runs(merged) < count_runs(apart)
    bubble_ = 1 - sum_of_units(apart) / (3 * unit_time(apart))
    assert bubble_ == pytest.approx(apart.schedule.bubble)


def compiled_on(p: Pipe, slices: int, schedule: str, merge: bool) -> Plan:
    return p.lowered().compile(f"islands={slices},devices=1", schedule=schedule, merge=merge).plan


def count_runs(plan: Plan) -> int:
    return sum(isinstance(i, Run) for s in plan.streams for i in s.instructions)


def sum_of_units(plan: Plan) -> int:
    runs = (i for s in plan.streams for i in s.instructions if isinstance(i, Run))
    return sum(UNITS[read_action(r.action).kind] for r in runs if r.action and r.name == "linear")


# ---- tables


def random_table(pipeline: Pipeline, rng: random.Random) -> Table:
    """A legal table: actions of all slices played in a random order that respects what needs what."""
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


def drawn(seed: int) -> tuple[Pipe, Pipeline]:
    """A random pipeline, and what schedules see of it."""
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


@pytest.mark.parametrize("seed", range(24))
def test_random_programs_under_random_legal_tables(seed: int, tmp_path: Path) -> None:
    p, pipeline = drawn(seed)
    rng = random.Random(1000 + seed)
    table = write(tmp_path / "table.csv", random_table(pipeline, rng))
    lowered = p.lowered()
    expected = results(jax.jit(p.plain), p.arguments)
    for merge in (True, False):
        step = lowered.compile(schedule=table, merge=merge, remat=rng.choice(["no", "always"]))
        assert step.plan.schedule.microbatches == pipeline.microbatches
        for have, need in zip(results(step, p.arguments), expected, strict=True):
            np.testing.assert_allclose(have, need, rtol=1e-4, atol=1e-5)


def illegal(table: Table, rng: random.Random) -> Iterator[list[list[str]]]:
    """Tables with one thing wrong each."""
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
    for bad in illegal(table, rng):
        with pytest.raises(PathwaysError) as caught:
            lowered.compile(schedule=write(tmp_path / "bad.csv", bad))
        codes.append(caught.value.code)
    assert codes[-1] == "PWC0402" and set(codes[:-1]) == {"PWC0403"}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_what_is_written_reads_back(schedule: str, tmp_path: Path) -> None:
    """The table that a schedule writes gives the same plan, but for its name."""
    from pathways.compiler.driver import Compilation
    from pathways.compiler.passes.base import Session
    from pathways.compiler.pipeline import Options
    from pathways.dialect.mlir import parse, text

    lowered = pipe(slices=3, microbatches=6).lowered()
    path = str(tmp_path / "table.csv")
    streams: list[Any] = []
    for options in (Options(schedule=schedule, emit_schedule=path), Options(schedule=path)):
        program = Program(parse(text(lowered.module), lowered.module.context))
        compilation = Compilation(program, lowered.constants, Session())
        compilation.advance(options=options)
        streams.append(compilation.plan().streams)
    assert streams[0] == streams[1]
    first = Path(path).read_text().splitlines()[0]
    assert first.startswith("0F0,0F1,0F2,") and len(Path(path).read_text().splitlines()) == 3
