"""Shows progress as one line below the cell of a notebook, which goes away when it is done."""

import importlib
from typing import Any

from pathways.api.progress_rows import ProgressRow, one_line


class NotebookLine:
    """One output of the cell that runs, updated in place."""

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
        """Does nothing: the output is the parent's."""

    def close(self) -> None:
        if self._handle is not None:
            self._handle.update({"text/plain": "", "text/html": ""}, raw=True)
