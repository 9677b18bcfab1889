"""Signs files with a key that only this user has (HMAC-SHA256), and checks such signatures. Compiled executables of
other users are not loaded, and plans of other users are checked more carefully.

The executable cache and plan files use it. Compiled executables are native code and cannot be checked, so hosts load
only those that this user signed. Plans are data and are checked. A plan with this user's mark was written by this
user's compiler. Therefore MLIR's reader, which is not safe against hostile bytes, may read it in this process (see
`modules/vet.py`).

PATHWAYS_KEY is the path of the key file; the default is `~/.config/pathways/key`. A user that can read or choose the
key can run code as this user. So a key file that other users may have read or written is refused and never used.
"""

import contextlib
import hashlib
import hmac
import os
import secrets
import stat
import threading
from pathlib import Path

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.errors import BadKey
from pathways.dialect.files import read_own, write_folder, write_private

KEY_BYTES = 32
"""The length in bytes of a code, and of a key."""


def sign(name: str, raw: bytes) -> bytes:
    """Returns `raw` with its code in front. Raises PWC0610."""
    return _code(_key() or _OWN, name, raw) + raw


def opened(name: str, signed: bytes) -> bytes | None:
    """Returns the content of `signed` if this user signed it under this name, else None. Raises PWC0610."""
    code, raw = signed[:KEY_BYTES], signed[KEY_BYTES:]
    return raw if hmac.compare_digest(code, _code(_key() or _OWN, name, raw)) else None


def read_signed(folder: Path, name: str) -> bytes | None:
    """Reads a file that `write_signed` wrote; None if there is none, or if it is not this user's. Raises PWC0610."""
    signed = read_own(folder / name)
    return None if signed is None else opened(name, signed)


def write_signed(folder: Path, name: str, raw: bytes) -> None:
    """Writes a file of a private folder, whose `name` may have folders of its own. Raises PWC0606 and PWC0610."""
    path = folder / name
    write_folder(path.parent, {}, mode=0o700)
    write_private(path, sign(name, raw))


def mark(name: str, raw: bytes) -> bytes | None:
    """Makes the code of `raw`. Raises PWC0610.

    Returns None if no key can be stored: a temporary key would give equal files different bytes.
    """
    key = _key()
    return None if key is None else _code(key, name, raw)


def is_marked(name: str, raw: bytes, code: bytes) -> bool:
    """Returns whether `code` is the code that `mark` makes. Raises PWC0610."""
    own = mark(name, raw)
    return own is not None and hmac.compare_digest(own, code)


def _code(key: bytes, name: str, raw: bytes) -> bytes:
    return hmac.digest(key, hashlib.sha256(name.encode()).digest() + raw, "sha256")


def _key() -> bytes | None:
    """Reads this user's key, which is created at first use; None if it cannot be stored. Raises PWC0610."""
    try:
        path = Path(os.environ.get("PATHWAYS_KEY") or Path.home() / ".config" / "pathways" / "key")
    except RuntimeError:  # a user without a home
        return None
    with _MAKING:
        try:
            os.lstat(path)
        except FileNotFoundError:
            try:
                _make(path)
            except OSError:
                return None
        except OSError:  # a folder that this user may not read: another user's home
            return None
        try:
            return _read(path)
        except OSError as error:
            raise _bad(path, error.strerror or str(error)) from None


def _make(path: Path) -> None:
    """Creates the key file atomically: two processes that create it at the same time get the same key."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(beside, os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_WRONLY, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
        with contextlib.suppress(FileExistsError):  # another process was first
            os.link(beside, path)
    finally:
        beside.unlink()


def _read(path: Path) -> bytes:
    if path.is_symlink():
        raise _bad(path, "it is a symbolic link")
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)  # a pipe would wait for a writer
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise _bad(path, "it is not a regular file")
        if found.st_uid != os.getuid():
            raise _bad(path, f"it belongs to user {found.st_uid}, not to you ({os.getuid()})")
        if stat.S_IMODE(found.st_mode) & 0o077:
            raise _bad(path, f"others may use it: its mode is {stat.S_IMODE(found.st_mode):04o}")
        key = os.read(descriptor, KEY_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(key) != KEY_BYTES:
        raise _bad(path, f"it holds {found.st_size} bytes")
    return key


def _bad(path: Path, problem: str) -> PathwaysError:
    return PathwaysError(BadKey(path=str(path), problem=problem))


_MAKING = threading.Lock()
_OWN = secrets.token_bytes(KEY_BYTES)
"""A key of this process only, used if no key can be stored."""
