"""Tests the order that a schedule gives a program, its units of time, and its errors."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from support.pipelines import pipe

import pathways as pw
from pathways.compiler.driver import Compilation
from pathways.compiler.passes.base import Session
from pathways.compiler.schedule.arrange import Arranged, arrange, as_written, columns, order_by_waits, splits_backward
from pathways.compiler.schedule.attribute import read_schedule, write_schedule
from pathways.compiler.schedule.describe import describe_schedule
from pathways.compiler.schedule.recognize import recognize
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.phases import Phase
from pathways.dialect.schedule_figures import Schedule
from pathways.dialect.topology import Island, Topology

jit: Any = jax.jit
PAIR = Topology((Island("a", 1, flops=1e12), Island("b", 1, flops=1e12)))


def at_transfers(lowered: Any, topology: Topology = PAIR) -> ProgramIR:
    """Compiles a program until its transfers are known."""
    compilation = Compilation(ProgramIR(lowered.module), lowered.constants, Session(topology))
    compilation.advance(Phase.TRANSFER)
    return compilation.program


@pytest.fixture(scope="module")
def pair() -> ProgramIR:
    return at_transfers(pipe(slices=2, microbatches=3).lowered())


@pytest.fixture(scope="module")
def checkpointed() -> ProgramIR:
    return at_transfers(pipe("checkpointed", slices=2, microbatches=2, layers=2).lowered())


def texts(arranged: Arranged) -> list[str]:
    return [" ".join(map(str, row)) for row in arranged.table]


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "program"])
def test_an_order_keeps_the_rows_of_its_table_and_all_dependencies(schedule: str, pair: ProgramIR) -> None:
    found = arrange(pair, schedule)
    place = {node: at for at, node in enumerate(found.order)}
    assert sorted(found.order) == list(range(len(pair.flow.nodes))) and found.pipeline is not None and not found.note
    for node in pair.flow.nodes:
        makers = {pair.flow.makers[v] for v in node.operands} - {-1}
        assert set(found.graph.waits[node.number]) == makers and all(place[m] < place[node.number] for m in makers)
    for row in found.table:
        calls = [place[call] for action in row for call in found.pipeline.calls[action]]
        assert calls == sorted(calls)


def test_calls_of_an_order_stand_by_the_time_at_which_they_start(pair: ProgramIR) -> None:
    """What slice 1 waits for comes before what slice 0 does later."""
    found = arrange(pair, "1f1b")
    assert texts(found) == ["0F0 0F1 0B0 0F2 0B1 0B2", "1F0 1B0 1F1 1B1 1F2 1B2"] and found.pipeline is not None
    starts = found.timeline.starts
    calls = {call: action for action, numbers in found.pipeline.calls.items() for call in numbers}
    ordered = [node for node in found.order if node in calls]
    assert all(starts[a] <= starts[b] for a, b in pairwise(ordered))
    at = {calls[node]: starts[node] for node in ordered}
    assert {str(a): s for a, s in at.items() if a.kind == "F"} == {
        "0F0": 0,
        "0F1": 1,
        "0F2": 6,
        "1F0": 1,
        "1F1": 4,
        "1F2": 7,
    }


def test_a_microbatch_is_cut_when_it_is_needed(pair: ProgramIR) -> None:
    """No call that only reads arguments stands before the microbatch before its own has started."""
    found = arrange(pair, "gpipe")
    assert found.pipeline is not None
    place = {node: at for at, node in enumerate(found.order)}
    first = {str(a): place[calls[0]] for a, calls in found.pipeline.calls.items()}
    for m in (1, 2):
        action = next(a for a in found.pipeline.calls if str(a) == f"0F{m}")
        (call, *_) = found.pipeline.calls[action]
        cut = [w for w in found.graph.waits[call] if not found.graph.waits[w]]
        assert cut and all(place[w] > first[f"0F{m - 1}"] for w in cut)


@pytest.mark.parametrize(("again", "units"), [(False, [0.5, 0.5, 0.5, 0.5]), (True, [0.5, 0.5, 1.0, 1.0])])
def test_calls_of_one_action_share_its_units(again: bool, units: list[float], checkpointed: ProgramIR) -> None:
    """Two layers a stage. Calls that run a forward again take its one unit, beside the two of the backward."""
    backward = [n for n in checkpointed.flow.calls() if (n.op.action or "")[1:2] == "B" and not n.op.gathered]
    repeated = [n.op for at, n in enumerate(backward) if at // 2 % 2 == 0] if again else []
    try:
        for op in repeated:
            op.again = True
        found = arrange(checkpointed, "gpipe")
    finally:
        for op in repeated:
            op.again = None
    assert found.pipeline is not None
    for action, calls in found.pipeline.calls.items():
        seconds = [found.graph.seconds[c] for c in calls]
        assert sorted(seconds) == ([0.5, 0.5] if action.kind == "F" else units)
    inside = {c for calls in found.pipeline.calls.values() for c in calls}
    assert not any(s for i, s in enumerate(found.graph.seconds) if i not in inside)


def test_columns_of_a_table_count_each_action_as_one(pair: ProgramIR) -> None:
    """GPipe on two slices: the backward of slice 0 is one column behind that of slice 1."""
    layers = at_transfers(pipe(slices=2, microbatches=3, layers=2).lowered())
    for program in (pair, layers):
        found = arrange(program, "gpipe")
        assert found.pipeline is not None
        at = {str(a): c for a, c in columns(found.pipeline, found.graph, found.table).items()}
        expected = {f"{s}F{m}": m + s for s in (0, 1) for m in range(3)}
        assert at == expected | {f"{s}B{m}": 5 + m - s for s in (0, 1) for m in range(3)}


def test_the_order_of_the_program_is_a_table_too(pair: ProgramIR) -> None:
    found = order_by_waits(pair)
    assert found.order == list(range(len(pair.flow.nodes))) and found.pipeline is not None
    assert texts(found) == [" ".join(f"{s}F{m} {s}B{m}" for m in range(3)) for s in (0, 1)]
    assert as_written(found.pipeline) == found.table


def test_a_program_without_microbatches_keeps_its_order_and_says_so(tmp_path: Path) -> None:
    lone = at_transfers(pipe("forward only", slices=2, microbatches=1).lowered())
    count = len(lone.flow.nodes)
    for schedule, noted in (("program", False), ("1f1b", True)):
        found = arrange(lone, schedule)
        assert found.order == list(range(count)) and found.pipeline is None and not found.table
        assert ("no loop over microbatches" in found.note) is noted
        assert describe_schedule(schedule, found) == Schedule(schedule, found.note)
    path = tmp_path / "bad.csv"
    path.write_text("hello\n")
    with pytest.raises(PathwaysError, match="PWC0403"):
        arrange(lone, str(path))


def test_an_unknown_schedule_is_refused_with_all_names(pair: ProgramIR) -> None:
    with pytest.raises(PathwaysError) as caught:
        arrange(pair, "2f2b")
    assert caught.value.code == "PWC0405" and "program, gpipe, 1f1b, interleaved, zero-bubble" in str(caught.value)


@pytest.mark.parametrize(("text", "splits"), [("0F0,0B0\n", False), ("0F0\n1F0,1W0\n", True), ("", False)])
def test_a_file_tells_by_its_actions_whether_backward_is_split(text: str, splits: bool, tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text(text)
    assert splits_backward(str(path)) is splits and splits_backward("zero-bubble") and not splits_backward("gpipe")


def test_a_cycle_is_drawn_as_actions_that_wait_for_each_other(pair: ProgramIR, tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("0F0,0F1,0F2,0B0,0B1,0B2\n1B0,1F0,1F1,1F2,1B1,1B2\n")
    with pytest.raises(PathwaysError) as caught:
        arrange(pair, str(path))
    (found,) = caught.value.diagnostics
    assert found.code == "PWC0402" and "2 actions wait for each other" in str(caught.value)
    lines = found.text(found.have).splitlines()
    assert len(lines) == 3 and lines[2].removeprefix("-> ") == lines[0].split(": ")[0].strip()
    assert {line.split(": ")[-1] for line in lines[:2]} == {"comes after 1B0 in row 2", "needs a result of 1F0"}
    assert all(" on s1" in line and "pipelines.py:" in line for line in lines) and lines[1].startswith("-> ")
    assert "move 1F0 to the left in row 2" in str(caught.value)


def test_several_calls_of_an_action_are_one_line_of_a_cycle(tmp_path: Path) -> None:
    layers = at_transfers(pipe(slices=2, microbatches=2, layers=2).lowered())
    path = tmp_path / "table.csv"
    path.write_text("0F0,0F1,0B0,0B1\n1B0,1F0,1F1,1B1\n")
    with pytest.raises(PathwaysError) as caught:
        arrange(layers, str(path))
    (found,) = caught.value.diagnostics
    shown = [line.removeprefix("-> ").split()[0] for line in found.text(found.have).splitlines()]
    assert sorted(set(shown)) == ["1B0", "1F0"] and len(shown) == 3 and "2 actions wait" in str(caught.value)


def test_a_cycle_over_two_rows_says_which_action_to_move(pair: ProgramIR, tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("0F0,0B0,0F1,0F2,0B1,0B2\n1F0,1F1,1F2,1B0,1B1,1B2\n")
    with pytest.raises(PathwaysError) as caught:
        arrange(pair, str(path))
    (found,) = caught.value.diagnostics
    lines = found.text(found.have).splitlines()
    whys = {line.removeprefix("-> ").split()[0]: line.split(": ")[-1] for line in lines[:-1]}
    assert whys["0F1"] == "comes after 0B0 in row 1" and whys["1F1"] == "needs a result of 0F1"
    assert whys["0B0"] == "needs a result of 1B0" and whys["1B0"] == "comes after 1F2 in row 2"
    assert {line.split(" on ")[1][:2] for line in lines if " 0" in line[:5]} == {"s0"}


def two_stages(*, devices: int = 2) -> Any:
    made = pw.make_virtual_device_set()
    homes = [NamedSharding(made.add_slice(devices=devices).mesh("x"), P()) for _ in range(2)]
    first, second = (jit(lambda w, x: x @ w, in_shardings=home) for home in homes)
    program = pw.program(lambda a, b, xs: [second(b, first(a, xs[m])) for m in range(2)])
    return program.lower(jnp.ones((8, 16)), jnp.ones((16, 32)), jnp.ones((2, 4, 8)))


def test_a_schedule_is_described_by_its_pipeline() -> None:
    found = describe_schedule("gpipe", arrange(at_transfers(two_stages(devices=1), PAIR), "gpipe"))
    assert (found.stages, found.slices, found.microbatches) == (2, 2, 2)
    assert (found.bubble, found.bound) == (pytest.approx(1 / 3), pytest.approx(1 / 3))


def test_a_schedule_is_read_from_a_program_as_it_was_written() -> None:
    program = ProgramIR(pipe("forward only", slices=2, microbatches=2).lowered().module)
    assert read_schedule(program) == Schedule("program")
    schedule = Schedule("1f1b", "a note", 2, 1, 8, 0.25, 0.125)
    write_schedule(program, schedule)
    assert read_schedule(program) == schedule


def test_a_program_without_calls_that_are_alike_has_no_pipeline() -> None:
    lowered = pipe("forward only", slices=2, microbatches=1).lowered()
    assert recognize(ProgramIR(lowered.module)) is None
