"""Draws rows of progress below the cursor of a terminal, through rich; what is printed meanwhile stays above them.

The cursor stays where it is, so that nothing that others print is ever drawn over, and a process that is killed leaves
a terminal as it should be.
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

BAR = 20
"""Columns of a bar."""
_DOWN, _SAVE, _RESTORE = "\x1bD", "\x1b7", "\x1b8"
"""Moves the cursor a line down, which scrolls at the bottom; keeps its place; goes back there."""
_UP, _NEXT_LINE = "\x1b[{}A", "\x1b[E\x1b[2K"
_CLEAR_BELOW = "\x1b[J"


class TerminalLines:
    """The lines below the cursor while something is under way."""

    def __init__(self, stream: TextIO) -> None:
        self._stream: TextIO = _inner(stream)
        self._console = Console(file=self._stream, force_terminal=True, highlight=False, markup=False, emoji=False)
        self._spinner = Spinner("dots" if self._console.encoding.startswith("utf") else "line")
        self._is_drawn = False
        self._lock = threading.RLock()
        """Held while something is written to the terminal."""
        self._above = {name: Above(of, self) for name, of in _terminals()}
        for name, above in self._above.items():
            setattr(sys, name, above)

    def draw(self, rows: list[ProgressRow]) -> None:
        lines = self._rendered(rows)
        drawn = "".join(_NEXT_LINE + line for line in lines)
        with self._lock:
            self._is_drawn = True
            self._say(_DOWN * len(lines) + _UP.format(len(lines)) + _SAVE + drawn + _CLEAR_BELOW + _RESTORE)

    def write_above(self, stream: TextIO, text: str) -> int:
        """Writes what others print: the rows are drawn again below it."""
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
        """Gives the standard streams back in a forked process; what is drawn is the parent's."""
        self._lock, self._is_drawn = threading.RLock(), False  # the thread that held it is not here
        self._give_back()

    def _give_back(self) -> None:
        for name, above in self._above.items():
            if getattr(sys, name) is above:
                setattr(sys, name, above.stream)

    def _erase(self) -> None:
        if self._is_drawn:
            self._is_drawn = False
            self._say(_CLEAR_BELOW)

    def _say(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()

    def _rendered(self, rows: list[ProgressRow]) -> list[str]:
        """The rows as lines that fit the terminal."""
        width, height = self._console.size
        with self._console.capture() as captured:
            self._console.print(self._table(rows), width=max(1, width - 1), overflow="crop", no_wrap=True)
        return captured.get().splitlines()[: max(1, height - 2)]

    def _table(self, rows: list[ProgressRow]) -> Table:
        table = Table.grid(padding=(0, 1))
        for _ in ("name", "bar"):
            table.add_column(no_wrap=True)
        table.add_column()  # rich makes columns that may wrap narrower before others
        table.add_column(no_wrap=True, justify="right")
        for row in rows:
            lead: Any = self._spinner.render(time.monotonic()) if row.depth == 0 else " " * (2 * row.depth - 1)
            bar = "" if row.part is None else ProgressBar(total=1.0, completed=row.part, width=BAR)
            said = ", ".join(part for part in (row.count, row.detail) if part)
            one_line = Text(said, no_wrap=True, overflow="ellipsis")
            table.add_row(Text.assemble(lead, " ", row.name), bar, one_line, f"{row.seconds} s")
        return table


class Above:
    """A standard stream while rows are shown below what it writes; all else is the stream's own."""

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
    """The stream itself, where it is one that was left in its place."""
    while isinstance(stream, Above):
        stream = stream.stream
    return stream


def _terminals() -> list[tuple[str, Any]]:
    """The standard streams that are terminals: what goes to files and pipes stays as it is."""
    found: list[tuple[str, Any]] = []
    for name in ("stdout", "stderr"):
        stream = _inner(getattr(sys, name))
        with contextlib.suppress(OSError, ValueError):
            if stream is not None and stream.isatty():
                found.append((name, stream))
    return found
