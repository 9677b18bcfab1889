"""Python processes forked from a server that has imported JAX and this project, in place of ones started from nothing.

A process started from nothing spends 1.0 to 1.7 s of CPU on imports; a forked one needs 0.1 s. Each test process has
one server (`fork_server.py`), which has no threads and no devices of its own. `install` replaces `subprocess.Popen`, so
the hosts and controllers that the product starts are forked as well, also by forked processes. A process is started
from nothing if it has other interpreter options, if environment variables that imports read differ, if descriptors are
passed on, if its module is in `FRESH`, and within a block of `processes_from_nothing`.
"""

import contextlib
import json
import os
import select
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support import cores, left_behind

READ_BY_IMPORTS = ("JAX_", "XLA_", "PYTHON", "MALLOC_", "LD_", "TF_", "OMP_", "OPENBLAS_", "COVERAGE_")
"""Prefixes of environment variables that matter before a forked process begins."""
FRESH = frozenset({"pathways.runtime.launch.tied", "pathways.runtime.host.timed.serve"})
"""Modules whose parent must be the process that starts them."""
ADDRESS_VARIABLE = "PATHWAYS_TESTS_FORK_SERVER"
_REAL = subprocess.Popen
_taking_code = threading.Lock()
ROOT = Path(__file__).parents[2]


@dataclass
class State:
    """The server of this process: where it listens, and whether it is used."""

    address: str = ""
    process: "subprocess.Popen[bytes] | None" = None
    paused: int = 0
    environment: dict[str, str] = field(default_factory=dict[str, str])
    """The environment in which the server imported its modules."""
    inherited: int = -1
    """The end of a pipe that keeps a server that was forked from this process."""


state = State(os.environ.get(ADDRESS_VARIABLE, ""))


@dataclass(frozen=True)
class Job:
    """A process to fork: how it runs, and what it finds."""

    kind: str
    """`-c`, `-m`, or empty for a file."""
    target: str
    arguments: list[str]
    options: list[str]
    environment: dict[str, str]
    folder: str
    new_session: bool


def install() -> None:
    """Has `subprocess.Popen` fork Python processes where that is the same as to start them. Linux only."""
    state.environment = dict(os.environ)  # the server starts later, when a test may have changed it
    if sys.platform == "linux":
        subprocess.Popen = ForkedProcess


@contextlib.contextmanager
def processes_from_nothing(when: bool = True) -> Generator[None]:
    """Starts processes of this process from nothing for the length of a block, if `when` is true."""
    state.paused += when
    try:
        yield
    finally:
        state.paused -= when


def server_of_this_process() -> int | None:
    """The number of the process that forks for this one; None where there is none."""
    return None if state.process is None else state.process.pid


def descriptor_of_this_process() -> int | None:
    """Returns the descriptor of the pipe that keeps the server of this process alive; None if there is no server."""
    return None if state.process is None or state.process.stdin is None else state.process.stdin.fileno()


def stop() -> None:
    """Ends the server of this process, which ends by itself where this process does."""
    if state.process is not None and state.process.stdin is not None:
        state.process.stdin.close()
        state.process.wait()
        state.process, state.address = None, ""


def _job_of(args: Any, folder: Any, environment: Any, new_session: bool) -> Job | None:
    """Reads a command line; None where it must be started from nothing."""
    if isinstance(args, str | bytes | os.PathLike) or state.paused:
        return None
    words = [os.fsdecode(word) for word in args]
    if words[0] != sys.executable:
        return None
    found = {os.fsdecode(k): os.fsdecode(v) for k, v in (os.environ if environment is None else environment).items()}
    options: list[str] = []
    at = 1
    while at < len(words) and words[at] in ("-P", "-W"):
        size = 2 if words[at] == "-W" else 1
        options += words[at : at + size]
        at += size
    if at >= len(words) or (options.count("-W") and options[options.index("-W") + 1] != "error"):
        return None
    kind = words[at] if words[at] in ("-c", "-m") else ""
    at += bool(kind)
    if at >= len(words) or words[at].startswith("-") or words[at] in FRESH or not _is_ours(kind, words[at]):
        return None
    where = os.getcwd() if folder is None else os.fsdecode(folder)
    return Job(kind, words[at], words[at + 1 :], options, found, where, bool(new_session))


def _is_ours(kind: str, target: str) -> bool:
    """Whether a process runs what this project or its tests hold."""
    if kind == "-m":
        return target.partition(".")[0] in ("pathways", "support")
    return kind == "-c" or "site-packages" not in os.path.abspath(target)


class ForkedProcess(subprocess.Popen[Any]):
    """A process of `subprocess`, forked from the server where that can be: the server waits for its end, and tells it.

    Each has a connection to the server, on which its number comes, then its exit code.
    """

    _server: socket.socket | None = None

    def _execute_child(self, *given: Any) -> None:
        args, _, preexec, _, pass_fds, folder, environment, _, _, shell, *streams = given[:16]
        p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite = streams
        _, gid, gids, uid, umask, new_session, group = given[16:]
        plain = not (preexec or pass_fds or shell or gid or gids or uid or umask != -1 or group != -1)
        job = _job_of(args, folder, environment, new_session) if plain else None
        server = _asked(job) if job is not None else None
        if job is None or server is None:
            with cores.none_for_children():
                super()._execute_child(*given)  # type: ignore[misc]  # pyright: ignore
            return
        ends = [
            here if there == -1 else there for here, there in zip((0, 1, 2), (p2cread, c2pwrite, errwrite), strict=True)
        ]
        raw = json.dumps(job.__dict__).encode()
        socket.send_fds(server, [struct.pack("!I", len(raw))], ends)
        server.sendall(raw)
        answer = server.recv(4)
        if len(answer) < 4:
            raise OSError("the server of forked processes has ended")
        self.pid = struct.unpack("!I", answer)[0]
        self._server = server
        self._child_created = True
        taken = [(p2cread, p2cwrite), (c2pwrite, c2pread), (errwrite, errread)]
        for end in {theirs for theirs, ours in taken if theirs != -1 and ours != -1}:
            os.close(end)
        null: int | None = getattr(self, "_devnull", None)
        if null is not None:
            os.close(null)
        self._closed_child_pipe_fds = True

    def _internal_poll(self, _deadstate: Any = None, **rest: Any) -> int | None:
        if self._server is None:
            return super()._internal_poll(_deadstate, **rest)  # type: ignore[misc]  # pyright: ignore
        if self.returncode is None and self._server.fileno() >= 0 and select.select([self._server], [], [], 0)[0]:
            self._take_code()
        return self.returncode

    def _wait(self, timeout: float | None) -> int:
        if self._server is None:
            return super()._wait(timeout)  # type: ignore[misc]  # pyright: ignore
        if self.returncode is None:
            if not select.select([self._server], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            self._take_code()
        return int(self.returncode or 0)

    def _take_code(self) -> None:
        with _taking_code:
            if self.returncode is None and self._server is not None:
                answer = self._server.recv(4)
                self._server.close()
                if len(answer) < 4:
                    self.returncode = 255
                    raise ChildProcessError("the server of forked processes has ended, and with it the exit code")
                self.returncode = struct.unpack("!i", answer)[0]


def _asked(job: Job) -> socket.socket | None:
    """Connects to the server, which is started at first use; None where the job needs another environment than its."""
    if not state.address:
        _start()
    for name in {*state.environment, *job.environment}:
        differs = job.environment.get(name) != state.environment.get(name)
        if differs and name.startswith(READ_BY_IMPORTS) and name != "PYTHONPATH":
            return None
    server = socket.socket(socket.AF_UNIX)
    try:
        server.connect(state.address)
    except OSError:
        server.close()
        return None
    return server


def _start() -> None:
    folder = tempfile.mkdtemp(prefix=left_behind.prefix_of_fork_servers())
    state.address = str(Path(folder) / "s")
    paths = os.pathsep.join((str(ROOT), str(ROOT / "tests")))
    environment = state.environment | {"PYTHONPATH": paths, ADDRESS_VARIABLE: state.address}
    command = [sys.executable, "-m", "support.fork_server"]
    with cores.none_for_children():
        state.process = _REAL(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
    assert state.process.stdout is not None
    assert state.process.stdout.readline() == b"ready\n", "the server of forked processes did not start"
    state.process.stdout.close()
