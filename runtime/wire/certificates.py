"""Creates the TLS certificates of a cluster: its own authority, and a key for the controller, each host and each
client. Each has a folder that only this user can read. `pwc cluster keys` calls it.

`tls.py` reads the folders. The authority's folder can create members, so it must not leave the machine where it was
created. A member's folder is copied to the member's machine over a trusted channel: a process that has the folder is
that member. Creating keys needs the package `cryptography`; reading the folders does not.
"""

import os
import stat
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.files import read_own, write_private, writing
from pathways.runtime.wire.errors import BadKeys, NoCryptography
from pathways.runtime.wire.identity import ROLES, Identity, Role

AUTHORITY = "authority.pem"
"""Certificate of the authority. It is in every folder."""
AUTHORITY_KEY = "authority.key"
"""Key and certificate of the authority, in the authority's folder only. One file keeps the two consistent."""
MEMBER = "member.pem"
"""Key and certificate of a member."""
TEN_YEARS = timedelta(days=3650)
"""Default validity of an authority."""
YEAR = timedelta(days=365)
"""Default validity of a member's certificate."""
MAX_NAME = 200
"""Maximum length of a name in characters. A certificate stays far below the size limit of a handshake."""


def make_authority(folder: Path, cluster: str, *, begins: datetime | None = None, valid: timedelta = TEN_YEARS) -> None:
    """Creates the authority of a new cluster. `begins` is the start of its validity, by default now.

    Raises PWC0914 if the folder already has an authority, if other users may enter the folder, or if the name is
    invalid. Raises PWC0915 without `cryptography`, and PWC0606 if the files cannot be written.
    """
    _check_name(folder, cluster)
    try:
        from pathways.runtime.wire.x509 import authority_pems
    except ImportError:
        raise PathwaysError(NoCryptography()) from None
    _make_folder(folder)
    if os.path.lexists(folder / AUTHORITY_KEY):
        rule = "a new folder: members of the existing authority would refuse those of a new one"
        raise bad_keys(folder, "it already contains an authority", rule)
    certificate, private = authority_pems(cluster, begins or datetime.now(UTC), valid)
    write_private(folder / AUTHORITY, certificate)
    write_private(folder / AUTHORITY_KEY, private)


def issue(
    authority: Path, folder: Path, role: Role, name: str, *, begins: datetime | None = None, valid: timedelta = YEAR
) -> Identity:
    """Creates the key and certificate of a member in the member's own folder, or replaces them there.

    Raises PWC0914 if there is no authority, if other users may enter the folder, or if the name is invalid. Raises
    PWC0915 without `cryptography`, and PWC0606 if the files cannot be written.
    """
    _check_name(folder, name)
    if role not in ROLES:
        raise bad_keys(folder, f"a member in the role {role!r}", f"one of {', '.join(ROLES)}")
    try:
        from pathways.runtime.wire.x509 import member_pems
    except ImportError:
        raise PathwaysError(NoCryptography()) from None
    signer = _private(authority, AUTHORITY_KEY)
    try:
        identity, certificate, private = member_pems(signer, role, name, begins or datetime.now(UTC), valid)
    except Exception as error:  # `cryptography` raises various exceptions for a file that is not a key
        raise bad_keys(authority, f"{AUTHORITY_KEY} is not of an authority: {error}", "an authority's folder") from None
    _make_folder(folder)
    write_private(folder / AUTHORITY, certificate)
    write_private(folder / MEMBER, private)
    return identity


def member_folder(keys: Path, role: Role, name: str = "") -> Path:
    """Returns the folder with a member's keys: this folder, or a folder below it that `make_folders` created.

    Without a name, the role must have exactly one folder. Raises PWC0914 if no folder or more than one matches.
    """
    if os.path.lexists(keys / MEMBER):
        return keys
    found = sorted(p for p in keys.glob(f"{role}*") if p.name.partition(".")[0] == role and (p / MEMBER).exists())
    if name:
        found = [path for path in found if path.name == folder_name(role, name)]
    if len(found) != 1:
        have = f"neither {MEMBER} nor a folder of {role} {name}".rstrip()
        if found:
            have = f"{', '.join(p.name for p in found)}: choose one of them"
        raise bad_keys(
            keys, have, f"{folder_name(role, name or 'NAME')}, which `pwc cluster keys` creates, or its content"
        )
    return found[0]


def folder_name(role: Role, name: str) -> str:
    """Returns the name of a member's folder inside the folder of all keys."""
    return role if role == "controller" else f"{role}.{name.replace('/', '.')}"


def make_folders(keys: Path, cluster: str, hosts: Sequence[str], clients: Sequence[str]) -> list[Path]:
    """Creates the keys of a cluster: those of the given members, and those of the authority and controller if missing.

    Returns the folders that were created. Raises the errors of `make_authority` and `issue`. Raises PWC0914 if two
    members would share a folder, or if a member's folder already has keys.
    """
    authority = keys / "authority"
    members: list[tuple[Role, str]] = [*(("host", name) for name in hosts), *(("client", name) for name in clients)]
    made: list[Path] = []
    if not os.path.lexists(authority / AUTHORITY_KEY):
        make_authority(authority, cluster)
        made.append(authority)
    if not os.path.lexists(keys / "controller" / MEMBER):
        members.insert(0, ("controller", "controller"))
    for role, name in members:
        folder = keys / folder_name(role, name)
        if os.path.lexists(folder / MEMBER):
            rule = "another name for each member; to replace the keys of a member, delete its folder first"
            raise bad_keys(folder, f"keys that exist already; {role} {name} would use this folder, too", rule)
        issue(authority, folder, role, name)
        made.append(folder)
    return made


def member_files(folder: Path) -> tuple[Path, Path]:
    """Returns the authority's certificate and the member's file. Raises PWC0914 if other users can read the file."""
    _private(folder, MEMBER)
    return folder / AUTHORITY, folder / MEMBER


def bad_keys(folder: Path, have: str, rule: str) -> PathwaysError:
    return PathwaysError(BadKeys(folder=str(folder), have_=have, rule=rule))


def _check_name(folder: Path, name: str) -> None:
    if not 0 < len(name) <= MAX_NAME or not name.isprintable():
        raise bad_keys(folder, f"the name {name[:MAX_NAME]!r}", f"1 to {MAX_NAME} printable characters")


def _make_folder(folder: Path) -> None:
    with writing(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_folder(folder)


def _check_folder(folder: Path) -> None:
    """Raises PWC0914 if other users may enter the folder."""
    status = folder.stat()
    if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
        have = f"a folder of user {status.st_uid} with the mode {stat.S_IMODE(status.st_mode):04o}"
        raise bad_keys(folder, have, "a folder that you own and only you may enter: chmod 700")


def _private(folder: Path, name: str) -> bytes:
    """Reads a key file. Raises PWC0914 unless the file belongs to this user and is private."""
    try:
        _check_folder(folder)
        status = (folder / name).lstat()
    except OSError as error:
        raise bad_keys(folder, f"{error.filename}: {error.strerror}", f"a folder that holds {name}") from None
    if stat.S_IMODE(status.st_mode) & 0o077:
        have = f"{name} with the mode {stat.S_IMODE(status.st_mode):04o}"
        raise bad_keys(folder, have, "keys that others cannot read: delete the folder, and make new keys")
    raw = read_own(folder / name)
    if raw is None:
        raise bad_keys(folder, f"{name}, not a regular file that you own", "keys that `pwc cluster keys` made")
    return raw
