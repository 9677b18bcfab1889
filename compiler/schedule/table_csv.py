"""Reads and writes a pipeline schedule as a CSV file, in the format of PyTorch's pipelining. Users can thus write a
schedule of their own, or inspect the one that was used.

A row is a slice. Cells are like 0F3; an empty cell is idle time.
"""

import csv
import io
from collections.abc import Mapping
from pathlib import Path

from pathways.compiler.errors import BadTable
from pathways.compiler.schedule.table import Pipeline, Table
from pathways.dialect.call_labels import Action, read_action
from pathways.dialect.diagnostics import PathwaysError, Where
from pathways.dialect.files import write_whole


def read_rows(path: Path) -> list[list[Action]]:
    """Reads the actions of each row. Raises PWC0403 with all cells that are no actions."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        problem = getattr(error, "strerror", None) or str(error)
        raise PathwaysError(BadTable(path=str(path), have_=problem, rule="a CSV file, one row per slice")) from None
    found: list[list[Action]] = []
    bad: list[BadTable] = []
    for line, cells in enumerate(rows, 1):
        row: list[Action] = []
        for column, cell in enumerate(cells, 1):
            try:
                row += [read_action(cell.strip())] if cell.strip() else []
            except ValueError:
                rule = "cells like 2F3 (stage, F, B, I or W, microbatch), or empty"
                where = Where(str(path), line)
                bad.append(BadTable(path=str(path), have_=f"{cell!r} in column {column}", rule=rule, where=where))
        found.append(row)
    if bad:
        raise PathwaysError(*bad)
    while found and not found[-1]:
        found.pop()
    return found


def needs_split(rows: list[list[Action]]) -> bool:
    """Whether a table has actions for the two parts of backward computations."""
    return any(a.kind in "IW" for row in rows for a in row)


def check_rows(rows: list[list[Action]], pipeline: Pipeline, path: str) -> Table:
    """Returns the table if it has every action of the pipeline once, on its slice. Raises PWC0403 with all faults."""
    bad: list[BadTable] = []

    def wrong(have: str, rule: str, line: int | None = None) -> None:
        where = None if line is None else Where(path, line)
        bad.append(BadTable(path=path, have_=have, rule=rule, where=where))

    if len(rows) != len(pipeline.slices):
        wrong(f"{len(rows)} rows", f"one row per slice: {', '.join(pipeline.slices)}")
    seen: dict[Action, int] = {}
    for line, row in enumerate(rows, 1):
        for wanted in row:
            parts = pipeline.parts(wanted) or [wanted]
            for action in parts:
                if action in seen:
                    wrong(f"{action} twice, in rows {seen[action]} and {line}", "every action exactly once", line)
                seen.setdefault(action, line)
            if not _exists(wanted, pipeline):
                wrong(f"{wanted}", _rule(pipeline), line)
            elif pipeline.rows[wanted.stage] != line - 1:
                home = pipeline.rows[wanted.stage]
                wrong(
                    f"{wanted} in row {line}",
                    f"stage {wanted.stage} in row {home + 1}: it is on {pipeline.slices[home]}",
                    line,
                )
    missing = sorted(pipeline.calls.keys() - seen.keys())
    if missing:
        shown = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
        wrong(f"missing actions ({len(missing)}): {shown}", "every action exactly once")
    if bad:
        raise PathwaysError(*bad)
    return pipeline.table(rows)


def _exists(action: Action, pipeline: Pipeline) -> bool:
    """Whether the program has such an action. A table may also name an input gradient that is not needed."""
    if not (action.stage < pipeline.stages and action.microbatch < pipeline.microbatches):
        return False
    if action.kind == "I" and Action(action.stage, "W", action.microbatch) in pipeline.calls:
        return True
    return bool(pipeline.parts(action))


def _rule(pipeline: Pipeline) -> str:
    kinds = "".join(dict.fromkeys(a.kind for a in sorted(pipeline.calls, key=lambda a: "FBIW".index(a.kind))))
    return (
        f"stages 0 to {pipeline.stages - 1}, microbatches 0 to {pipeline.microbatches - 1}, "
        f"{' and '.join(kinds)}, the actions of the program"
    )


def write_table(path: Path, table: Table, starts: Mapping[Action, int]) -> None:
    """Writes a table. `starts` are the columns, in unit times. Raises PWC0606."""
    width = 1 + max(starts.values(), default=-1)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for row in table:
        cells = [""] * width
        for action in row:
            cells[starts[action]] = str(action)
        writer.writerow(cells)
    write_whole(path, out.getvalue())
