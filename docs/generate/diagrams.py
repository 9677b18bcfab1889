"""The diagrams of the design, made from what the code says of itself."""

import tomllib
from pathlib import Path
from typing import Any

from generate.svg import Drawing
from pathways.compiler.pass_manager import PASSES, Options, default_passes
from pathways.dialect.phases import Phase

ROOT = Path(__file__).parents[2]
ROW, GAP, MARGIN = 34, 10, 12


def layers() -> str:
    """Who may import whom: the contracts of import-linter, upper layers first."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    stacks = [(c["name"], c["layers"]) for c in contracts if c["type"] == "layers"]
    lines = [(name, [line for row in rows for line in _lines(row)]) for name, rows in stacks]
    width, tall = 215, max(len(rows) for _, rows in lines)
    drawing = Drawing(MARGIN + len(stacks) * (width + 20), 40 + tall * (ROW + GAP))
    for column, (name, rows) in enumerate(lines):
        left = MARGIN + column * (width + 20)
        drawing.text(left + width / 2, 20, name)
        for i, beside in enumerate(rows):
            each = (width - GAP * (len(beside) - 1)) / len(beside)
            for k, part in enumerate(beside):
                _layer(drawing, left + k * (each + GAP), 32 + i * (ROW + GAP), each, part)
    return drawing.svg()


def _lines(row: str) -> list[list[str]]:
    """The parts of one layer, two or three beside each other."""
    parts = [part.strip().removeprefix("pathways.") for part in row.split("|")]
    most = 3 if len(parts) == 3 else 2
    return [parts[i : i + most] for i in range(0, len(parts), most)]


def _layer(drawing: Drawing, x: float, y: float, width: float, name: str) -> None:
    drawing.box(x, y, width, ROW, kind="pale")
    drawing.text(x + width / 2, y + ROW / 2 + 4, name, "small" if len(name) * 7 > width else "")


def phases() -> str:
    """The phases of a program, and between them the passes that lead from one to the next."""
    usual = {step.name for step in default_passes(Options())}
    inside: dict[Phase, list[str]] = {phase: [] for phase in Phase}
    for name, cls in PASSES.items():
        _, ensures = cls.phases()
        inside[ensures].append(name if name in usual else f"({name})")
    width, step = 126, 170
    most = max(len(names) for names in inside.values())
    drawing = Drawing(MARGIN + len(Phase) * step, 80 + 18 * most)
    for i, phase in enumerate(Phase):
        x = MARGIN + i * step
        drawing.box(x, 10, width, ROW, phase.value, "full")
        if i:
            drawing.arrow((x - step + width, 10 + ROW / 2), (x, 10 + ROW / 2))
        for k, name in enumerate(inside[phase] if i else ["front end", *inside[phase]]):
            drawing.text(x + width / 2, 66 + 18 * k, name, "small")
    return drawing.svg()


def states_table(states: Any) -> str:
    """One table of `runtime/states.py` as Markdown: a row a state, a column an event."""
    events = list(dict.fromkeys(event for row in states.table.values() for event in row))
    head = f"| {states.what} that is | " + " | ".join(f"*{event}*" for event in events) + " |"
    rows = [
        f"| **{state}** | " + " | ".join(row.get(event, "") for event in events) + " |"
        for state, row in states.table.items()
    ]
    return "\n".join([head, "|---" * (len(events) + 1) + "|", *rows])
