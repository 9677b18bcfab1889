"""Writes files atomically: after a full disk or a killed process, the old file is still complete. All layers write
their files through this module.

A file is written in the same folder under an unpredictable name, and renamed after all its bytes are on the disk. A
path that is not a regular file (a terminal, a pipe, /dev/stdout) is written to directly.
"""

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import BinaryIO

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.errors import CannotWrite

_NEW = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW
_OPEN_STREAMS = ("/proc/", "/dev/fd/")
"""Folders with links to the open files of a process: `/dev/stdout` links to `/proc/self/fd/1`."""


@contextlib.contextmanager
def writing(path: str | Path) -> Generator[None]:
    """Converts an OSError inside the `with` block to PWC0606."""
    try:
        yield
    except OSError as error:
        raise cannot_write(path, error) from None


_NEEDS = {
    errno.ENOSPC: ("free disk space", "free some space there, or choose another disk"),
    errno.EDQUOT: ("free space in the user's quota", "free some space there, or choose another disk"),
    errno.EFBIG: ("a file smaller than the limit", "raise ulimit -f, or choose another disk"),
    errno.EACCES: ("a path that this user may write", "choose another path, or change its permissions"),
    errno.EPERM: ("a path that this user may write", "choose another path, or change its permissions"),
    errno.EROFS: ("a file system that can be written", "choose another path"),
    errno.ENAMETOOLONG: ("a shorter name", "choose another path"),
    errno.EMFILE: ("fewer open files than the limit", "raise ulimit -n, or close files"),
}
"""The requirement and the advice, by error number. Other failures mean that the folder does not exist."""


def cannot_write(path: str | Path, error: OSError) -> PathwaysError:
    """Makes PWC0606 for a failed write, with advice that matches the error."""
    problem = error.strerror or str(error)
    if error.errno not in _NEEDS:
        return PathwaysError(CannotWrite(path=str(path), problem=problem))
    rule, advice = _NEEDS[error.errno]
    return PathwaysError(CannotWrite(path=str(path), problem=problem, rule=rule, advice=advice))


def write_whole(path: str | Path, content: bytes | str, *, mode: int = 0o666) -> int:
    """Creates or replaces a file, and returns its size. Raises PWC0606 and keeps the old file if that fails.

    If the path is a symbolic link, the target is replaced and the link stays. An existing file keeps its mode. A new
    file gets `mode` without the bits of the umask.
    """
    raw = content.encode() if isinstance(content, str) else content
    with whole_file(path, mode=mode) as file:
        file.write(raw)
    return len(raw)


@contextlib.contextmanager
def whole_file(path: str | Path, *, mode: int = 0o666) -> Generator[BinaryIO]:
    """Does the same as `write_whole` for streamed content: the file appears when the block completes without error."""
    with writing(path):
        there = _status(path)
        if _is_stream(path, there):
            with _open(path, os.O_WRONLY | os.O_APPEND) as file:
                yield file
            return
        target = Path(os.path.realpath(path))
        if there is not None and not os.access(target, os.W_OK):
            raise PermissionError(None, "the file is not writable")
        with _beside(target, mode) as (file, beside):
            if there is not None:
                _take_over(file.fileno(), there)
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.replace(beside, target)


def is_stream(path: str | Path) -> bool:
    """Returns whether a path cannot be replaced by a rename: a terminal or a pipe. Raises PWC0606."""
    with writing(path):
        return _is_stream(path, _status(path))


def write_folder(folder: Path, files: Mapping[str, bytes | str], *, mode: int = 0o777) -> list[Path]:
    """Writes files into a folder, which is created if needed; returns their paths. Raises PWC0606."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True, mode=mode)
    for name, content in files.items():
        write_whole(folder / name, content)
    return [folder / name for name in files]


def write_private(path: Path, raw: bytes) -> None:
    """Writes a file that only this user can read; replaces an existing file or link of that name. Raises PWC0606.

    A power cut may leave a partial file. Use it for files that are verified when read, or that no other process reads.
    """
    with writing(path), _beside(path, 0o600) as (file, beside):
        file.write(raw)
        file.flush()
        os.replace(beside, path)


def read_own(path: Path) -> bytes | None:
    """Reads a regular file that this user owns; returns None otherwise. It never waits for a pipe or follows a link."""
    try:
        with _open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK) as file:
            status = os.fstat(file.fileno())
            return file.read() if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() else None
    except OSError:
        return None


def shared_with(folder: Path) -> str | None:
    """Describes the other users that may change files in a folder; returns None if none may, or without a folder.

    A group with the same number as its user is assumed to contain that user only, as on most systems.
    """
    try:
        status = os.stat(folder)
    except OSError:
        return None
    if status.st_uid not in (os.geteuid(), 0):
        return f"it belongs to user {status.st_uid}"
    if status.st_mode & stat.S_IWOTH:
        return f"every user may write to it (mode {stat.S_IMODE(status.st_mode):o})"
    if status.st_mode & stat.S_IWGRP and status.st_gid != status.st_uid:
        return f"group {status.st_gid} may write to it (mode {stat.S_IMODE(status.st_mode):o})"
    return None


def _open(path: str | Path, flags: int, mode: int = 0) -> BinaryIO:
    kind = "wb" if flags & os.O_WRONLY else "rb"
    return open(path, kind, opener=lambda name, _: os.open(name, flags | os.O_CLOEXEC, mode))


def _status(path: str | Path) -> os.stat_result | None:
    """Returns the status of a file, or None if it does not exist. The kernel follows links, by its own rules."""
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _is_stream(path: str | Path, there: os.stat_result | None) -> bool:
    """Returns whether a path leads to an open file of the process, or to something that is not a regular file."""
    if there is None:
        return False
    if not stat.S_ISREG(there.st_mode):
        return True
    step = os.path.abspath(path)
    while os.path.islink(step):
        if f"{os.path.realpath(os.path.dirname(step))}/".startswith(_OPEN_STREAMS):
            return True
        step = os.path.join(os.path.dirname(step), os.readlink(step))
    return False


@contextlib.contextmanager
def _beside(target: Path, mode: int) -> Generator[tuple[BinaryIO, Path]]:
    """Creates a temporary file in the folder of `target`; removes it at the end of the block unless it was renamed."""
    beside = target.with_name(f".pathways-{secrets.token_hex(8)}")
    with _open(beside, _NEW, mode) as file:
        try:
            yield file, beside
        finally:
            with contextlib.suppress(OSError):
                os.unlink(beside)


def _take_over(descriptor: int, there: os.stat_result) -> None:
    """Gives a file the mode of the file that it replaces, and its owner if the system allows that."""
    made = os.fstat(descriptor)
    if (made.st_uid, made.st_gid) != (there.st_uid, there.st_gid):
        with contextlib.suppress(OSError):
            os.fchown(descriptor, there.st_uid, there.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(there.st_mode))
