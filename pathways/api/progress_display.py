"""Shows what this process is doing if that takes over a second, such as compiling or waiting. In a terminal it draws
several rows, in a notebook one line.

A daemon thread polls the activities (`dialect/activities.py`). The thread exists only while an activity runs, and only
if there is a display. Everything shown is erased before the call that it describes returns or raises.
"""

import atexit
import importlib
import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TextIO, TypeAlias

from pathways.api.progress_rows import ProgressRow, progress_rows, time_to_show
from pathways.dialect import activities
from pathways.dialect.activities import ELSEWHERE, Activity, under_way
from pathways.runtime.interrupts import uninterrupted
from pathways.runtime.threads import started

SHOW_AFTER_S = 1.0
"""Minimum duration of an activity before it is shown."""
REDRAW_INTERVAL_S = 0.1
"""Interval between two drawings."""
QUIET = "PATHWAYS_QUIET"
"""Environment variable that disables the display."""
_PLAIN = ("dumb", "unknown")
"""Terminals that cannot move their cursor."""


class Screen(Protocol):
    """The area in which progress rows are drawn and erased."""

    def draw(self, rows: list[ProgressRow]) -> None: ...

    def close(self) -> None:
        """Erases everything that was drawn."""
        ...

    def forked(self) -> None:
        """Releases, in a forked process, what belongs to the parent."""
        ...


Loader: TypeAlias = Callable[[], Callable[[], Screen]]
"""Imports a display, which takes time, and returns a function that creates its screen."""


class ProgressDisplay:
    """Follows the activities of this process. `PROGRESS` is the only instance."""

    def __init__(self) -> None:
        self.quiet = False
        self.after, self.tick, self.ask_after = SHOW_AFTER_S, REDRAW_INTERVAL_S, SHOW_AFTER_S
        self._asked_at = float("-inf")
        self.why_elsewhere: Callable[[], str] = str
        """Returns why this process's runs wait in other processes. It may be slow."""
        self._lock = threading.RLock()
        """Held during drawing and erasing."""
        self._thread: threading.Thread | None = None
        self._screen: Screen | None = None
        self._is_drawing = False
        self._ends = threading.Event()
        self._judged: tuple[object, Loader | None] = (self, None)
        """A standard error stream, and the loader of the display for it."""

    def begun(self) -> None:
        if self._thread is not None or self.quiet or self._ends.is_set() or self._way() is None:
            return
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._follow, name="pathways-progress", daemon=True)
                self._thread = thread if started(thread) else None

    def ended(self) -> None:
        if self._is_drawing:
            self._erase()

    def close(self) -> None:
        """Stops showing progress: the process ends."""
        self._ends.set()
        self._erase()

    def forked(self) -> None:
        """Forgets, in a forked process, the thread and the parent's screen. Nothing is shown in the fork."""
        self._lock, self._ends = threading.RLock(), threading.Event()
        self._ends.set()
        if self._screen is not None:
            self._screen.forked()
        self._thread, self._screen, self._is_drawing = None, None, False

    def _way(self) -> Loader | None:
        """Returns the loader of the display, or None if nothing can or should be shown."""
        judged, way = self._judged
        if judged is not sys.stderr:
            way = _way_to_show(sys.stderr)
            self._judged = sys.stderr, way
        return way

    def _follow(self) -> None:
        while not self._ends.is_set():
            wait = time_to_show(under_way(), activities.clock(), self.after)
            if wait is None:
                self._erase()
                self._thread = None
                if not under_way():
                    return
                with self._lock:  # an activity that began meanwhile may or may not have started a thread
                    if self._thread is not None:
                        return
                    self._thread = threading.current_thread()
            else:
                if wait == 0 and (way := self._way()) is not None:
                    make = way()
                    self._explain(activities.clock())
                    self._draw(make)
                self._ends.wait(wait or self.tick)

    def _explain(self, now: float) -> None:
        """Adds the reason to waits for runs elsewhere. Asks for it at most once in `ask_after` seconds."""
        waits = [a for a in under_way() if a.unit == ELSEWHERE and a.begun + self.after <= now]
        if waits and now - self._asked_at >= self.ask_after:
            self._asked_at, why = now, self.why_elsewhere()
            for wait in waits:
                wait.detail = why

    def _draw(self, make: Callable[[], Screen]) -> None:
        with self._lock:
            self._is_drawing = True  # set before reading the activities: one that ends later erases
            rows = progress_rows(under_way(), activities.clock(), self.after)
            if not rows or self.quiet or self._ends.is_set():
                self._erase()
                return
            try:
                self._screen = self._screen or make()
                self._screen.draw(rows)
            except (OSError, ValueError):  # the terminal is lost
                self._screen = None
                self._ends.set()

    def _erase(self) -> None:
        with self._lock:
            screen, self._screen, self._is_drawing = self._screen, None, False
            if screen is not None:
                try:
                    screen.close()
                except (OSError, ValueError):
                    self._ends.set()


def _way_to_show(stream: TextIO | None) -> Loader | None:
    if os.environ.get(QUIET, "0") not in ("", "0"):
        return None
    if in_notebook():
        return _notebook
    return partial(_terminal, stream) if stream is not None and can_be_drawn_on(stream) else None


def can_be_drawn_on(stream: TextIO) -> bool:
    """Returns whether a stream is a terminal that can move its cursor."""
    return stream.isatty() and os.environ.get("TERM", "dumb") not in _PLAIN


def _notebook() -> Callable[[], Screen]:
    from pathways.api.notebook_line import NotebookLine

    return NotebookLine


def _terminal(stream: TextIO) -> Callable[[], Screen]:
    from pathways.api.terminal_lines import TerminalLines

    return partial(TerminalLines, stream)


def in_notebook() -> bool:
    """Returns whether this process is the kernel of a notebook."""
    if "ipykernel" not in sys.modules:
        return False
    shell: Any = importlib.import_module("IPython").get_ipython()
    return type(shell).__name__ == "ZMQInteractiveShell"


def quiet(on: bool = True) -> None:
    """Disables the progress display of this process; `pw.quiet(False)` enables it again.

    By default, work that takes more than a second shows its progress in terminals and notebooks, and nowhere else.
    PATHWAYS_QUIET=1 in the environment disables it from the start.
    """
    PROGRESS.quiet = on


PROGRESS = ProgressDisplay()


def show_progress(why_elsewhere: Callable[[], str]) -> None:
    """Enables the progress display for activities of this process that take more than a second.

    `why_elsewhere` returns why the process's runs wait in other processes.
    """
    PROGRESS.why_elsewhere = why_elsewhere
    uninterrupted(Activity.__enter__)  # a Ctrl-C inside them could leave an activity that is shown forever
    uninterrupted(Activity.__exit__)
    activities.follow(PROGRESS)
    atexit.register(PROGRESS.close)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=PROGRESS.forked)
