"""Manages the folder with the large arrays of a snapshot, which lies beside the file that `pw.save` writes. It creates
the folder, locks it while a process reads or writes, and removes it when no file names it.

`pw.save`, `pw.restore` and the hosts call it. The folder is written first. The file is replaced atomically at the end,
so it never names an incomplete folder. A folder that no file names is removed.

A reader or writer holds a lock on the folder, so that no other process removes it. The lock of a process that dies is
released by the kernel.
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
"""Errors of file systems without locks. On these, no folder of another process is removed."""


@contextlib.contextmanager
def new_folder(path: str | Path, is_named: Callable[[str], bool]) -> Generator[Path]:
    """Makes and locks a new folder for a file that the `with` block writes. Raises PWC0606.

    If the block fails, the folder is removed unless the file already names it: Ctrl-C may come after the file's write.
    """
    target = Path(os.path.realpath(path))
    with contextlib.ExitStack() as stack:
        folder = target
        while folder == target or not folder.is_dir():  # another process may remove it before the lock is taken
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
    """Locks the folder that a file names against removal while it is read.

    Raises FileNotFoundError if the folder does not exist, and ValueError if the name is not that of such a folder.
    """
    if not _FOLDER.fullmatch(name) or os.sep in name:
        raise ValueError(f"a folder named {name!r}")
    folder = Path(os.path.realpath(path)).with_name(name)
    with _locked(folder, fcntl.LOCK_SH):
        if not folder.is_dir():  # removed while this process waited for the lock
            raise FileNotFoundError(str(folder))
        yield folder


def remove_unnamed(path: str | Path, is_named: Callable[[str], bool]) -> None:
    """Removes the folders of a file that it does not name and that no process reads or writes.

    `is_named` is called after the folder is locked: from then on no other process can write a file that names it.
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
    """Returns a folder that `new_folder` made for this user, given its absolute path. Raises ValueError otherwise."""
    folder = Path(text)
    if not folder.is_absolute() or os.path.realpath(folder) != text or not _FOLDER.fullmatch(folder.name):
        raise ValueError(f"{text} is not a snapshot folder")
    if not folder.is_dir() or folder.stat().st_uid != os.geteuid():
        raise ValueError(f"{text} is not a folder of this user")
    return folder


def bytes_in(folder: Path) -> int:
    """Returns the total bytes of all files in a folder."""
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())


@contextlib.contextmanager
def _locked(folder: Path, how: int) -> Generator[None]:
    """Locks a folder inside a `with` block. Raises OSError if it does not exist, BlockingIOError if it may not wait."""
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
