"""Draws the simulated variants of a program as an SVG: a row for each schedule and placement, a column for each number
of microbatches, and the time of a step in each cell. `pwc simulate --sweep --picture` writes it.
"""

from collections.abc import Mapping, Sequence
from html import escape

from pathways.compiler.placement.runner_up import seconds
from pathways.compiler.simulate.estimate import Outcome
from pathways.compiler.simulate.figures import StepFigures

_CELL, _ROW, _LETTER = 136, 26, 6.8
"""Width of a column, height of a row and width of a letter, in pixels."""
_FAST, _SLOW, _NONE = (46, 125, 50), (250, 235, 215), "#dddddd"


def sweep_svg(title: str, variants: Mapping[str, Outcome]) -> str:
    """Draws variants. Commas separate the parts of a name, of which the last is the column.

    Gray means refused; a time with ~ is estimated from others.
    """
    names = {name: _row_and_column(name) for name in variants}
    rows = list(dict.fromkeys(row for row, _ in names.values()))
    columns = sorted(dict.fromkeys(column for _, column in names.values()), key=_number)
    times = [found.seconds for found in variants.values() if not isinstance(found, str)]
    least, most = min(times, default=0.0), max(times, default=0.0)
    left = 12 + _LETTER * max((len(row) for row in rows), default=0)
    width, height = left + _CELL * len(columns) + 12, 60 + _ROW * len(rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" font-family="sans-serif" '
        'font-size="12">',
        _text(12, 20, f"{title}: time of a step, simulated"),
    ]
    parts += [_text(left + _CELL * n, 44, column) for n, column in enumerate(columns)]
    parts += [_text(12, 52 + _ROW * n + 17, row) for n, row in enumerate(rows)]
    for name, found in variants.items():
        row, column = names[name]
        x, y = left + _CELL * columns.index(column), 52 + _ROW * rows.index(row)
        parts += _cell(x, y, found, least, most)
    return "\n".join([*parts, "</svg>", ""])


def _number(column: str) -> int:
    """Returns the number of microbatches of a column, for its place among others."""
    first = column.partition(" ")[0]
    return int(first) if first.isdecimal() else 0


def _row_and_column(name: str) -> tuple[str, str]:
    row, _, column = name.rpartition(", ")
    return (row, column) if column.endswith("microbatches") else (name, "")


def _cell(x: float, y: float, found: Outcome, least: float, most: float) -> Sequence[str]:
    text, color, why, ink = "refused", _NONE, str(found), "black"
    if not isinstance(found, str):
        share = (found.seconds - least) / (most - least) if most > least else 0.0
        mixed = [round(a + (b - a) * share) for a, b in zip(_FAST, _SLOW, strict=True)]
        text, color, why = seconds(found.seconds), f"rgb({','.join(map(str, mixed))})", "estimated"
        if isinstance(found, StepFigures):
            why = f"waits {found.bubble:.1%}"
        else:
            text = f"~{text}"
        ink = "white" if share < 0.5 else "black"
    return (
        f'<rect x="{x:.0f}" y="{y}" width="{_CELL - 2}" height="{_ROW - 2}" fill="{color}"><title>{escape(why)}</title>'
        "</rect>",
        _text(x + 6, y + 16, text, ink),
    )


def _text(x: float, y: float, text: str, color: str = "black") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" fill="{color}">{escape(text)}</text>'
