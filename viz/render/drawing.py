# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""Draws the schedule of a plan as SVG or PNG with matplotlib. If runs were recorded, they are below the planned
schedule. Devices with the same tasks share a row.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pathways.dialect.call_labels import Action, read_action
from pathways.dialect.diagnostics import PathwaysError
from pathways.viz.errors import NeedsViz
from pathways.viz.lanes import Lane
from pathways.viz.render.needs import nothing
from pathways.viz.render.words import WORDS, several_stages, short_actions
from pathways.viz.scene import Scene

FACES = {"F": "#5b9be0", "B": "#e59a4a", "I": "#b88ad8", "W": "#5db878", "": "#9aa3ad"}
HATCHES = {"F": "", "B": "////", "I": "----", "W": "....", "": ""}
HEIGHTS = {"F": 1.0, "B": 1.0, "I": 1.0, "W": 0.68, "": 0.4}
SCALES = ((1.0, "s"), (1e3, "ms"), (1e6, "us"), (1e9, "ns"))
MAX_LABELS = 600
"""Drawings with more cells omit the labels."""
WIDTH_INCHES, ROW_INCHES = 11.0, 0.3


@dataclass(frozen=True)
class _Bar:
    begin: float
    end: float
    kind: str
    label: str


def drawn(scene: Scene, form: str) -> bytes:
    """Draws a picture as `svg` or `png`. Raises PWC0821 without matplotlib, PWC0823 if no schedule is known."""
    try:
        from matplotlib.figure import Figure
        from matplotlib.patches import Patch
    except ImportError as error:
        raise PathwaysError(NeedsViz(what=f".{form}", package="matplotlib", problem=str(error))) from None
    rows = _rows(scene)
    if not rows:
        what = "a program that is not compiled" if scene.plan is None else "a plan without calls"
        advice = "compile().visualize(...)" if scene.plan is None else "draw a program with a computation"
        raise nothing(f".{form}", what, "a plan with calls, which have an order", advice)
    unit = "units of equal stages" if _basis(scene) == "equal" else "s"
    length = max((bar.end for _, bars in rows for bar in bars), default=1.0)
    factor, word = (1.0, unit) if unit != "s" else next(((f, w) for f, w in SCALES if length * f >= 1), SCALES[-1])
    figure: Any = Figure(figsize=(WIDTH_INCHES, 1.1 + ROW_INCHES * len(rows)), layout="constrained")
    axes: Any = figure.add_subplot()
    labeled = sum(len(bars) for _, bars in rows) <= MAX_LABELS
    for number, (_, bars) in enumerate(rows):
        _draw(axes, number, bars, factor, length * factor, labeled)
    axes.set_yticks(range(len(rows)), [name for name, _ in rows], parse_math=False)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(0, length * factor)
    axes.set_xlabel(word)
    axes.set_title(_title(scene), loc="left", fontsize=11, parse_math=False)
    axes.spines[["top", "right"]].set_visible(False)
    there = {bar.kind for _, bars in rows for bar in bars}
    patches = [
        Patch(facecolor=FACES[k], hatch=HATCHES[k], edgecolor="white", label=f"{k} {WORDS[k]}")
        for k in WORDS
        if k in there
    ]
    if patches:
        figure.legend(handles=patches, loc="outside lower right", ncols=len(patches), frameon=False, fontsize=9)
    out = io.BytesIO()
    extra = {"metadata": {"Date": None}} if form == "svg" else {"dpi": 150}
    figure.savefig(out, format=form, **extra)
    return out.getvalue()


def _basis(scene: Scene) -> str:
    """Selects the times of the planned rows. With recorded runs they are in seconds, to match the measured rows."""
    if "measured" in scene.times:
        return "measured"
    is_pipeline = scene.plan is not None and scene.plan.schedule.microbatches > 0
    return "equal" if is_pipeline and not scene.runs else "estimated"


def _title(scene: Scene) -> str:
    plan = scene.plan
    if plan is None or not plan.schedule.microbatches:
        return scene.title
    s = plan.schedule
    return f"{scene.title}: {s.name}, {s.stages} stages, {s.microbatches} microbatches"


def _rows(scene: Scene) -> list[tuple[str, list[_Bar]]]:
    """Returns planned and actual rows alternately. Without a run only planned rows, without a plan only the run."""
    run = scene.runs[-1] if scene.runs else None
    if scene.work is None:
        return [] if run is None else [
            (f"{r.island} device {r.device}", _actual(r.cells, 0.0)) for r in run.rows
        ]  # fmt: skip
    rows: list[tuple[str, list[_Bar]]] = []
    start = min((c.begin for r in run.rows for c in r.cells[:1]), default=0.0) if run is not None else 0.0
    for lane in scene.lanes:
        rows.append((f"{lane.name}, planned" if run is not None else lane.name, _planned(scene, lane)))
        if run is not None:
            found = next((r for r in run.rows if (r.island, r.device) == (lane.island, lane.devices[0])), None)
            rows.append(("actual", [] if found is None else _actual(found.cells, start)))
    return rows


def _planned(scene: Scene, lane: Lane) -> list[_Bar]:
    assert scene.work is not None
    times = scene.times[_basis(scene)]
    several = several_stages(scene.work.tasks[t] for t in lane.tasks)
    bars: list[_Bar] = []
    for number in lane.tasks:
        task = scene.work.tasks[number]
        if times.ends[number] > times.starts[number]:
            bars.append(_bar(times.starts[number], times.ends[number], task.parts, several))
    return bars


def _actual(cells: Sequence[Any], start: float) -> list[_Bar]:
    bars: list[_Bar] = []
    for cell in cells:
        parts = (read_action(cell.action),) if cell.action else ()
        bars.append(_bar(cell.begin - start, cell.end - start, parts, False))
    return bars


def _bar(begin: float, end: float, parts: tuple[Action, ...], several: bool) -> _Bar:
    label = short_actions(parts[:2], several)
    return _Bar(begin, end, parts[-1].kind if parts else "", label + ("+" if len(parts) > 2 else ""))


def _draw(axes: Any, number: int, bars: Sequence[_Bar], factor: float, length: float, labeled: bool) -> None:
    axes.axhspan(number - 0.42, number + 0.42, color="#8884", linewidth=0, alpha=0.25)
    for kind in dict.fromkeys(bar.kind for bar in bars):
        spans = [(b.begin * factor, (b.end - b.begin) * factor) for b in bars if b.kind == kind]
        high = 0.84 * HEIGHTS[kind]
        axes.broken_barh(
            spans,
            (number + 0.42 - high, high),
            facecolor=FACES[kind],
            hatch=HATCHES[kind],
            edgecolor="white",
            linewidth=0.4,
        )
    for bar in bars if labeled else ():
        if bar.label and (bar.end - bar.begin) * factor > length * 0.009 * len(bar.label):
            axes.text(
                (bar.begin + bar.end) / 2 * factor,
                number,
                bar.label,
                ha="center",
                va="center",
                fontsize=7,
                color="#101418",
            )
