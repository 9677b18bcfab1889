"""Folders beside a file, of what it names: made before the file, and removed when no file names them any more.

The file is written last, and replaced whole: it never names a folder that is not complete. Who writes or reads such a
folder has it locked, so that it is removed by no other; the locks of a process that ends are gone with it.
"""

import contextlib
import errno
import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Callable, Generator
from pathlib import Path

from pathways.dialect.files import writing

_FOLDER = re.compile(r"(.+)\.arrays-[0-9a-f]{16}", re.S)
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)
"""What file systems say that have no locks: there, no folder of another process is removed."""


@contextlib.contextmanager
def new_folder(path: str | Path, is_named: Callable[[str], bool]) -> Generator[Path]:
    """Makes a folder for a file that is written in the block. Raises PWC0606.

    Where the block fails it is removed, unless the file names it by then: Ctrl-C may come in between.
    """
    target = Path(os.path.realpath(path))
    with contextlib.ExitStack() as stack:
        folder = target
        while folder == target or not folder.is_dir():  # another may take it for one that is left, and remove it
            folder = target.with_name(f"{target.name}.arrays-{secrets.token_hex(8)}")
            with writing(path):
                folder.mkdir()
            with contextlib.suppress(FileNotFoundError):
                stack.enter_context(_locked(folder, fcntl.LOCK_EX))
        try:
            yield folder
        except BaseException:
            if not is_named(folder.name):
                shutil.rmtree(folder, ignore_errors=True)
            raise


@contextlib.contextmanager
def kept_folder(path: str | Path, name: str) -> Generator[Path]:
    """Keeps the folder that a file names while it is read. Raises FileNotFoundError where it is not there, and
    ValueError for what is no name of one."""
    if not _FOLDER.fullmatch(name) or os.sep in name:
        raise ValueError(f"a folder named {name!r}")
    folder = Path(os.path.realpath(path)).with_name(name)
    with _locked(folder, fcntl.LOCK_SH):
        if not folder.is_dir():  # removed while the lock was waited for
            raise FileNotFoundError(str(folder))
        yield folder


def remove_unnamed(path: str | Path, is_named: Callable[[str], bool]) -> None:
    """Removes the folders of a file but the one that it names, and those that are being written or read.

    Which one it names is asked when a folder is locked: by then no other writes a file that names it.
    """
    target = Path(os.path.realpath(path))
    with contextlib.suppress(OSError), os.scandir(target.parent) as entries:
        for entry in list(entries):
            found = _FOLDER.fullmatch(entry.name)
            if found and found[1] == target.name and entry.is_dir(follow_symlinks=False):
                with contextlib.suppress(OSError), _locked(Path(entry.path), fcntl.LOCK_EX | fcntl.LOCK_NB):
                    if not is_named(entry.name):
                        shutil.rmtree(entry.path, ignore_errors=True)


def own_folder(text: str) -> Path:
    """A folder that `new_folder` has made for this user, by its whole path. Raises ValueError for any other."""
    folder = Path(text)
    if not folder.is_absolute() or os.path.realpath(folder) != text or not _FOLDER.fullmatch(folder.name):
        raise ValueError(f"{text} is no folder of a snapshot")
    if not folder.is_dir() or folder.stat().st_uid != os.geteuid():
        raise ValueError(f"{text} is no folder of this user")
    return folder


def bytes_in(folder: Path) -> int:
    """The bytes of all files in a folder."""
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())


@contextlib.contextmanager
def _locked(folder: Path, how: int) -> Generator[None]:
    """Has a folder locked. Raises OSError where it is not there; BlockingIOError, where it may not wait."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        try:
            fcntl.flock(descriptor, how)
        except OSError as error:
            if how & fcntl.LOCK_NB or error.errno not in _NO_LOCKS:
                raise
        yield
    finally:
        os.close(descriptor)
