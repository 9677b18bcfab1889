"""A cluster's own authority, and the certificates of its members, in folders that are for this user alone.

The folder of the authority can let anything in, and stays where it was made. The folder of a member goes to the machine
of that member, on a way that can be trusted: what has it is the member. Making them needs the package `cryptography`;
processes that have their folders do not.
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
"""The certificate of the authority: in every folder."""
AUTHORITY_KEY = "authority.key"
"""The key of the authority and its certificate, in its own folder alone: one file, so that they belong together."""
MEMBER = "member.pem"
"""The key of a member and its certificate."""
TEN_YEARS = timedelta(days=3650)
"""How long an authority is valid unless its maker says otherwise."""
YEAR = timedelta(days=365)
"""How long a member's certificate is."""
MOST_NAME = 200
"""The most characters of a name: a certificate stays far smaller than what a handshake may send."""


def make_authority(folder: Path, cluster: str, *, begins: datetime | None = None, valid: timedelta = TEN_YEARS) -> None:
    """Makes the authority of a new cluster; `begins`: now, unless it is said.

    Raises PWC0914 where there is one already, where others may enter the folder, and for a name that is none; PWC0915
    without `cryptography`, PWC0606 where nothing can be written.
    """
    _check_name(folder, cluster)
    try:
        from pathways.runtime.wire.x509 import authority_pems
    except ImportError:
        raise PathwaysError(NoCryptography()) from None
    _make_folder(folder)
    if os.path.lexists(folder / AUTHORITY_KEY):
        rule = "a new folder: members of the authority that is there would not know the new one"
        raise bad_keys(folder, "there is an authority already", rule)
    certificate, private = authority_pems(cluster, begins or datetime.now(UTC), valid)
    write_private(folder / AUTHORITY, certificate)
    write_private(folder / AUTHORITY_KEY, private)


def issue(
    authority: Path, folder: Path, role: Role, name: str, *, begins: datetime | None = None, valid: timedelta = YEAR
) -> Identity:
    """Makes the key and the certificate of a member in a folder of its own, or makes them anew there.

    Raises PWC0914 where there is no authority, where others may enter the folder, and for a name that is none; PWC0915
    without `cryptography`, PWC0606 where nothing can be written.
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
    except Exception as error:  # whatever `cryptography` says of a file that is no key
        raise bad_keys(authority, f"{AUTHORITY_KEY} is not of an authority: {error}", "the folder of one") from None
    _make_folder(folder)
    write_private(folder / AUTHORITY, certificate)
    write_private(folder / MEMBER, private)
    return identity


def member_folder(keys: Path, role: Role, name: str = "") -> Path:
    """Where the keys of a member are: in this folder, or below it as `make_folders` leaves them.

    Without a name it is the only one in its role. Raises PWC0914 where there is none, or any of several.
    """
    if os.path.lexists(keys / MEMBER):
        return keys
    found = sorted(p for p in keys.glob(f"{role}*") if p.name.partition(".")[0] == role and (p / MEMBER).exists())
    if name:
        found = [path for path in found if path.name == folder_name(role, name)]
    if len(found) != 1:
        have = f"neither {MEMBER} nor one folder of a {role} {name}".rstrip()
        if found:
            have = f"{', '.join(p.name for p in found)}: one of them must be chosen"
        raise bad_keys(
            keys, have, f"{folder_name(role, name or 'NAME')}, as `pwc cluster keys` makes it, or its content"
        )
    return found[0]


def folder_name(role: Role, name: str) -> str:
    """What the folder of a member is called beside those of others."""
    return role if role == "controller" else f"{role}.{name.replace('/', '.')}"


def make_folders(keys: Path, cluster: str, hosts: Sequence[str], clients: Sequence[str]) -> list[Path]:
    """Makes the keys of a cluster: of its authority and its controller where they are missing, and of these members.

    Returns the folders that were made. Raises as `make_authority` and `issue` do; PWC0914 for two members of one
    folder, or one that is there already.
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
            rule = "a name of its own for each; to make the keys of a member anew, remove its folder"
            raise bad_keys(folder, f"there are keys already, which {role} {name} would get, too", rule)
        issue(authority, folder, role, name)
        made.append(folder)
    return made


def member_files(folder: Path) -> tuple[Path, Path]:
    """The certificate of the authority, and the file of the member, which only this user can read. Raises PWC0914."""
    _private(folder, MEMBER)
    return folder / AUTHORITY, folder / MEMBER


def bad_keys(folder: Path, have: str, rule: str) -> PathwaysError:
    return PathwaysError(BadKeys(folder=str(folder), have_=have, rule=rule))


def _check_name(folder: Path, name: str) -> None:
    if not 0 < len(name) <= MOST_NAME or not name.isprintable():
        raise bad_keys(folder, f"the name {name[:MOST_NAME]!r}", f"1 to {MOST_NAME} characters that can be printed")


def _make_folder(folder: Path) -> None:
    with writing(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_folder(folder)


def _check_folder(folder: Path) -> None:
    """Refuses a folder that other users may enter."""
    status = folder.stat()
    if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
        have = f"a folder of user {status.st_uid} with the mode {stat.S_IMODE(status.st_mode):04o}"
        raise bad_keys(folder, have, "a folder that only you may enter: chmod 700")


def _private(folder: Path, name: str) -> bytes:
    """Reads a file of keys, which must be this user's alone."""
    try:
        _check_folder(folder)
        status = (folder / name).lstat()
    except OSError as error:
        raise bad_keys(folder, f"{error.filename}: {error.strerror}", f"a folder that holds {name}") from None
    if stat.S_IMODE(status.st_mode) & 0o077:
        have = f"{name} with the mode {stat.S_IMODE(status.st_mode):04o}"
        raise bad_keys(folder, have, "keys that others cannot read: make them anew")
    raw = read_own(folder / name)
    if raw is None:
        raise bad_keys(folder, f"{name}, which is no regular file of yours", "keys that pathways has made")
    return raw
