"""Runs notebooks, and compares the output of their cells with the output that is checked in.

    python -m support.notebooks NOTEBOOK...            fails if a cell raises or its output differs
    python -m support.notebooks --write NOTEBOOK...    runs notebooks, and stores their outputs (`make notebooks`)

The output of a cell with the tag `varies` depends on time or machine. Such a cell must run without an error, and have
output if and only if output is checked in.
"""

import copy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

VARIES = "varies"
KEPT = ("stream", "execute_result")
"""Types of the outputs that are stored; rows of progress are temporary and have another type."""


def run(notebook: Any, folder: Path) -> Any:
    """Runs a copy of a notebook and returns it with its outputs. Raises CellExecutionError if a cell raises."""
    fresh = copy.deepcopy(notebook)
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(fresh, timeout=120, record_timing=False, resources=resources).execute()
    return fresh


def printed(cell: Any) -> str:
    """Returns the text that a cell prints, and the text of its value."""
    texts: list[str] = []
    for output in cell.get("outputs", []):
        if output["output_type"] == "stream" and output["name"] == "stdout":
            texts.append(output["text"])
        elif output["output_type"] == "execute_result":
            texts.append(output["data"].get("text/plain", ""))
    return "".join(texts)


def differences(stored: Any, fresh: Any) -> Iterator[str]:
    """Yields a message for each cell whose output differs from the stored output."""
    for i, (before, now) in enumerate(zip(stored["cells"], fresh["cells"], strict=True)):
        if before["cell_type"] != "code":
            continue
        old, new = printed(before), printed(now)
        if VARIES in before["metadata"].get("tags", []):
            if bool(old) != bool(new):
                yield f"cell {i} prints {new!r}, and {old!r} is checked in"
        elif old != new:
            yield f"cell {i} prints\n{new}\nand this is checked in:\n{old}"


def main() -> int:
    write = "--write" in sys.argv
    wrong = 0
    for path in (Path(name) for name in sys.argv[1:] if name != "--write"):
        stored = nbformat.read(path, as_version=4)
        fresh = run(stored, path.parent)
        if write:
            for cell in (c for c in fresh["cells"] if c["cell_type"] == "code"):
                cell["outputs"] = [o for o in cell["outputs"] if o["output_type"] in KEPT]
            nbformat.write(fresh, path)
            continue
        for difference in differences(stored, fresh):
            wrong = 1
            print(f"{path.name}: {difference}", file=sys.stderr)
    return wrong


if __name__ == "__main__":
    sys.exit(main())
