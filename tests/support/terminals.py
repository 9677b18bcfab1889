"""Runs programs in a pseudo-terminal, and reads its screen with pyte."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

import pyte

from support.clusters import PATIENCE
from support.forked_python import processes_from_nothing
from support.processes import ROOT

_SWITCH = re.compile(rb"\x1b\[\?1049([hl])")
"""Switches to the alternate screen (h), and back (l)."""
ROWS, COLUMNS = 100, 100


class Terminal:
    """A process whose standard streams are a terminal, and the screen of the terminal."""

    def __init__(self, process: "subprocess.Popen[bytes]", terminal: int) -> None:
        self.process = process
        self.screen = pyte.Screen(COLUMNS, ROWS)
        """The visible screen: the main screen, or the alternate screen while a program uses it."""
        self.raw = b""
        """All bytes written to the terminal so far."""
        self._stays, self._fed = self.screen, 0
        self._stream = pyte.ByteStream(self.screen)
        self._terminal = terminal

    def lines(self) -> list[str]:
        """Returns the lines on the screen, without empty lines at the end."""
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip().splitlines()

    def shows(self, text: str) -> bool:
        return any(text in line for line in self.lines())

    def wait_for(self, text: str) -> None:
        """Reads until the screen shows a text."""
        self.wait_until(lambda: self.shows(text), text)

    def wait_until(self, true: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + PATIENCE
        while not true():
            assert self._read(end), f"{what} was never shown:\n" + "\n".join(self.lines())

    def end(self) -> list[str]:
        """Reads until the process has exited; returns the lines that remain on the screen."""
        end = time.monotonic() + PATIENCE
        while self._read(end):
            assert time.monotonic() < end, "\n".join(self.lines())
        self._stream.feed(self.raw[self._fed :])
        self.process.wait(PATIENCE)
        return self.lines()

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def interrupt(self) -> None:
        """Sends the process the signal that Ctrl-C causes, without the terminal's echo."""
        self.process.send_signal(signal.SIGINT)

    def _read(self, end: float) -> bool:
        """Reads the available bytes, or waits for some; returns False at the end of the stream or the timeout."""
        ready, _, _ = select.select([self._terminal], [], [], max(0.0, end - time.monotonic()))
        try:
            data = os.read(self._terminal, 1 << 16) if ready else b""
        except OSError:  # the other side is closed
            data = b""
        self.raw += data
        self._feed()
        return bool(data)

    def _feed(self) -> None:
        """Feeds new bytes to the main or the alternate screen, because pyte has no alternate screen."""
        while switch := _SWITCH.search(self.raw, self._fed):
            self._stream.feed(self.raw[self._fed : switch.start()])
            self.screen = pyte.Screen(COLUMNS, ROWS) if switch[1] == b"h" else self._stays
            self._stream = pyte.ByteStream(self.screen)
            self._fed = switch.end()
        split = self.raw.rfind(b"\x1b", max(self._fed, len(self.raw) - 8))  # an escape sequence that may be incomplete
        whole = len(self.raw) if split < 0 else split
        self._stream.feed(self.raw[self._fed : whole])
        self._fed = whole


@contextmanager
def terminal(
    *arguments: str, piped: bool = False, environment: Mapping[str, str] = MappingProxyType({})
) -> Generator[Terminal]:
    """Runs Python in a terminal, and kills it at the end of the block. `piped`: its standard output is discarded."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    attributes = termios.tcgetattr(theirs)
    attributes[3] &= ~termios.ECHO
    termios.tcsetattr(theirs, termios.TCSANOW, attributes)
    path = os.pathsep.join((str(ROOT), str(ROOT / "tests")))
    env = os.environ | {"PYTHONPATH": path, "TERM": "xterm-256color", "PYTHONUTF8": "1", **environment}
    env.pop("COLUMNS", None)
    out = subprocess.DEVNULL if piped else theirs
    with (
        processes_from_nothing(),  # no fork: the output depends on the terminal that modules find at their import
        subprocess.Popen(
            [sys.executable, *arguments], stdin=theirs, stdout=out, stderr=theirs, env=env, start_new_session=True
        ) as process,
    ):
        os.close(theirs)
        try:
            yield Terminal(process, ours)
        finally:
            process.kill()
            os.close(ours)
