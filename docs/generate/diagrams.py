"""Draws the design diagrams from the code: layers, phases, state tables."""

import tomllib
from pathlib import Path
from typing import Any

from generate.svg import Drawing
from pathways.compiler.pass_manager import PASSES, Options, default_passes
from pathways.dialect.phases import Phase

ROOT = Path(__file__).parents[2]
ROW_PX, GAP_PX, MARGIN_PX = 34, 10, 12


def layers() -> str:
    """Draws the layers of import-linter's contracts, upper layers first: only upper ones may import lower ones."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    stacks = [(c["name"], c["layers"]) for c in contracts if c["type"] == "layers"]
    lines = [(name, [line for row in rows for line in _lines(row)]) for name, rows in stacks]
    width, tall = 215, max(len(rows) for _, rows in lines)
    drawing = Drawing(MARGIN_PX + len(stacks) * (width + 20), 40 + tall * (ROW_PX + GAP_PX))
    for column, (name, rows) in enumerate(lines):
        left = MARGIN_PX + column * (width + 20)
        drawing.text(left + width / 2, 20, name)
        for i, beside in enumerate(rows):
            each = (width - GAP_PX * (len(beside) - 1)) / len(beside)
            for k, part in enumerate(beside):
                _layer(drawing, left + k * (each + GAP_PX), 32 + i * (ROW_PX + GAP_PX), each, part)
    return drawing.svg()


def _lines(row: str) -> list[list[str]]:
    """Splits the parts of one layer into lines of two or three."""
    parts = [part.strip().removeprefix("pathways.") for part in row.split("|")]
    most = 3 if len(parts) == 3 else 2
    return [parts[i : i + most] for i in range(0, len(parts), most)]


def _layer(drawing: Drawing, x: float, y: float, width: float, name: str) -> None:
    drawing.box(x, y, width, ROW_PX, kind="pale")
    drawing.text(x + width / 2, y + ROW_PX / 2 + 4, name, "small" if len(name) * 7 > width else "")


def phases() -> str:
    """Draws the phases of a program, and between them the passes that lead from one to the next."""
    usual = {step.name for step in default_passes(Options())}
    inside: dict[Phase, list[str]] = {phase: [] for phase in Phase}
    for name, cls in PASSES.items():
        _, ensures = cls.phases()
        inside[ensures].append(name if name in usual else f"({name})")
    width, step = 126, 170
    most = max(len(names) for names in inside.values())
    drawing = Drawing(MARGIN_PX + len(Phase) * step, 80 + 18 * most)
    for i, phase in enumerate(Phase):
        x = MARGIN_PX + i * step
        drawing.box(x, 10, width, ROW_PX, phase.value, "full")
        if i:
            drawing.arrow((x - step + width, 10 + ROW_PX / 2), (x, 10 + ROW_PX / 2))
        for k, name in enumerate(inside[phase] if i else ["front end", *inside[phase]]):
            drawing.text(x + width / 2, 66 + 18 * k, name, "small")
    return drawing.svg()


def states_table(states: Any) -> str:
    """Returns a table of `runtime/states.py` as Markdown: a row for each state, a column for each event."""
    events = list(dict.fromkeys(event for row in states.table.values() for event in row))
    head = f"| {states.what} that is | " + " | ".join(f"*{event}*" for event in events) + " |"
    rows = [
        f"| **{state}** | " + " | ".join(row.get(event, "") for event in events) + " |"
        for state, row in states.table.items()
    ]
    return "\n".join([head, "|---" * (len(events) + 1) + "|", *rows])
