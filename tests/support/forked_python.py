"""Python processes forked from a server that has imported JAX and this project, in place of ones started from nothing.

A process started from nothing spends 1.0 to 1.7 s of CPU on imports; a forked one needs 0.1 s. Each test process has
one server, which has no threads and no devices of its own. `install` replaces `subprocess.Popen`, so the hosts and
controllers that the product starts are forked as well, also by forked processes. A process is started from nothing if
it has other interpreter options, if environment variables that imports read differ, if descriptors are passed on, if
its module is in `FRESH`, and within a block of `processes_from_nothing`.
"""

import atexit
import contextlib
import gc
import importlib
import importlib.util
import io
import json
import os
import select
import selectors
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import traceback
import types
import warnings
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from support import cores

PRELOADED = (
    "jax",
    "numpy",
    "pathways",
    "pathways.api.testing",
    "pathways.cli.compile",
    "pathways.cli.inspect",
    "pathways.cli.run",
    "pathways.runtime.control.serve",
    "pathways.runtime.host.serve",
    "pathways.runtime.launch.group_service",
)
READ_BY_IMPORTS = ("JAX_", "XLA_", "PYTHON", "MALLOC_", "LD_", "TF_", "OMP_", "OPENBLAS_", "COVERAGE_")
"""Prefixes of environment variables that matter before a forked process begins."""
FRESH = frozenset({"pathways.runtime.launch.tied"})
"""Modules whose parent must be the process that starts them."""
ADDRESS_VARIABLE = "PATHWAYS_TESTS_FORK_SERVER"
_REAL = subprocess.Popen
_taking_code = threading.Lock()
_ROOT = Path(__file__).parents[2]


@dataclass
class _State:
    """The server of this process: where it listens, and whether it is used."""

    address: str = ""
    process: "subprocess.Popen[bytes] | None" = None
    paused: int = 0
    environment: dict[str, str] = field(default_factory=dict[str, str])
    """The environment in which the server imported its modules."""
    inherited: int = -1
    """The end of a pipe that keeps a server that was forked from this process."""


_state = _State(os.environ.get(ADDRESS_VARIABLE, ""))


@dataclass(frozen=True)
class _Job:
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
    _state.environment = dict(os.environ)  # the server starts later, when a test may have changed it
    if sys.platform == "linux":
        subprocess.Popen = ForkedProcess


@contextlib.contextmanager
def processes_from_nothing(when: bool = True) -> Generator[None]:
    """Starts processes of this process from nothing for the length of a block, if `when` is true."""
    _state.paused += when
    try:
        yield
    finally:
        _state.paused -= when


def server_of_this_process() -> int | None:
    """The number of the process that forks for this one; None where there is none."""
    return None if _state.process is None else _state.process.pid


def stop() -> None:
    """Ends the server of this process, which ends by itself where this process does."""
    if _state.process is not None and _state.process.stdin is not None:
        _state.process.stdin.close()
        _state.process.wait()
        _state.process, _state.address = None, ""


def _job_of(args: Any, folder: Any, environment: Any, new_session: bool) -> _Job | None:
    """Reads a command line; None where it must be started from nothing."""
    if isinstance(args, str | bytes | os.PathLike) or _state.paused:
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
    return _Job(kind, words[at], words[at + 1 :], options, found, where, bool(new_session))


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


def _asked(job: _Job) -> socket.socket | None:
    """Connects to the server, which is started at first use; None where the job needs another environment than its."""
    if not _state.address:
        _start()
    for name in {*_state.environment, *job.environment}:
        differs = job.environment.get(name) != _state.environment.get(name)
        if differs and name.startswith(READ_BY_IMPORTS) and name != "PYTHONPATH":
            return None
    server = socket.socket(socket.AF_UNIX)
    try:
        server.connect(_state.address)
    except OSError:
        server.close()
        return None
    return server


def _start() -> None:
    folder = tempfile.mkdtemp(prefix="pwfork")
    _state.address = str(Path(folder) / "s")
    paths = os.pathsep.join((str(_ROOT), str(_ROOT / "tests")))
    environment = _state.environment | {"PYTHONPATH": paths, ADDRESS_VARIABLE: _state.address}
    command = [sys.executable, "-m", "support.forked_python"]
    with cores.none_for_children():
        _state.process = _REAL(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
    assert _state.process.stdout is not None
    assert _state.process.stdout.readline() == b"ready\n", "the server of forked processes did not start"
    _state.process.stdout.close()


def serve_from_a_fork() -> None:
    """Forks the server from this process, with all that it has imported and changed, in place of starting one."""
    _state.address = str(Path(tempfile.mkdtemp(prefix="pwfork")) / "s")
    told, tell = os.pipe()
    ready, say_ready = os.pipe()
    if os.fork():
        os.close(told)
        os.close(say_ready)
        os.read(ready, 1)
        os.close(ready)
        _state.inherited = tell  # its end, with this process, ends the server
        return
    os.close(tell)
    os.close(ready)
    os.dup2(told, 0)
    code = 1
    try:
        job = serve(lambda: os.write(say_ready, b"r"))
        become(job)
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            _finish()
        os._exit(code)


def _finish() -> None:
    """Does what the interpreter does at its end."""
    vars(threading)["_shutdown"]()
    vars(atexit)["_run_exitfuncs"]()
    sys.stdout.flush()
    sys.stderr.flush()


def serve(say_ready: Callable[[], object] = lambda: print("ready", flush=True)) -> _Job:
    """Forks a process for each connection until standard input ends; returns only within a forked process."""
    _state.environment = dict(os.environ)
    for name in PRELOADED:
        importlib.import_module(name)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(_state.address)
    listener.listen(64)
    gc.collect()
    gc.freeze()
    say_ready()
    waiting = selectors.DefaultSelector()
    waiting.register(listener, selectors.EVENT_READ, None)
    waiting.register(0, selectors.EVENT_READ, None)
    while True:
        for key, _ in waiting.select():
            if key.fileobj is listener:
                connection, _ = listener.accept()
                job = _forked(connection, waiting, listener)
                if job is not None:
                    return job
            elif key.fileobj == 0:
                _end()
            else:
                _tell(waiting, key)


def _end() -> NoReturn:
    with contextlib.suppress(OSError):
        os.unlink(_state.address)
        os.rmdir(Path(_state.address).parent)
    os._exit(0)


def _forked(connection: socket.socket, waiting: selectors.BaseSelector, listener: socket.socket) -> _Job | None:
    """Forks one process; returns what to do in it, None in the server."""
    head, ends, _, _ = socket.recv_fds(connection, 4, 3)
    if len(head) < 4:
        connection.close()
        return None
    raw = b""
    while len(raw) < struct.unpack("!I", head)[0]:
        more = connection.recv(1 << 20)
        if not more:  # the process that asked has ended
            connection.close()
            return None
        raw += more
    pid = os.fork()
    if pid == 0:
        sockets = [listener, connection, *(key.data[1] for key in waiting.get_map().values() if key.data)]
        waiting.close()  # now: its descriptor would be another's when the garbage collector closes it
        _take_over(ends, sockets)
        return _Job(**json.loads(raw))
    for end in ends:
        os.close(end)
    connection.sendall(struct.pack("!I", pid))
    waiting.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, connection))
    return None


def _tell(waiting: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
    """Tells who has started a process that it has ended, and how."""
    pid, connection = key.data
    _, status = os.waitpid(pid, 0)
    waiting.unregister(key.fileobj)
    os.close(key.fd)
    with contextlib.suppress(OSError):  # who started it has ended
        connection.sendall(struct.pack("!i", os.waitstatus_to_exitcode(status)))
    connection.close()


def _take_over(ends: Sequence[int], sockets: Sequence[socket.socket]) -> None:
    """Leaves a forked process its three standard streams alone."""
    for one in sockets:
        one.detach()
    kept = [os.dup(end) if end < 3 else end for end in ends]
    for number, end in enumerate(kept):
        os.dup2(end, number)
    os.closerange(3, 1 << 16)


def become(job: _Job) -> None:
    """Runs a job as the main module of this process, as the interpreter would."""
    if job.new_session:
        os.setsid()
    os.chdir(job.folder)
    for name in set(os.environ) - set(job.environment):
        del os.environ[name]
    os.environ.update(job.environment)
    os.environ[ADDRESS_VARIABLE] = _state.address
    _open_streams()
    if "-W" in job.options:
        sys.warnoptions[:] = ["error"]
        warnings.simplefilter("error")
    given = [p for p in job.environment.get("PYTHONPATH", "").split(os.pathsep) if p]
    first = (
        [] if "-P" in job.options else [os.getcwd() if job.kind == "-m" else "" if job.kind else _folder_of(job.target)]
    )
    base = [p for p in sys.path if p not in (str(_ROOT), str(_ROOT / "tests"), "", os.getcwd())]
    sys.path[:] = [*first, *(p for p in given if p not in base), *base]
    sys.argv[:] = [job.kind or job.target, *job.arguments]
    subprocess.Popen = ForkedProcess
    _name_lines_measured()
    main = types.ModuleType("__main__")  # stays until the process ends, as the interpreter's own does
    sys.modules["__main__"] = main
    exec(_code_of(job, main), main.__dict__)


def _name_lines_measured() -> None:
    """Notes the test that has started this process with the lines that it runs, if lines are measured."""
    coverage = sys.modules.get("coverage")
    measured: Any = None if coverage is None else coverage.Coverage.current()
    if measured is not None:
        measured.switch_context(f"process of {os.environ.get('PYTEST_CURRENT_TEST', '').rpartition(' ')[0]}")


def _code_of(job: _Job, main: types.ModuleType) -> types.CodeType:
    """Compiles what a job runs, and gives its main module the attributes that it has in a real start."""
    if job.kind == "-c":
        return compile(job.target, "<string>", "exec")
    if job.kind == "":
        main.__file__ = job.target
        return compile(Path(job.target).read_bytes(), job.target, "exec")
    sys.modules.pop(job.target, None)
    spec = importlib.util.find_spec(job.target)
    loader: Any = None if spec is None else spec.loader
    if spec is None or loader is None:
        raise ImportError(f"No module named {job.target}")
    if spec.submodule_search_locations is not None:
        raise ImportError(f"{job.target} is a package")
    main.__spec__, main.__package__, main.__file__ = spec, spec.parent, spec.origin
    sys.argv[0] = str(spec.origin)
    return loader.get_code(job.target)


def _folder_of(path: str) -> str:
    return str(Path(path).resolve().parent)


def _open_streams() -> None:
    """Opens the standard streams as the interpreter does."""
    stdin: Any = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, "r", closefd=False)), "utf-8")
    sys.stdin = sys.__stdin__ = stdin
    for number, name in ((1, "stdout"), (2, "stderr")):
        raw = io.BufferedWriter(io.FileIO(number, "w", closefd=False))
        errors = "strict" if number == 1 else "backslashreplace"
        lines = number == 2 or os.isatty(number)
        stream = io.TextIOWrapper(raw, "utf-8", errors, newline="\n", line_buffering=lines)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


if __name__ == "__main__":
    this = importlib.import_module("support.forked_python")
    this.become(this.serve())
