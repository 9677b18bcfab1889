"""Ready executables are native code: only those that this user signed are loaded.

Plans are data, and are checked before anything is believed; code cannot be. So every ready executable carries a code
(HMAC-SHA256) made with a key that is this user's alone: PATHWAYS_KEY names its file, `~/.config/pathways/key` without.
"""

import contextlib
import hashlib
import hmac
import os
import secrets
import threading
from pathlib import Path

_SIZE = 32


def sign(name: str, raw: bytes) -> bytes:
    """`raw` behind its code."""
    return _code(_key(), name, raw) + raw


def opened(name: str, signed: bytes) -> bytes | None:
    """What was signed under this name with this user's key, or None."""
    code, raw = signed[:_SIZE], signed[_SIZE:]
    return raw if hmac.compare_digest(code, _code(_key(), name, raw)) else None


def _code(key: bytes, name: str, raw: bytes) -> bytes:
    return hmac.digest(key, hashlib.sha256(name.encode()).digest() + raw, "sha256")


def _key() -> bytes:
    """This user's key, made at first use; one for this process alone where it cannot be written."""
    path = Path(os.environ.get("PATHWAYS_KEY") or Path.home() / ".config" / "pathways" / "key")
    with _MAKING, contextlib.suppress(OSError):
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with contextlib.suppress(FileExistsError):
                descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
                with os.fdopen(descriptor, "wb") as file:
                    file.write(secrets.token_bytes(_SIZE))
        key = path.read_bytes()
        if len(key) == _SIZE:
            return key
    return _OWN


_MAKING = threading.Lock()
_OWN = secrets.token_bytes(_SIZE)
