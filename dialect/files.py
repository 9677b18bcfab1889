"""Writes files whole or not at all, for every part of the project: a full disk or a kill leaves the old file.

A file is written beside the one that it replaces, under a name that cannot be foreseen, and renamed when all of it is
on the disk. What is no regular file (a terminal, a pipe, /dev/stdout) is written to as it is.
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
"""Folders of links to the open files of a process: `/dev/stdout` is one to `/proc/self/fd/1`."""


@contextlib.contextmanager
def writing(path: str | Path) -> Generator[None]:
    """Turns failures to write into PWC0606."""
    try:
        yield
    except OSError as error:
        raise cannot_write(path, error) from None


_NEEDS = {
    errno.ENOSPC: ("room on the disk", "free space there, or choose another disk"),
    errno.EDQUOT: ("room in the user's quota", "free space there, or choose another disk"),
    errno.EFBIG: ("a file that is within the limit of its size", "ulimit -f, or choose another disk"),
    errno.EACCES: ("a path that this user may write", "choose another path, or change who may write there"),
    errno.EPERM: ("a path that this user may write", "choose another path, or change who may write there"),
    errno.EROFS: ("a file system that can be written", "choose another path"),
    errno.ENAMETOOLONG: ("a shorter name", "choose another path"),
    errno.EMFILE: ("files that this process may still open", "ulimit -n, or close files"),
}
"""The requirement and the advice, by error number. Other failures mean that the folder does not exist."""


def cannot_write(path: str | Path, error: OSError) -> PathwaysError:
    """Makes PWC0606 of a failure to write, with advice that fits it."""
    problem = error.strerror or str(error)
    if error.errno not in _NEEDS:
        return PathwaysError(CannotWrite(path=str(path), problem=problem))
    rule, advice = _NEEDS[error.errno]
    return PathwaysError(CannotWrite(path=str(path), problem=problem, rule=rule, advice=advice))


def write_whole(path: str | Path, content: bytes | str, *, mode: int = 0o666) -> int:
    """Replaces a file, or makes it; returns its size. Raises PWC0606, and leaves the file that was there.

    Through a link its target is replaced, and the link stays. A file that is there keeps its mode; a new one gets
    `mode` less the umask.
    """
    raw = content.encode() if isinstance(content, str) else content
    with whole_file(path, mode=mode) as file:
        file.write(raw)
    return len(raw)


@contextlib.contextmanager
def whole_file(path: str | Path, *, mode: int = 0o666) -> Generator[BinaryIO]:
    """Does `write_whole` for content that comes bit by bit: the file is there when the block ends without an error."""
    with writing(path):
        there = _status(path)
        if _is_stream(path, there):
            with _open(path, os.O_WRONLY | os.O_APPEND) as file:
                yield file
            return
        target = Path(os.path.realpath(path))
        if there is not None and not os.access(target, os.W_OK):
            raise PermissionError(None, "the file may not be written to")
        with _beside(target, mode) as (file, beside):
            if there is not None:
                _take_over(file.fileno(), there)
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.replace(beside, target)


def is_stream(path: str | Path) -> bool:
    """Returns whether what is written to a path cannot be renamed: a terminal, a pipe. Raises PWC0606."""
    with writing(path):
        return _is_stream(path, _status(path))


def write_folder(folder: Path, files: Mapping[str, bytes | str], *, mode: int = 0o777) -> list[Path]:
    """Writes files into a folder, which is made where there is none; returns their paths. Raises PWC0606."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True, mode=mode)
    for name, content in files.items():
        write_whole(folder / name, content)
    return [folder / name for name in files]


def write_private(path: Path, raw: bytes) -> None:
    """Writes a file that only this user can read; a file or link of its name is replaced, not followed. Raises PWC0606.

    A power cut may leave half of it: use it for files that are checked when read, or that no other process reads.
    """
    with writing(path), _beside(path, 0o600) as (file, beside):
        file.write(raw)
        file.flush()
        os.replace(beside, path)


def read_own(path: Path) -> bytes | None:
    """Reads a regular file of this user; returns None for anything else: no pipe is waited for, no link followed."""
    try:
        with _open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK) as file:
            status = os.fstat(file.fileno())
            return file.read() if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() else None
    except OSError:
        return None


def shared_with(folder: Path) -> str | None:
    """Says which other users may change files in a folder; None where none may, or there is no folder.

    A group of the same number as its user holds that user alone, as most systems make them.
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
    """Returns the status of a file, through links, which the kernel follows by its own rules; None if there is none."""
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _is_stream(path: str | Path, there: os.stat_result | None) -> bool:
    """Returns whether a path is an open file of the process, or one that no file can be renamed over."""
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
    """Makes a new file in the folder of another; removes it when the block ends unless it was renamed."""
    beside = target.with_name(f".pathways-{secrets.token_hex(8)}")
    with _open(beside, _NEW, mode) as file:
        try:
            yield file, beside
        finally:
            with contextlib.suppress(OSError):
                os.unlink(beside)


def _take_over(descriptor: int, there: os.stat_result) -> None:
    """Gives a file the mode of the file that it replaces, and its owner as far as the system lets us."""
    made = os.fstat(descriptor)
    if (made.st_uid, made.st_gid) != (there.st_uid, there.st_gid):
        with contextlib.suppress(OSError):
            os.fchown(descriptor, there.st_uid, there.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(there.st_mode))
