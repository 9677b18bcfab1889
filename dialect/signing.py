"""Signs files of this user: codes (HMAC-SHA256) made with a key that is this user's alone.

Ready executables are native code, which cannot be checked: only those that this user signed are loaded. Plans are
data, and are checked; one that bears this user's mark came from this user's own compiler, so that MLIR's reader, which
is not safe against hostile bytes, may read it in this very process (see `modules/vet.py`).

PATHWAYS_KEY names the file of the key, `~/.config/pathways/key` without. Any user who can read or choose the key can
have code run as this user: so a key file that others may have read or written is refused, never used.
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

SIZE = 32
"""The bytes of a code, and of a key."""


def sign(name: str, raw: bytes) -> bytes:
    """Puts its code before `raw`. Raises PWC0610."""
    return _code(_key() or _OWN, name, raw) + raw


def opened(name: str, signed: bytes) -> bytes | None:
    """Returns the bytes that were signed under this name with this user's key, or None. Raises PWC0610."""
    code, raw = signed[:SIZE], signed[SIZE:]
    return raw if hmac.compare_digest(code, _code(_key() or _OWN, name, raw)) else None


def mark(name: str, raw: bytes) -> bytes | None:
    """Makes the code of `raw`; None where no key can be kept, so that equal files have equal bytes. Raises PWC0610."""
    key = _key()
    return None if key is None else _code(key, name, raw)


def is_marked(name: str, raw: bytes, code: bytes) -> bool:
    """Returns whether `code` is the one of `mark`. Raises PWC0610."""
    own = mark(name, raw)
    return own is not None and hmac.compare_digest(own, code)


def _code(key: bytes, name: str, raw: bytes) -> bytes:
    return hmac.digest(key, hashlib.sha256(name.encode()).digest() + raw, "sha256")


def _key() -> bytes | None:
    """Reads this user's key, made at first use; None where none can be kept. Raises PWC0610 for a file that is none."""
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
        except OSError:  # a folder that this user may not look into: another user's home
            return None
        try:
            return _read(path)
        except OSError as error:
            raise _bad(path, error.strerror or str(error)) from None


def _make(path: Path) -> None:
    """Makes a new key, whole or not at all: two processes that begin at once end with the same one."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(beside, os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_WRONLY, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(SIZE))
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
        key = os.read(descriptor, SIZE + 1)
    finally:
        os.close(descriptor)
    if len(key) != SIZE:
        raise _bad(path, f"it holds {found.st_size} bytes")
    return key


def _bad(path: Path, problem: str) -> PathwaysError:
    return PathwaysError(BadKey(path=str(path), problem=problem))


_MAKING = threading.Lock()
_OWN = secrets.token_bytes(SIZE)
"""The key of this process alone, where none can be kept."""
