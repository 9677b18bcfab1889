"""Tests the figures in pictures: bytes transferred, bytes that calls return, and the runs that belong to a plan."""

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from support.pictures import Ran, pipeline_picture
from support.processes import pwc_here

import pathways as pw
from pathways.viz.actual import MAX_RUNS, Recorded, read_trace
from pathways.viz.graphs import Arrow, Graph, graph_of_work
from pathways.viz.picture import Picture
from pathways.viz.pictures import picture_of_plan
from pathways.viz.render import drawing
from pathways.viz.render.dot import dot_text
from pathways.viz.render.page_data import page_data
from pathways.viz.scene import Scene


def test_a_value_that_two_calls_read_is_counted_as_moved_once(two_stages: Ran) -> None:
    """The forward and the backward of a stage read the same activation, which is transferred once."""
    picture = two_stages.picture()
    assert picture.work is not None
    stated = sum(t.bytes for t in picture.work.tasks if t.kind == "transfer")
    for graph in two_stages.compiled.visualize().graphs[-2:]:
        far = [a for a in graph.arrows if a.route == "dcn"]
        assert graph.moved(far) == stated > 0
        assert sum(graph.moved([a]) for a in far) > stated


def test_graphviz_counts_a_shared_value_once() -> None:
    boxes = pipeline_picture(2, 2).graphs[-1].boxes
    graph = Graph(phase=pipeline_picture(2, 2).graphs[-1].phase, moves=[64])
    source = next(i for i, b in enumerate(boxes) if b.parts[0].stage == 0)
    targets = [i for i, b in enumerate(boxes) if b.parts and b.parts[0].stage == 1 and b.parts[0].kind == "F"]
    graph.boxes.extend(boxes)
    graph.arrows.extend(Arrow(source, t, "float32[16]", 64, "dcn", moves=(0,)) for t in targets)
    assert len(targets) == 2 and "64 bytes between islands" in dot_text(Scene("shared", earlier=[graph]))


def test_calls_return_the_same_bytes_before_and_in_the_plan_phase(two_stages: Ran) -> None:
    *_, before, plan = two_stages.compiled.visualize().graphs
    made = [sorted((b.name, b.bytes) for b in graph.boxes) for graph in (before, plan)]
    assert made[0] == made[1] and any(size for _, size in made[0])


def test_a_transfer_names_the_value_that_it_reads(two_stages: Ran) -> None:
    """A backward returns several values; the transferred one is not always the first."""
    picture = two_stages.picture()
    assert picture.work is not None and picture.plan is not None
    tasks = page_data(picture)["tasks"]["columns"]
    read = list(_unpacked(tasks[-1]))
    rows: list[tuple[int, int]] = []
    for number, stream in enumerate(picture.plan.streams):
        rows += [(number, slot) for slot in range(len(stream.buffers))]
    for task, value in zip(picture.work.tasks, read, strict=True):
        assert value == -1 if task.kind == "call" else rows[value] == task.reads[0]


def _unpacked(column: dict[str, Any]) -> list[int]:
    """Decodes a packed column."""
    total, found = 0, column.get("plain")
    if found is None:
        found = [total := total + step for step in column["steps"]]
    return found


def test_a_rarely_run_program_is_found_among_many_runs(tmp_path: Path) -> None:
    def seldom(x: jax.Array) -> jax.Array:
        return x + 1

    def often(x: jax.Array) -> jax.Array:
        return x * 2

    value = np.ones(2, np.float32)
    first, second = pw.program(seldom), pw.program(often)
    with pw.trace(tmp_path / "t.json"):
        first(value)
        for _ in range(MAX_RUNS + 1):
            second(value)
    picture = first.lower(value).compile().visualize(trace=tmp_path / "t.json")
    assert [run.program for run in picture.runs] == ["seldom"]
    assert sum(run.program == "often" for run in read_trace(tmp_path / "t.json")) == MAX_RUNS


def _of_another_plan(run: Recorded) -> Recorded:
    """Returns a run of another plan of the same name; it shares no step number with this plan."""
    rows = [replace(row, cells=[replace(c, step=c.step + 10_000) for c in row.cells]) for row in run.rows]
    return Recorded(run.number, run.program, tuple(rows))


def test_runs_of_another_plan_of_the_same_name_are_excluded_and_noted(two_stages: Ran) -> None:
    runs = two_stages.picture().runs
    picture = picture_of_plan(two_stages.compiled.plan, (), [_of_another_plan(runs[0]), runs[1]])
    assert list(picture.runs) == [runs[1]]
    assert "1 runs of the trace are of another plan of step," in " ".join(picture.notes)


CORRUPTIONS: dict[str, Callable[[dict[str, Any]], object]] = {
    "no number": lambda e: e.update(ts=float("nan")),
    "endless": lambda e: e.update(dur=float("inf")),
    "backward": lambda e: e.update(dur=-5),
    "no step": lambda e: e["args"].update(step=float("inf")),
    "no action": lambda e: e["args"].update(action="2X3"),
}


@pytest.mark.parametrize("name", sorted(CORRUPTIONS))
def test_a_trace_with_invalid_numbers_is_refused(two_stages: Ran, tmp_path: Path, name: str) -> None:
    read = json.loads(two_stages.trace.read_text())
    cell = next(e for e in read["traceEvents"] if "step" in e.get("args", {}) and "line" in e["args"])
    CORRUPTIONS[name](cell)
    (tmp_path / "t.json").write_text(json.dumps(read))
    with pytest.raises(pw.PathwaysError) as caught:
        read_trace(tmp_path / "t.json")
    assert caught.value.code == "PWC0822"


def test_the_trace_option_is_refused_for_a_trace_file(two_stages: Ran) -> None:
    exit_code, _, stderr = pwc_here("viz", str(two_stages.trace), "--trace", str(two_stages.trace))
    assert exit_code == 2 and "PWC0801" in stderr


def test_a_title_is_not_parsed_as_mathematics(tmp_path: Path) -> None:
    picture = pipeline_picture(2, 2)
    picture.title = r"cost $\notacommand{ $ of \u00fc"
    raw = Picture(picture.title, picture.plan).save(tmp_path / "x.svg").read_bytes()
    assert ElementTree.fromstring(raw).tag.endswith("svg")


def test_a_plan_is_drawn_in_seconds_beside_a_run(two_stages: Ran) -> None:
    """Draws the plan in seconds beside a run, even if the run measured none of its computations."""
    plan = two_stages.compiled.plan
    strange = Scene("step", plan, runs=[_of_another_plan(two_stages.picture().runs[0])])
    assert drawing._basis(strange) == "estimated"  # pyright: ignore[reportPrivateUsage]
    assert drawing._basis(two_stages.picture()) == "measured"  # pyright: ignore[reportPrivateUsage]
    assert drawing._basis(Scene("step", plan)) == "equal"  # pyright: ignore[reportPrivateUsage]


def test_drawing_a_plan_without_calls_is_refused_as_such(tmp_path: Path) -> None:
    compiled = pw.program(lambda x: x).lower(np.ones(2, np.float32)).compile()
    work = compiled.visualize().work
    assert work is not None and graph_of_work(work).boxes == []
    with pytest.raises(pw.PathwaysError, match="a plan without calls"):
        compiled.visualize(tmp_path / "x.svg")
