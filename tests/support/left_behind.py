"""Finds what a run of the tests leaves behind: processes, shared memory, temporary files, threads, descriptors.

Each process of a run carries the number of the run in its environment: the check finds it after its parent changed.
"""

import contextlib
import gc
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

RUN = "PATHWAYS_TEST_RUN"
"""The environment variable with the number of a run: that of the process that began it."""
ENDING_S = 20.0
"""Seconds that processes and threads may take to end after the last test."""
_UNTIL_THE_END = frozenset({"pathways-memory", "pathways-watchdog"})
"""Threads that a process with devices has until it ends."""
_PREFIXES = ("pathways", "pwc", "ray")
"""Prefixes of the temporary files of this project. Folders of other runs, `pwt...`, are not among them."""
_HAS_PROC = os.path.isdir("/proc/self/fd")


@dataclass(frozen=True)
class Machine:
    """Shared memory, temporary files of this project, and processes of a run, at one moment."""

    shared_memory: frozenset[str]
    temporary: frozenset[str]
    processes: frozenset[str]

    @classmethod
    def now(cls) -> "Machine":
        folder = Path(os.environ.get("PYTEST_DEBUG_TEMPROOT") or tempfile.gettempdir())
        prefixes = (*_PREFIXES, prefix_of_fork_servers())
        temporary = frozenset(p.name for p in folder.iterdir() if p.name.startswith(prefixes))
        shared = Path("/dev/shm")
        names = frozenset(p.name for p in shared.iterdir()) if shared.is_dir() else frozenset[str]()
        return cls(names, temporary, frozenset(_processes_of_run()))

    def left_since(self, before: "Machine") -> list[str]:
        """Names what is there now and was not before."""
        kinds = (
            ("shared memory", self.shared_memory - before.shared_memory),
            ("temporary file", self.temporary - before.temporary),
            ("process", self.processes - before.processes),
        )
        return sorted(f"{kind}: {name}" for kind, names in kinds for name in names)


@dataclass(frozen=True)
class Inside:
    """Threads of Python and open descriptors of this process, by kind."""

    threads: tuple[str, ...]
    descriptors: tuple[str, ...]

    @classmethod
    def now(cls) -> "Inside":
        threads = sorted(t.name for t in threading.enumerate() if not _stays(t))
        return cls(tuple(threads), tuple(sorted(_descriptors())))

    def left_since(self, before: "Inside") -> list[str]:
        """Names the threads and descriptors that this process has now and had not before."""
        found = [
            *(f"thread: {name}" for name in _more(self.threads, before.threads)),
            *(f"descriptor: {name}" for name in _more(self.descriptors, before.descriptors)),
        ]
        return _more(found, _expected)


@dataclass(frozen=True)
class TemporaryFolder:
    """A folder for the temporary files of this process and of those that it starts, removed at its end."""

    path: Path
    outer: str

    @classmethod
    def begin(cls) -> "TemporaryFolder":
        """Makes the folder. pytest keeps the folders of its tests where it had them; paths of sockets must be short."""
        outer = os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
        path = Path(tempfile.mkdtemp(prefix="pwt", dir=outer))
        os.environ["TMPDIR"] = tempfile.tempdir = str(path)
        return cls(path, outer)

    def end(self) -> None:
        """Removes the folder."""
        os.environ["TMPDIR"] = tempfile.tempdir = self.outer
        shutil.rmtree(self.path, ignore_errors=True)

    def left(self) -> list[str]:
        """Lists the files in the folder, except the dumps that `pwc` saves for its user when a pass fails."""
        names = sorted(p.name for p in self.path.iterdir() if not p.name.startswith("pwc-"))
        return [f"temporary file: {name}" for name in names]


_expected: list[str] = []


@contextlib.contextmanager
def kept_by_a_library() -> Generator[None]:
    """Threads and descriptors that are left by this block are expected: a library that it uses never ends them."""
    before = Inside.now()
    yield
    expect(Inside.now().left_since(before))


def prefix_of_fork_servers() -> str:
    """Returns the prefix of this run's folders of fork servers. Parallel runs have other prefixes."""
    return f"pwfork{os.environ.get(RUN, '')}-"


def expect(lines: Sequence[str]) -> None:
    """Expects these threads and descriptors at the end, as `Inside.left_since` names them."""
    _expected.extend(lines)


def settled(look: Callable[[], list[str]]) -> list[str]:
    """What is still left after a while: threads and processes that are ending may take some time."""
    until = time.monotonic() + ENDING_S
    gc.collect()
    while (found := look()) and time.monotonic() < until:
        threading.Event().wait(0.1)
    return found


def _stays(thread: threading.Thread) -> bool:
    """Whether a thread has a reason to be there until its process ends: threads of XLA that ran a callback, too."""
    return thread.name in _UNTIL_THE_END or thread.name.startswith("Dummy-")


def _more(now: Sequence[str], before: Sequence[str]) -> list[str]:
    left = list(now)
    for name in before:
        if name in left:
            left.remove(name)
    return left


def _descriptors() -> list[str]:
    """Sockets, pipes and files that are open, without their numbers."""
    found: list[str] = []
    for number in os.listdir("/proc/self/fd") if _HAS_PROC else ():
        try:
            name = os.readlink(f"/proc/self/fd/{number}")
        except OSError:  # the one that lists them
            continue
        if "site-packages" not in name:  # fonts, which matplotlib keeps open
            found.append(name.partition(":")[0] if name.startswith(("socket:", "pipe:")) else name)
    return found


def _processes_of_run() -> list[str]:
    """The processes that carry the number of this run, but for those that run the tests."""
    wanted = f"{RUN}={os.environ.get(RUN, '')}".encode()
    own = {os.getpid(), os.getppid()}
    found: list[str] = []
    for entry in filter(str.isdigit, os.listdir("/proc") if _HAS_PROC else ()):
        folder = Path("/proc") / entry
        try:
            if int(entry) not in own and wanted in (folder / "environ").read_bytes().split(b"\0"):
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if command:
                    found.append(f"{entry} {command[:100].strip()}")
        except OSError:  # it has ended meanwhile, or is another user's
            continue
    return found
