"""Tests schedules: textbook orders and bubbles, recognition of pipelines, and a transformer under each schedule."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.pipelines import STYLES, Pipe, block, graph_of, model, pipe

import pathways as pw
from pathways.compiler.schedule import PROGRAM, SCHEDULES
from pathways.compiler.schedule.arrange import UNITS
from pathways.compiler.schedule.recognize import recognize
from pathways.compiler.schedule.table import Pipeline, Table
from pathways.compiler.schedule.timeline import Cycle, bubble, play
from pathways.dialect.call_labels import Action, read_action
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.plan.instructions import Run
from pathways.dialect.plan.memory import timeline
from pathways.dialect.plan.nouns import Plan


def predecessors(pipeline: Pipeline, table: Table) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = [()] * len(pipeline.calls)
    for row in table:
        for before, action in pairwise(row):
            found[pipeline.calls[action][0]] = pipeline.calls[before]
    return found


def in_flight(row: tuple[Action, ...]) -> int:
    """Returns the most microbatches whose activations a row keeps; each chunk counts separately."""
    now = most = 0
    for action in row:
        now += {"F": 1, "B": -1, "W": -1}.get(action.kind, 0)
        most = max(most, now)
    return most


@given(st.integers(1, 7), st.integers(1, 12))
def test_schedules_have_the_bubbles_and_activations_of_textbooks(slices: int, microbatches: int) -> None:
    whole, split = model(slices, 1, microbatches), model(slices, 1, microbatches, split=True)
    textbook = (slices - 1) / (microbatches + slices - 1)
    found: dict[str, float] = {}
    for name, make in SCHEDULES.items():
        pipeline = split if name == "zero-bubble" else whole
        table = make(pipeline)
        assert sorted(a for row in table for a in row) == sorted(pipeline.calls)
        graph = graph_of(pipeline)
        found[name] = bubble(graph, play(graph, predecessors(pipeline, table))).fraction
        least = 3 * microbatches + slices - 1  # Qi et al., 2024, table 2: (S - 1)(F + I - W)
        bound = 1 - 3 * microbatches / least if name == "zero-bubble" else textbook
        assert bubble(graph, play(graph)).bound == pytest.approx(bound) and found[name] >= bound - 1e-9
        if name != "gpipe":
            assert max(in_flight(row) for row in table) <= min(slices, microbatches)
    assert found["gpipe"] == pytest.approx(textbook) and found["1f1b"] == pytest.approx(textbook)
    assert found["interleaved"] == pytest.approx(textbook)  # each slice has one chunk
    assert found["zero-bubble"] <= textbook + 1e-9
    if microbatches >= 2 * slices > 2:
        assert found["zero-bubble"] == pytest.approx(1 - 3 * microbatches / (3 * microbatches + slices - 1))


@given(st.integers(2, 5), st.integers(2, 4), st.integers(1, 3))
def test_interleaving_divides_the_bubble_by_the_chunks(slices: int, chunks: int, rounds: int) -> None:
    pipeline = model(slices, chunks, rounds * slices)
    graph = graph_of(pipeline)
    table = SCHEDULES["interleaved"](pipeline)
    fraction = bubble(graph, play(graph, predecessors(pipeline, table))).fraction
    work = chunks * rounds * slices
    assert fraction == pytest.approx((slices - 1) / (work + slices - 1))
    with pytest.raises(PathwaysError) as caught:
        SCHEDULES["1f1b"](pipeline)
    assert caught.value.code == "PWC0404"


def test_1f1b_has_the_textbook_order_on_every_rank() -> None:
    rows = [" ".join(map(str, row)) for row in SCHEDULES["1f1b"](model(3, 1, 4))]
    assert rows == [
        "0F0 0F1 0F2 0B0 0F3 0B1 0B2 0B3",
        "1F0 1F1 1B0 1F2 1B1 1F3 1B2 1B3",
        "2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3",
    ]


def test_a_cyclic_order_is_detected() -> None:
    pipeline = model(2, 1, 1)
    forward, backward = Action(1, "F", 0), Action(1, "B", 0)
    with pytest.raises(Cycle) as caught:
        play(graph_of(pipeline), predecessors(pipeline, ((Action(0, "F", 0), Action(0, "B", 0)), (backward, forward))))
    assert set(caught.value.nodes) == {pipeline.calls[forward][0], pipeline.calls[backward][0]}


# ---- from programs


def actions_of(lowered: Any) -> dict[str, int]:
    """Counts the placed calls of each stage, forward and backward, and those without an action."""
    program = ProgramIR(lowered.module)
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
def test_pipelines_are_recognized_in_every_style(style: str, layers: int) -> None:
    count = 5
    found = actions_of(pipe(style, slices=3, microbatches=count, layers=layers).lowered())
    forward = {f"{s}F": count * layers for s in range(3)}
    again = 2 if style == "checkpointed" else 1  # a recomputed forward is part of backward
    backward = {} if style == "forward only" else {f"{s}B": again * count * layers for s in range(3)}
    assert found == forward | backward


def test_a_first_stage_without_activations_is_recognized() -> None:
    """The gradient of a matrix product's weights needs only its input, which the first stage does not make."""
    found = actions_of(pipe(slices=2, microbatches=3, stage=lambda w, x: x @ w).lowered())
    assert found == {"0F": 3, "1F": 3, "1B": 3, "0B": 3}


def test_microbatches_passed_as_separate_arguments_are_recognized() -> None:
    p = pipe("forward only", slices=2, microbatches=4)
    placed = p.step

    def step(params: Any, *batches: Any) -> Any:
        return [placed(params, b[None], b[None])[0] for b in batches]

    params, x, _ = p.arguments
    assert actions_of(pw.program(step).lower(params, *x)) == {"0F": 4, "1F": 4}


def test_a_program_without_a_loop_keeps_its_order_with_a_warning() -> None:
    lowered = pipe("forward only", slices=3, microbatches=1).lowered()
    kept = lowered.compile("islands=3,devices=1", schedule=PROGRAM).plan
    with pytest.warns(UserWarning, match="schedule '1f1b' changes nothing in step"):
        plans = [kept, lowered.compile("islands=3,devices=1", schedule="1f1b").plan]
    assert "no loop over microbatches" in plans[1].schedule.note and not plans[0].schedule.note
    assert plans[0].streams == plans[1].streams


S, M = 4, 16


@pytest.fixture(scope="module")
def transformer() -> Pipe:
    return pipe(slices=S, microbatches=M, stage=block)


def compiled(p: Pipe, schedule: str, **options: Any) -> Plan:
    return p.lowered().compile(f"islands={S},devices=1", schedule=schedule, **options).plan


@pytest.mark.long("a model of another library is compiled: 1 to 60 s each")
def test_the_bubbles_of_a_transformer_equal_those_of_textbooks(transformer: Pipe) -> None:
    textbook = (S - 1) / (M + S - 1)
    bubbles = {s: compiled(transformer, s).schedule for s in ("gpipe", "1f1b", "zero-bubble")}
    assert bubbles["gpipe"].bubble == pytest.approx(textbook) == bubbles["1f1b"].bubble
    work = 3 * M * (S - 1) + 2 * M  # the first stage has no I, since no stage waits for it
    assert bubbles["zero-bubble"].bubble == pytest.approx(1 - work / (S * (3 * M + S - 1)))
    chunked = compiled(pipe(slices=S, chunks=2, microbatches=M, stage=block), "interleaved").schedule
    assert (chunked.stages, chunked.slices) == (2 * S, S)
    assert chunked.bubble == pytest.approx((S - 1) / (2 * M + S - 1))
    for schedule in (*bubbles.values(), chunked):
        assert schedule.bound == pytest.approx(schedule.bubble)  # no order is better


@pytest.mark.long("more schedules of the same kind", keep=("False",))
@pytest.mark.parametrize("merge", [True, False])
def test_1f1b_keeps_fewer_activations_than_gpipe(transformer: Pipe, merge: bool) -> None:
    """On stage 0, 1F1B keeps S microbatches and GPipe all M, counted in the buffers of the plan."""
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
    """Simulates a plan's streams: placed calls take their units, all else no time. Returns the duration."""
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


@pytest.mark.long("more schedules of the same kind", keep=("1f1b-True", "interleaved-False"))
@pytest.mark.parametrize("merge", [True, False])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_equal_stages_share_their_computations(schedule: str, merge: bool) -> None:
    """Twice the stages need no more computations."""
    counts = {len(compiled_on(pipe(slices=n, microbatches=8), n, schedule, merge).computations) for n in (4, 8)}
    assert len(counts) == 1


@pytest.mark.long(
    "more schedules: 1 to 2 s each",
    keep=(
        "1f1b",
        "interleaved",
    ),
)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_merging_calls_does_not_lengthen_the_schedule(schedule: str) -> None:
    """IFRT's merging makes 1F1B up to 33 % longer; ours must not make it longer."""
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
