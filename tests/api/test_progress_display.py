"""Tests the progress rows that a terminal shows during slow calls, and that it erases them; pipes receive none."""

import io
import re
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from support.clusters import PATIENCE
from support.processes import ROOT, run_python
from support.shared import shared_cluster
from support.terminals import Terminal, terminal

import pathways as pw
from pathways.api import progress_display
from pathways.api.notebook_line import NotebookLine
from pathways.api.progress_display import ProgressDisplay, in_notebook
from pathways.api.progress_rows import ProgressRow, one_line
from pathways.api.terminal_lines import TerminalLines
from pathways.dialect import activities
from pathways.dialect.activities import Activity

PROGRAM = ("-m", "support.slow_program")
SOURCE = str(ROOT / "tests" / "support" / "slow_program.py")
PWC = ("-c", "import support.slow_program; from pathways.cli.main import main; main()")
"""`pwc` that shows progress rows without delay."""
CONTROL_SEQUENCE = b"\x1b["
"""Start of every sequence that moves the cursor or erases text."""
NOTE = "note: no tpu devices here; cpu devices are used in their place"


@contextmanager
def run_slow_program(where: str, *arguments: str, **environment: str) -> Generator[Terminal]:
    """Runs a program in a terminal that waits at a given step until a line is typed."""
    with terminal(*(arguments or PROGRAM), environment=environment | {"PATHWAYS_TEST_WHERE": where}) as shown:
        yield shown


@pytest.mark.long("more things that a script waits for", keep=("memory-rows4",))
@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ("trace", ["preparing step", "  tracing step"]),
        ("merge", ["preparing step", "  compiling step", "5 of 8 passes", "merge-calls", "merging", "0 of 2 calls"]),
        ("xla", ["preparing step", "  loading step", "    compiling with XLA", "0 of 1 executables", "lambda"]),
        ("turn", ["step waits in the queue", "after 1 run of trainer"]),
        ("memory", ["step waits in the queue", "lacks 4.0 KiB on island0; holder#1 holds 8.0 KiB"]),
    ],
)
def test_a_script_shows_rows_for_its_waits_and_erases_them(where: str, rows: list[str]) -> None:
    with run_slow_program(where) as shown:
        shown.wait_until(lambda: all(map(shown.shows, rows)), f"one of {rows}")
        shown.type("\n")
        left = shown.end()
    assert shown.process.returncode == 0
    assert left == [NOTE, "result [3.]"]
    assert b"\x1b[?25l" not in shown.raw, "the cursor is never hidden: nothing has to bring it back"


def test_starting_hosts_are_counted() -> None:
    with run_slow_program("hosts") as shown:
        shown.wait_for("0 of 2 hosts")
        shown.type("\n")
        shown.wait_for("1 of 2 hosts")
        shown.type("\n")
        assert shown.end() == ["hosts are there"]


@pytest.mark.long("a shared cluster is started for it: 4 s")
def test_a_wait_on_a_shared_cluster_names_the_client_that_holds_memory() -> None:
    larger = np.ones((1, 1024), np.float32)
    devices = pw.make_virtual_device_set().add_slice(tpu_devices=1).tpus
    copy = jax.pmap(lambda x: x + 1.0, devices=devices)
    memory = 3 * larger.nbytes  # a run takes two arrays
    with (
        shared_cluster(f"islands=1,devices=1,memory={memory}") as cluster,
        pw.connect(cluster.address, name="holder"),
    ):
        held = [pw.program(lambda x: copy(x))(larger).block_until_ready() for _ in range(2)]
        with run_slow_program("cluster", PATHWAYS_ADDRESS=cluster.address) as shown:
            rows = ("a run waits in the queue", "lacks 4.0 KiB on island0; main of holder 1 holds 8.0 KiB")
            shown.wait_until(lambda: all(map(shown.shows, rows)), f"one of {rows}")
            held.clear()
            left = shown.end()
    assert left == [NOTE, "result 3.0"] and shown.process.returncode == 0


def test_text_printed_meanwhile_appears_above_the_rows_and_stays() -> None:
    with run_slow_program("prints") as shown:
        shown.wait_until(
            lambda: shown.shows("tracing step") and shown.lines()[0] == "one", "a line that is not at its end"
        )
        shown.type("\n")
        shown.wait_until(lambda: shown.lines()[:2] == ["one line", "to stderr"] and len(shown.lines()) == 5, "both")
        assert shown.lines()[4].startswith("  tracing step")
        shown.type("\n")
        assert shown.end() == ["one line", "to stderr", NOTE, "result [3.]"]


def test_ctrl_c_erases_the_rows_and_prints_the_whole_traceback() -> None:
    with run_slow_program("trace") as shown:
        shown.wait_for("tracing step")
        shown.interrupt()
        left = shown.end()
    assert left[0].startswith("Traceback") and left[-1] == "KeyboardInterrupt"
    assert not any("tracing step" in line or "preparing" in line for line in left) and shown.process.returncode in (
        1,
        -2,
        130,
    )


def test_an_error_erases_the_rows_and_is_printed_whole() -> None:
    with run_slow_program("trace", *PWC, "compile", SOURCE) as shown:
        shown.wait_for("tracing step")
        shown.type("fail\n")
        left = shown.end()
    assert shown.process.returncode == 1
    assert left[0].startswith("error[PWC0802]") and "it failed as it was told to" in "\n".join(left)
    assert not any("tracing step" in line or "preparing" in line for line in left)


def test_ctrl_c_ends_pwc_without_a_traceback() -> None:
    with run_slow_program("trace", *PWC, "compile", SOURCE) as shown:
        shown.wait_for("tracing step")
        shown.interrupt()
        assert shown.end() == ["", "Aborted!"] and shown.process.returncode == 1


def test_repeated_runs_are_counted() -> None:
    with run_slow_program("run", *PWC, "run", SOURCE, "--repeat", "3") as shown:
        for number in range(3):
            shown.wait_for(f"{number} of 3 runs")
            shown.type("\n")
        left = shown.end()
    assert shown.process.returncode == 0 and "median of 3" in left[-1]
    assert not any("of 3 runs" in line for line in left)


@pytest.mark.long("more ways to say that nothing shall be shown", keep=("group",))
@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        ((*PWC, "--quiet", "compile", SOURCE), {}),
        ((*PWC, "compile", "--quiet", SOURCE), {}),
        ((*PWC, "compile", SOURCE), {"TERM": "dumb"}),
        ((*PWC, "compile", SOURCE), {"PATHWAYS_QUIET": "1"}),
        ((*PWC, "compile", SOURCE), {"PATHWAYS_TEST_CLOCK": "stands"}),
        (PROGRAM, {"TERM": "dumb"}),
        (PROGRAM, {"PATHWAYS_TEST_CLOCK": "stands"}),
        (("-c", "import pathways as pw; pw.quiet(); from support.slow_program import main; main()"), {}),
    ],
    ids=["group", "command", "dumb", "environment", "quick", "script-dumb", "script-quick", "python"],
)
def test_no_rows_are_shown_if_progress_is_off_or_calls_are_quick(
    arguments: tuple[str, ...], environment: dict[str, str]
) -> None:
    """The clock of `quick` and `script-quick` stands still, so that their calls take no time."""
    with run_slow_program("", *arguments, **environment) as shown:
        shown.end()
    assert shown.process.returncode == 0, shown.raw
    assert CONTROL_SEQUENCE not in shown.raw and b"preparing" not in shown.raw and b"compiling" not in shown.raw


def test_a_pipe_receives_no_progress_rows() -> None:
    path = str(ROOT / "tests")
    code = "import sys, support.slow_program as p; p.main(); assert 'rich' not in sys.modules"
    done = run_python("-c", code, PYTHONPATH=f"{ROOT}:{path}", TERM="xterm-256color")
    assert done.returncode == 0 and done.stderr.splitlines() == [NOTE] and done.stdout == "result [3.]\n"


def test_rows_are_shown_on_stderr_when_stdout_is_no_terminal() -> None:
    """Checks that the terminal of standard error shows rows and erases them."""
    with terminal(*PROGRAM, piped=True, environment={"PATHWAYS_TEST_WHERE": "trace"}) as shown:
        shown.wait_for("tracing step")
        shown.type("\n")
        assert shown.end() == [NOTE]


class FakeTerminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@contextmanager
def held_by_another_thread(lock: Any) -> Generator[None]:
    """Holds a lock in another thread for the length of a block."""
    held, end = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            end.wait(PATIENCE)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(PATIENCE)
    try:
        yield
    finally:
        end.set()
        thread.join()


class RecordingScreen:
    """A screen that records what is drawn on it."""

    def __init__(self) -> None:
        self.drawn = threading.Event()
        self.closed = threading.Event()
        self.threads: list[threading.Thread] = []
        self.lines: list[str] = []
        self.let_go = False

    def draw(self, rows: list[ProgressRow]) -> None:
        self.threads.append(threading.current_thread())
        self.lines.append(one_line(rows))
        self.drawn.set()

    def close(self) -> None:
        self.closed.set()

    def forked(self) -> None:
        self.let_go = True


@pytest.fixture
def display(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ProgressDisplay, list[RecordingScreen]]]:
    """A separate display that shows activities without delay, and the screens that it creates."""
    made: list[RecordingScreen] = []
    first = RecordingScreen()

    def make() -> RecordingScreen:
        made.append(RecordingScreen() if made else first)
        return made[-1]

    monkeypatch.setattr(progress_display, "_way_to_show", lambda stream: lambda: make)
    shown = ProgressDisplay()
    shown.after, shown.tick = 0.0, 0.001
    before = activities.follow(shown)
    try:
        yield shown, made
    finally:
        shown.close()
        activities.follow(before)


def test_the_screen_is_closed_when_the_activity_ends(display: tuple[ProgressDisplay, list[RecordingScreen]]) -> None:
    _, made = display
    drawn = threading.Event()
    with Activity("waiting"):
        wait_for(lambda: bool(made) and made[0].drawn.is_set(), drawn)
        assert not made[0].closed.is_set()
    assert made[0].closed.is_set() and made[0].lines[0] == "waiting, 0 s"
    with Activity("again", 4, "parts") as again:
        again.done = 1
        wait_for(lambda: len(made) == 2 and made[1].drawn.is_set(), drawn)
    assert made[1].closed.is_set() and "again, 1 of 4 parts, 0 s" in made[1].lines


def test_the_display_thread_ends_when_no_activity_is_left(
    display: tuple[ProgressDisplay, list[RecordingScreen]],
) -> None:
    _, made = display
    with Activity("waiting"):
        wait_for(lambda: bool(made) and made[0].drawn.is_set(), threading.Event())
    thread = made[0].threads[0]
    thread.join(PATIENCE)
    assert thread.name == "pathways-progress" and thread.daemon and not thread.is_alive()


def test_a_closed_or_quiet_display_starts_no_thread(
    display: tuple[ProgressDisplay, list[RecordingScreen]],
) -> None:
    shown, made = display
    shown.quiet = True
    with Activity("quiet"):
        assert not progress_threads()
    shown.quiet = False
    shown.close()
    with Activity("closed"):
        assert not progress_threads()
    assert not made


def test_a_forked_process_shows_nothing(display: tuple[ProgressDisplay, list[RecordingScreen]]) -> None:
    shown, made = display
    with Activity("in the parent"):
        wait_for(lambda: bool(made) and made[0].drawn.is_set(), threading.Event())
        shown.forked()
        assert made[0].let_go and not made[0].closed.is_set(), "what is drawn is the parent's"
    with Activity("in the child"):
        assert len(made) == 1


def test_a_row_too_long_for_the_terminal_has_its_detail_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    out = FakeTerminal()
    lines = TerminalLines(out)
    lines.draw([ProgressRow(0, "a run waits in the queue", "3 of 12", 0.25, "after 2 runs of " + "trainer " * 9, 75)])
    lines.close()
    drawn = re.sub(r"\x1b\[[0-9;]*[mEK]", "", out.getvalue())
    assert "a run waits in the queue" in drawn and "…" in drawn and "75 s" in drawn


def test_a_forked_process_can_print_while_its_parent_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread of the parent may hold the drawing lock during the fork; the child lacks the thread that releases it."""
    out = FakeTerminal()
    monkeypatch.setattr(sys, "stdout", out)
    lines = TerminalLines(out)
    lines.draw([ProgressRow(0, "waiting", "", None, "", 1)])
    assert sys.stdout is not out
    with held_by_another_thread(lines._lock):  # pyright: ignore[reportPrivateUsage]
        lines.forked()
        drawn = out.getvalue()
        print("child")
        assert sys.stdout is out and out.getvalue() == drawn + "child\n"


def test_a_lost_terminal_ends_the_display_thread(
    display: tuple[ProgressDisplay, list[RecordingScreen]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def draw(self: RecordingScreen, rows: list[ProgressRow]) -> None:
        self.threads.append(threading.current_thread())
        self.drawn.set()
        raise OSError("no terminal")

    monkeypatch.setattr(RecordingScreen, "draw", draw)
    _, made = display
    with Activity("waiting"):
        wait_for(lambda: bool(made) and made[0].drawn.is_set(), threading.Event())
        made[0].threads[0].join(PATIENCE)
        assert not made[0].threads[0].is_alive()


def test_a_notebook_shows_one_line_and_clears_it(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[dict[str, str]] = []

    class Handle:
        def update(self, data: dict[str, str], raw: bool) -> None:
            shown[-1] = data

    def show(data: dict[str, str], raw: bool, display_id: bool) -> Handle:
        assert raw and display_id
        shown.append(data)
        return Handle()

    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=show))
    line = NotebookLine()
    line.draw(
        [ProgressRow(0, "preparing step", "", None, "", 2), ProgressRow(1, "merging", "3 of 9 calls", 0.3, "", 1)]
    )
    assert shown == [{"text/plain": "preparing step: merging, 3 of 9 calls, 2 s"}]
    line.draw([ProgressRow(0, "preparing step", "", None, "", 3)])
    assert shown == [{"text/plain": "preparing step, 3 s"}]
    line.close()
    assert shown == [{"text/plain": "", "text/html": ""}]


def test_only_a_notebook_kernel_counts_as_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not in_notebook()

    class ZMQInteractiveShell:
        pass

    for shell, found in ((ZMQInteractiveShell(), True), (object(), False)):
        monkeypatch.setitem(sys.modules, "ipykernel", SimpleNamespace())
        monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda shell=shell: shell))
        assert in_notebook() is found


def progress_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "pathways-progress"]


def wait_for(true: Callable[[], bool], moment: threading.Event) -> None:
    """Polls until a condition is true, for at most PATIENCE seconds."""
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end
        moment.wait(0.001)
