"""Implements `pwc top`, and `pwc status --watch` in a terminal: a live view of a running cluster, like `top` for
processes. It polls the cluster's controller and redraws the screen.
"""

import contextlib
import dataclasses
import os
import select
import sys
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import click

from pathways.api.progress_display import can_be_drawn_on
from pathways.cli.errors import NoTerminal
from pathways.cli.json_output import json_option, print_json
from pathways.cli.top_figures import Status, TopFigures, top_figures
from pathways.dialect.diagnostics import PathwaysError
from pathways.runtime.launch.reach import ask, chosen_address, chosen_keys

INTERVAL = 1.0
"""Default interval between two polls of the cluster."""
_ENDS = ("q", "Q")
_DEFAULT_COLUMNS = 160
"""Width of a frame in columns if there is no terminal."""
_EXAMPLE = """
\b
Examples:
  pwc top                       # until q
  pwc top --once | head -1      # one frame, without a terminal
  pwc top --json --interval 10  # a line of JSON every ten seconds
"""


@click.command("top", epilog=_EXAMPLE)
@click.option("--once", is_flag=True, help="Print one frame, after one interval; also without a terminal.")
@json_option
@click.option("--interval", type=click.FloatRange(min=0, min_open=True), default=INTERVAL, show_default=True,
              metavar="SECONDS", help="Interval between two polls.")  # fmt: skip
def top_(once: bool, as_json: bool, interval: float, address: str | None, keys: Path | None) -> None:
    """Show a running cluster, live: islands, queues, clients and their shares, bytes, runs per second.

    `share` is a client's share by weight among the clients that have work now. `time` is its share of the time that
    all clients have used since the previous poll.
    """
    chosen, known = chosen_address(address), chosen_keys(keys)

    def poll_status() -> Status:
        return ask(chosen, "status", known)

    if not once and not as_json:
        show_live(poll_status, chosen, interval)
        return
    for figures in polled_figures(poll_status, lambda: time.sleep(interval)):
        if as_json:
            print_json(dataclasses.asdict(figures))
        else:
            click.echo(_as_text(figures, chosen))
        if once:
            return


def polled_figures(poll_status: Callable[[], Status], pause: Callable[[], object]) -> Iterator[TopFigures]:
    """Yields figures forever, with the rates since the previous poll. The first comes after one pause."""
    before = poll_status()
    while True:
        pause()
        now = poll_status()
        yield top_figures(now, before)
        before = now


def _as_text(figures: TopFigures, address: str) -> str:
    """Formats one frame as plain text."""
    from rich.console import Console  # imported here because it slows down command parsing

    from pathways.cli.top_screen import screen_of

    console = Console(width=_DEFAULT_COLUMNS, no_color=True, highlight=False, markup=False, emoji=False)
    with console.capture() as captured:
        console.print(screen_of(figures, address, keys=False))
    return captured.get().rstrip()


def shows_live() -> bool:
    """Returns whether standard output is a terminal that can be drawn on."""
    return sys.stdout is not None and can_be_drawn_on(sys.stdout)


def show_live(poll_status: Callable[[], Status], address: str, interval: float = INTERVAL) -> None:
    """Draws frames until q or Ctrl-C, and then restores the screen. Raises PWC0713 without a terminal."""
    if not shows_live():
        raise PathwaysError(NoTerminal(have_=_describe_terminal()))
    from rich.console import Console
    from rich.live import Live

    from pathways.cli.top_screen import screen_of

    console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
    now = poll_status()  # before the alternate screen opens, so that an error stays visible
    with contextlib.suppress(KeyboardInterrupt), _keys() as pressed:
        first = screen_of(top_figures(now), address, keys=True)
        with Live(first, console=console, screen=True, auto_refresh=False, **_UNTOUCHED) as live:
            live.refresh()
            while pressed(interval) not in _ENDS:
                before, now = now, poll_status()
                live.update(screen_of(top_figures(now, before), address, keys=True), refresh=True)


_UNTOUCHED: dict[str, Any] = {"redirect_stdout": False, "redirect_stderr": False}


def _describe_terminal() -> str:
    if sys.stdout is None or not sys.stdout.isatty():
        return "standard output, which is a file or a pipe"
    return f"TERM={os.environ.get('TERM', '')}"


@contextlib.contextmanager
def _keys() -> Generator[Callable[[float], str]]:
    """Yields a function that waits for a key, at most a number of seconds. Keys are not echoed meanwhile."""
    import termios  # imported here: Windows has neither module
    import tty

    try:
        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
    except (AttributeError, OSError, ValueError, termios.error):  # stdin is a file or closed

        def wait(seconds: float) -> str:
            time.sleep(seconds)
            return ""

        yield wait
        return

    def pressed(seconds: float) -> str:
        ready, _, _ = select.select([descriptor], [], [], seconds)
        return os.read(descriptor, 1).decode(errors="replace") if ready else ""

    tty.setcbreak(descriptor)
    try:
        yield pressed
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
