"""Shows what this process waits for, once that takes a second: in a terminal, or as one line in a notebook.

A daemon thread looks at what is under way (`dialect/activities.py`). There is one only while something is, and only
where it can be seen. Whatever is shown is gone before the call that was waited for returns or raises.
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

AFTER = 1.0
"""Seconds that something must have taken before it is shown."""
TICK = 0.1
"""Seconds between two drawings."""
QUIET = "PATHWAYS_QUIET"
"""The variable of the environment that turns it off."""
_PLAIN = ("dumb", "unknown")
"""Terminals that cannot move their cursor."""


class Screen(Protocol):
    """Where rows are shown, and taken away again."""

    def draw(self, rows: list[ProgressRow]) -> None: ...

    def close(self) -> None:
        """Leaves nothing of what was drawn."""
        ...

    def forked(self) -> None:
        """Lets go, in a forked process, of what is the parent's."""
        ...


Loader: TypeAlias = Callable[[], Callable[[], Screen]]
"""Imports what shows something, which takes its time, and gives what makes a screen."""


class ProgressDisplay:
    """Follows the activities of this process. One a process: `PROGRESS`."""

    def __init__(self) -> None:
        self.quiet = False
        self.after, self.tick, self.ask_after = AFTER, TICK, AFTER
        self._asked = float("-inf")
        self.why_elsewhere: Callable[[], str] = str
        """Says what holds up the runs of this process in others; may take its time."""
        self._lock = threading.RLock()
        """Held while something is drawn or erased."""
        self._thread: threading.Thread | None = None
        self._screen: Screen | None = None
        self._is_drawing = False
        self._ends = threading.Event()
        self._judged: tuple[object, Loader | None] = (self, None)
        """A standard error, and what shows something there."""

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
        """Shows nothing any more: the process ends."""
        self._ends.set()
        self._erase()

    def forked(self) -> None:
        """Forgets, in a forked process, the thread and what the parent shows; nothing is shown here."""
        self._lock, self._ends = threading.RLock(), threading.Event()
        self._ends.set()
        if self._screen is not None:
            self._screen.forked()
        self._thread, self._screen, self._is_drawing = None, None, False

    def _way(self) -> Loader | None:
        """What can show something; None where nothing can, or shall."""
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
                with self._lock:  # something began meanwhile, and may have started a thread or not
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
        """Says of waits for runs elsewhere what holds these up: asked there at most once in so many seconds."""
        waits = [a for a in under_way() if a.unit == ELSEWHERE and a.begun + self.after <= now]
        if waits and now - self._asked >= self.ask_after:
            self._asked, why = now, self.why_elsewhere()
            for wait in waits:
                wait.detail = why

    def _draw(self, make: Callable[[], Screen]) -> None:
        with self._lock:
            self._is_drawing = True  # before the look: what ends after it erases
            rows = progress_rows(under_way(), activities.clock(), self.after)
            if not rows or self.quiet or self._ends.is_set():
                self._erase()
                return
            try:
                self._screen = self._screen or make()
                self._screen.draw(rows)
            except (OSError, ValueError):  # the terminal is gone
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
    """Shows no progress in this process from now on; `pw.quiet(False)` shows it again.

    Without, what takes more than a second says so in terminals and notebooks, and nowhere else. PATHWAYS_QUIET=1 in
    the environment turns it off from the start.
    """
    PROGRESS.quiet = on


PROGRESS = ProgressDisplay()


def show_progress(why_elsewhere: Callable[[], str]) -> None:
    """Has the activities of this process shown where they take their time.

    `why_elsewhere` says what holds up its runs in other processes.
    """
    PROGRESS.why_elsewhere = why_elsewhere
    uninterrupted(Activity.__enter__)  # what Ctrl-C left behind would be shown for ever
    uninterrupted(Activity.__exit__)
    activities.follow(PROGRESS)
    atexit.register(PROGRESS.close)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=PROGRESS.forked)
