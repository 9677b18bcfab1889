"""Standard output and error of `pwc`: a command does its work also where its reader is gone or the disk is full.

Output that cannot be written is dropped, and the command goes on to its end: the plan is saved, the exit code is that
of the work. A reader that closed its end (`| head -1`) is no error; a full disk is one, once, at the end.
"""

import contextlib
import io
import select
import sys
from collections.abc import Generator
from dataclasses import dataclass
from typing import TextIO


class _Sink(io.RawIOBase):
    """A file descriptor whose writes never fail; `refusal` is the first reason why output was dropped."""

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
                select.select([], [self._file], [])  # a pipe that does not block, and is full for now
        except OSError as error:
            self.refusal = error
        return view.nbytes


@dataclass(frozen=True)
class Output:
    """The fate of standard output: whether any of it was dropped."""

    stream: TextIO | None
    sink: _Sink | None

    def lost(self) -> OSError | None:
        """The reason why output was dropped; None where all arrived, or the reader has closed its end."""
        if self.stream is not None:
            self.stream.flush()
        refusal = None if self.sink is None else self.sink.refusal
        return None if isinstance(refusal, BrokenPipeError) else refusal


@contextlib.contextmanager
def guarded_output() -> Generator[Output]:
    """Keeps prints from raising for the length of a block."""
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
    """Makes the same stream over a sink; a stream without a file descriptor (a test's, a notebook's) stays as it is."""
    if stream is None:  # closed from the start
        return None, None
    try:
        sink = _Sink(stream.fileno())
    except (OSError, ValueError):  # io.UnsupportedOperation is both
        return stream, None
    by_line = stream is sys.stderr or stream.isatty()
    return io.TextIOWrapper(io.BufferedWriter(sink), stream.encoding, stream.errors, line_buffering=by_line), sink
