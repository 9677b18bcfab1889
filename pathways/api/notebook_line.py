"""Shows the progress of long work as one line below a notebook cell, and erases it when the work completes.
`progress_display.py` uses it in place of terminal output.
"""

import importlib
from typing import Any

from pathways.api.progress_rows import ProgressRow, one_line


class NotebookLine:
    """One output of the running cell, updated in place."""

    def __init__(self) -> None:
        self._display: Any = importlib.import_module("IPython.display").display
        self._handle: Any = None

    def draw(self, rows: list[ProgressRow]) -> None:
        shown = {"text/plain": one_line(rows)}
        if self._handle is None:
            self._handle = self._display(shown, raw=True, display_id=True)
        else:
            self._handle.update(shown, raw=True)

    def forked(self) -> None:
        """Does nothing: the output belongs to the parent process."""

    def close(self) -> None:
        if self._handle is not None:
            self._handle.update({"text/plain": "", "text/html": ""}, raw=True)
