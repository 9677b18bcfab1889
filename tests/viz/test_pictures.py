"""Tests that pictures show the contents of plans, every file format of pictures, and every refusal."""

import json
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.codes import code_of
from support.pictures import Ran, pipeline_picture
from support.pipelines import pipe
from support.processes import pwc_here

import pathways as pw
from pathways.compiler.simulate.work import CALL, TRANSFER
from pathways.dialect.phases import Phase
from pathways.dialect.plan import limits
from pathways.dialect.plan.instructions import Copy, Recv, Run
from pathways.dialect.plan.memory import peak
from pathways.dialect.plan.open_plan import open_plan
from pathways.viz.actual import read_trace
from pathways.viz.kept_phases import kept_graphs
from pathways.viz.memory import device_memory
from pathways.viz.picture import WRITERS, Picture
from pathways.viz.pictures import picture_of_plan
from pathways.viz.render.columns import pack_column, pack_rows
from pathways.viz.render.page_data import page_data

SCHEDULES = ("gpipe", "1f1b", "zero-bubble")


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("slices", "microbatches"), [(2, 4), (4, 3)])
def test_the_idle_share_of_equal_stages_equals_the_bubble_of_the_plan(
    schedule: str, slices: int, microbatches: int
) -> None:
    picture = pipeline_picture(slices, microbatches, schedule)
    assert picture.plan is not None
    times = picture.times["equal"]
    busy = [sum(times.ends[t] - times.starts[t] for t in lane.tasks) for lane in picture.lanes]
    assert len(busy) == slices
    assert 1 - sum(busy) / (slices * times.length) == pytest.approx(picture.plan.schedule.bubble)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_tasks_start_when_the_tasks_they_wait_for_complete(schedule: str) -> None:
    picture = pipeline_picture(3, 4, schedule)
    assert picture.work is not None
    for times in picture.times.values():
        for task in picture.work.tasks:
            assert all(times.ends[w] <= times.starts[task.number] for w in task.waits)
            cause = times.causes[task.number]
            assert times.starts[task.number] == (times.ends[cause] if cause >= 0 else 0)
        for lane in picture.lanes:
            assert all(times.ends[a] <= times.starts[b] for a, b in pairwise(lane.tasks))


def test_every_instruction_of_a_plan_is_a_task(two_stages: Ran) -> None:
    picture = two_stages.picture()
    assert picture.plan is not None and picture.work is not None
    stated = Counter(type(i) for s in picture.plan.streams for i in s.instructions if isinstance(i, Run | Recv | Copy))
    drawn = Counter(t.kind for t in picture.work.tasks)
    assert (drawn[CALL], drawn[TRANSFER], drawn["reshard"]) == (stated[Run], stated[Recv], stated[Copy])
    assert all(t.where is not None and t.decision is not None for t in picture.work.tasks if t.kind == TRANSFER)


def test_device_memory_has_the_peaks_of_the_plan(two_stages: Ran) -> None:
    plan = two_stages.compiled.plan
    for island in (s.island for s in plan.streams):
        rows = [m for m in device_memory(plan) if m.island == island]
        assert max(m.peak for m in rows) == peak(plan, island).bytes
        for m in rows:
            alive = list(accumulate(moved for _, _, moved in m.changes))
            assert max(alive) == m.peak and min(alive) >= 0


def test_recorded_runs_have_the_planned_tasks_in_order(two_stages: Ran) -> None:
    picture = two_stages.picture()
    assert picture.work is not None and len(picture.runs) == 2
    for run in picture.runs:
        for row in run.rows:
            lane = next(x for x in picture.lanes if x.island == row.island and row.device in x.devices)
            planned = [(picture.work.tasks[t].step, picture.work.tasks[t].name) for t in lane.tasks]
            assert [(c.step, c.name) for c in row.cells] == planned == [(c.step, c.name) for c in row.planned]


def test_graphs_cover_every_phase_of_the_compiler(two_stages: Ran, tmp_path: Path) -> None:
    graphs = two_stages.compiled.visualize().graphs
    assert [g.phase for g in graphs] == list(Phase)
    assert all(not a.route for a in graphs[0].arrows) and any(a.route == "dcn" for a in graphs[-1].arrows)
    assert len(graphs[0].boxes) > len(graphs[-1].boxes)  # calls are merged on the way


def test_a_plan_file_keeps_the_graphs_of_its_phases(tmp_path: Path) -> None:
    from support.processes import ROOT

    path = tmp_path / "plan.bin"
    sample = str(ROOT / "samples" / "figure2.py")
    assert pwc_here("compile", sample, "-o", str(path), "--with-phases")[0] == 0
    mine = kept_graphs(open_plan(path))
    assert [g.phase for g in mine] == [p for p in Phase if p is not Phase.PLAN]
    assert all(graph.arrows for graph in mine)


def test_the_schedule_is_printed_as_text() -> None:
    assert pipeline_picture(2, 3).text().splitlines() == [
        "step: 1f1b: 2 stages, 3 microbatches; 12 units of equal work, idle 25.0% (.)",
        "island0 s0  F0 F1 .  .  B0    F2 B1    .  B2",
        "island1 s1  .  F0 B0    F1 B1    F2 B2    .  .",
    ]
    cut = pipeline_picture(2, 3).text(30).splitlines()
    assert all(len(line) <= 30 for line in cut[1:3]) and "more columns" in cut[-1]


@pytest.mark.parametrize("ending", sorted(WRITERS))
def test_pictures_are_saved_in_every_file_format(ending: str, two_stages: Ran, tmp_path: Path) -> None:
    raw = two_stages.picture().save(tmp_path / f"picture{ending}").read_bytes()
    if ending == ".png":
        assert raw.startswith(b"\x89PNG")
    elif ending == ".svg":
        assert ElementTree.fromstring(raw).tag.endswith("svg")
    elif ending == ".json":
        graph = json.loads(raw)["graphs"][-1]
        nodes = {n["id"] for n in graph["nodes"]}
        edges = [e for n in graph["nodes"] for e in n["incomingEdges"]]
        assert edges and all(e["sourceNodeId"] in nodes for e in edges)
    elif ending == ".dot":
        assert raw.startswith(b"digraph") and b"stage 1 backward" in raw and raw.count(b"{") == raw.count(b"}")
    else:
        assert b"step" in raw


def test_a_drawing_without_matplotlib_names_the_extra_to_install(
    two_stages: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(pw.PathwaysError, match=r"pathways-mpmd\[viz\]") as caught:
        two_stages.picture().save(tmp_path / "x.svg")
    assert caught.value.code == "PWC0821" and not (tmp_path / "x.svg").exists()


def test_pictures_that_cannot_be_drawn_are_refused(two_stages: Ran, tmp_path: Path) -> None:
    lowered = pipe(slices=2, microbatches=2).lowered()
    assert code_of(two_stages.compiled.visualize, tmp_path / "x.pdf") == "PWC0820"
    assert code_of(lowered.visualize, tmp_path / "x.svg") == "PWC0823"
    alone = Picture("alone", None, (), read_trace(two_stages.trace))
    for ending in (".dot", ".json"):
        assert code_of(alone.save, tmp_path / f"x{ending}") == "PWC0823"
    for content in ("", "[]", "{}", '{"traceEvents": [1]}', '{"traceEvents": []}', '{"traceEvents": [{"ph": "X"}]}'):
        (tmp_path / "no.json").write_text(content)
        assert code_of(read_trace, tmp_path / "no.json") == "PWC0822"
    assert not (tmp_path / "x.pdf").exists()


def test_viz_draws_plans_and_traces(two_stages: Ran, tmp_path: Path) -> None:
    plan = tmp_path / "plan.bin"
    two_stages.compiled.save(plan)
    page = tmp_path / "run.html"
    exit_code, stdout, stderr = pwc_here("viz", str(plan), "--trace", str(two_stages.trace), "-o", str(page))
    assert (exit_code, stderr) == (0, "") and "run.html" in stdout and page.stat().st_size > 500_000
    exit_code, stdout, _ = pwc_here("viz", str(plan), "--trace", str(two_stages.trace), "--text")
    assert exit_code == 0 and "1f1b: 2 stages" in stdout and "the computations of each device" in stdout
    exit_code, stdout, _ = pwc_here("viz", str(plan), "--text")
    assert exit_code == 0 and "1f1b: 2 stages, 4 microbatches" in stdout
    exit_code, stdout, _ = pwc_here("viz", str(two_stages.trace))
    assert exit_code == 0 and stdout.count(" device 1") == 2
    exit_code, _, stderr = pwc_here("viz", str(plan), "--schedule", "gpipe")
    assert exit_code == 2 and "PWC0801" in stderr
    assert "PWC0820" in pwc_here("viz", str(plan), "-o", str(tmp_path / "x.pdf"))[2]


def test_notebooks_show_programs_and_the_status(two_stages: Ran) -> None:
    assert "<iframe" in two_stages.compiled._repr_html_()  # pyright: ignore[reportPrivateUsage]
    status = pw.status()._repr_html_()  # pyright: ignore[reportPrivateUsage]
    assert status.startswith("<table>") and "island" in status
    program = pw.program(lambda x: x + 1)
    assert program._repr_html_() is None  # pyright: ignore[reportPrivateUsage]
    program(np.ones(2, np.float32))
    assert "<iframe" in (program._repr_html_() or "")  # pyright: ignore[reportPrivateUsage]


def test_notebooks_show_a_recorded_trace(tmp_path: Path) -> None:
    program = pw.program(lambda x: x + 1)
    with pw.trace(tmp_path / "t.json") as trace:
        assert trace._repr_html_() is None  # pyright: ignore[reportPrivateUsage]
        program(np.ones(2, np.float32))
    assert "<iframe" in (trace._repr_html_() or "")  # pyright: ignore[reportPrivateUsage]
    compiled = program.lower(np.ones(2, np.float32)).compile()
    assert [r.program for r in trace.visualize(compiled=compiled).runs] == [compiled.plan.name]


def test_runs_of_another_program_are_noted(two_stages: Ran) -> None:
    other = pipe(slices=2, microbatches=2).lowered().compile()
    runs = [type(r)(r.number, "other", r.rows) for r in two_stages.picture().runs]
    assert "none of step" in " ".join(picture_of_plan(other.plan, (), runs).notes)


@given(st.lists(st.tuples(st.integers(-5, 10**12), st.text(max_size=3), st.integers(0, 3)), max_size=20))
def test_packed_columns_decode_to_the_same_rows(rows: list[tuple[int, str, int]]) -> None:
    packed = pack_rows(rows)
    read: list[list[object]] = []
    for one in packed["columns"]:
        total, values = 0, one.get("plain")
        if values is None:
            values = [total := total + step for step in one["steps"]]
        read.append(values)
    assert [tuple(row) for row in zip(*read, strict=True)] == rows and packed["rows"] == len(rows)
    assert pack_column([True])["plain"] == [True]


def test_the_data_of_a_page_is_json(two_stages: Ran) -> None:
    data = json.loads(json.dumps(page_data(two_stages.picture())))
    work = two_stages.picture().work
    assert work is not None and data["tasks"]["rows"] == len(work.tasks)


def test_inspect_refuses_only_the_memory_view_of_too_many_owners(
    two_stages: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "plan.bin"
    two_stages.compiled.save(path)
    monkeypatch.setattr(limits, "MAX_OWNERS", 10)
    assert pwc_here("inspect", str(path))[0] == 0
    exit_code, _, stderr = pwc_here("inspect", str(path), "--memory")
    assert exit_code != 0 and "PWC0613" in stderr
