"""Draws the progress of long work as rows below the cursor of a terminal, with the library rich. Other output of the
process appears above the rows. `progress_display.py` uses it.

The cursor does not move, so that other output is never overwritten, and a killed process leaves the terminal in order.
"""

import contextlib
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any, TextIO

from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from pathways.api.progress_rows import ProgressRow

BAR_COLUMNS = 20
"""Width of a progress bar in columns."""
_DOWN, _SAVE, _RESTORE = "\x1bD", "\x1b7", "\x1b8"
"""Moves the cursor one line down (scrolls at the bottom); saves the cursor position; restores it."""
_UP, _NEXT_LINE = "\x1b[{}A", "\x1b[E\x1b[2K"
_CLEAR_BELOW = "\x1b[J"


class TerminalLines:
    """The rows drawn below the cursor while an activity runs."""

    def __init__(self, stream: TextIO) -> None:
        self._stream: TextIO = _inner(stream)
        self._console = Console(file=self._stream, force_terminal=True, highlight=False, markup=False, emoji=False)
        self._spinner = Spinner("dots" if self._console.encoding.startswith("utf") else "line")
        self._is_drawn = False
        self._lock = threading.RLock()
        """Held during a write to the terminal."""
        self._above = {name: Above(of, self) for name, of in _terminals()}
        for name, above in self._above.items():
            setattr(sys, name, above)

    def draw(self, rows: list[ProgressRow]) -> None:
        lines = self._rendered(rows)
        drawn = "".join(_NEXT_LINE + line for line in lines)
        with self._lock:
            self._is_drawn = True
            self._write(_DOWN * len(lines) + _UP.format(len(lines)) + _SAVE + drawn + _CLEAR_BELOW + _RESTORE)

    def write_above(self, stream: TextIO, text: str) -> int:
        """Writes other output, below which the rows are drawn again."""
        with self._lock:
            self._erase()
            written = stream.write(text)
            stream.flush()
            return written

    def close(self) -> None:
        with self._lock:
            self._erase()
            self._give_back()

    def forked(self) -> None:
        """Restores the standard streams in a forked process; the drawn rows belong to the parent."""
        self._lock, self._is_drawn = threading.RLock(), False  # the thread that held the lock does not exist here
        self._give_back()

    def _give_back(self) -> None:
        for name, above in self._above.items():
            if getattr(sys, name) is above:
                setattr(sys, name, above.stream)

    def _erase(self) -> None:
        if self._is_drawn:
            self._is_drawn = False
            self._write(_CLEAR_BELOW)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()

    def _rendered(self, rows: list[ProgressRow]) -> list[str]:
        """Renders the rows as lines that fit the terminal."""
        width, height = self._console.size
        with self._console.capture() as captured:
            self._console.print(self._table(rows), width=max(1, width - 1), overflow="crop", no_wrap=True)
        return captured.get().splitlines()[: max(1, height - 2)]

    def _table(self, rows: list[ProgressRow]) -> Table:
        table = Table.grid(padding=(0, 1))
        for _ in ("name", "bar"):
            table.add_column(no_wrap=True)
        table.add_column()  # rich narrows columns that may wrap before others
        table.add_column(no_wrap=True, justify="right")
        for row in rows:
            lead: Any = self._spinner.render(time.monotonic()) if row.depth == 0 else " " * (2 * row.depth - 1)
            bar = "" if row.part is None else ProgressBar(total=1.0, completed=row.part, width=BAR_COLUMNS)
            shown = ", ".join(part for part in (row.count, row.detail) if part)
            one_line = Text(shown, no_wrap=True, overflow="ellipsis")
            table.add_row(Text.assemble(lead, " ", row.name), bar, one_line, f"{row.seconds} s")
        return table


class Above:
    """A standard stream whose output appears above the rows. Other methods are those of the stream."""

    def __init__(self, stream: TextIO, lines: TerminalLines) -> None:
        self.stream = stream
        self._lines = lines

    def write(self, text: str) -> int:
        return self._lines.write_above(self.stream, text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def _inner(stream: Any) -> Any:
    """Returns the stream without its `Above` wrappers, which may have been left in place."""
    while isinstance(stream, Above):
        stream = stream.stream
    return stream


def _terminals() -> list[tuple[str, Any]]:
    """Returns the standard streams that are terminals. Files and pipes are not changed."""
    found: list[tuple[str, Any]] = []
    for name in ("stdout", "stderr"):
        stream = _inner(getattr(sys, name))
        with contextlib.suppress(OSError, ValueError):
            if stream is not None and stream.isatty():
                found.append((name, stream))
    return found
