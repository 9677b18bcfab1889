"""Guards standard output and standard error of `pwc`. A command completes its work even if the reader of its output has
exited, or the disk is full. `main.py` calls it around each command.

Output that cannot be written is dropped, and the command continues: the plan is saved, and the exit code is that of the
work. A reader that closed its end (`| head -1`) is not an error. A full disk is an error, reported once at the end.
"""

import contextlib
import io
import select
import sys
from collections.abc import Generator
from dataclasses import dataclass
from typing import TextIO


class _Sink(io.RawIOBase):
    """A file descriptor whose writes never fail. `refusal` is the first reason why output was dropped."""

    def __init__(self, descriptor: int) -> None:
        self._file = io.FileIO(descriptor, "w", closefd=False)
        self.refusal: OSError | None = None

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._file.fileno()

    def isatty(self) -> bool:
        return self._file.isatty()

    def write(self, data: object, /) -> int:
        view = memoryview(data)  # pyright: ignore[reportArgumentType]
        try:
            while self.refusal is None:
                written = self._file.write(view)
                if written is not None:
                    return written
                select.select([], [self._file], [])  # a non-blocking pipe that is full now
        except OSError as error:
            self.refusal = error
        return view.nbytes


@dataclass(frozen=True)
class Output:
    """The state of standard output: whether any of it was dropped."""

    stream: TextIO | None
    sink: _Sink | None

    def lost(self) -> OSError | None:
        """Returns the reason why output was dropped. None if all of it arrived, or if the reader has closed its end."""
        if self.stream is not None:
            self.stream.flush()
        refusal = None if self.sink is None else self.sink.refusal
        return None if isinstance(refusal, BrokenPipeError) else refusal


@contextlib.contextmanager
def guarded_output() -> Generator[Output]:
    """Keeps prints from raising during a block."""
    before = sys.stdout, sys.stderr
    with contextlib.ExitStack() as restoring:
        (out, sink), (err, _) = map(_guarded, before)
        restoring.callback(_set, *before)
        for stream in (out, err):
            if stream is not None:
                restoring.callback(stream.flush)
        _set(out, err)
        yield Output(out, sink)


def _set(out: TextIO | None, err: TextIO | None) -> None:
    sys.stdout, sys.stderr = out, err  # pyright: ignore[reportAttributeAccessIssue]


def _guarded(stream: TextIO | None) -> tuple[TextIO | None, _Sink | None]:
    """Wraps a stream in a sink. A stream without a file descriptor, as in tests and notebooks, stays as it is."""
    if stream is None:  # closed from the start
        return None, None
    try:
        sink = _Sink(stream.fileno())
    except (OSError, ValueError):  # io.UnsupportedOperation is both
        return stream, None
    by_line = stream is sys.stderr or stream.isatty()
    return io.TextIOWrapper(io.BufferedWriter(sink), stream.encoding, stream.errors, line_buffering=by_line), sink
