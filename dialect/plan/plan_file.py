"""Reads and writes a plan file, plan.bin: an uncompressed zip archive with the plan, its StableHLO modules and its
constants. API, `pwc`, hosts and clients call it.

    manifest.json               format, versions of the writer, digest of every other member
    plan.pb                     the plan (plan.proto)
    computations/NAME.vhlo      StableHLO, portable
    local/NAME.vhlo             the same for one device, if its devices do not communicate
    constants/DIGEST            raw bytes of closed-over arrays
    phases/NN.phase.mlir        dumps, if requested
    executables/MACHINE/NAME    compiled code, if requested: a cache, covered only by the seal

Equal plans of one user give equal bytes. The archive comment ends with the seal: a digest of everything before it, so
that damage is found before any content is trusted. Before the seal is the mark of the user that wrote the plan
(`signing.py`), or zeros. A plan without this user's mark is vetted before its modules are read (`modules/vet.py`).
"""

import hashlib
import io
import json
import re
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from pathways.dialect import signing
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.errors import CallsBack, DamagedPlan, NotAPlan, PlanVersion
from pathways.dialect.files import write_whole
from pathways.dialect.plan.codec import NOT_STORED, DecodeError, decode_plan, encode_plan
from pathways.dialect.plan.modules.vet import vetted
from pathways.dialect.plan.nouns import FORMAT, Plan
from pathways.dialect.versions import WRITER

_SEAL = b"pathways-plan sha256:"
_SEAL_SIZE = len(_SEAL) + 64
_ZIP_HEADER_BYTES = 30
"""The length of a zip header before a member, without the member's name."""
_MARK = b"pathways-plan hmac-sha256:"
_MARK_SIZE = len(_MARK) + 2 * signing.KEY_BYTES
_SIGNED_AS = "plan.bin"
_EPOCH = (1980, 1, 1, 0, 0, 0)


def write_plan(plan: Plan, *, marked: bool = False) -> bytes:
    """Serializes a plan to the bytes of plan.bin, with this user's mark if `marked`. Raises PWC0610."""
    members: dict[str, bytes] = {"plan.pb": encode_plan(plan)}
    members |= {f"computations/{c.name}.vhlo": c.module for c in plan.computations}
    members |= {f"local/{c.name}.vhlo": c.local for c in plan.computations if c.local}
    members |= {f"constants/{name}": data for name, data in plan.constants.items()}
    members |= {f"phases/{name}": data for name, data in plan.phases.items()}
    ready = {f"executables/{name}": data for name, data in plan.executables.items()}
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "kind": "pathways plan",
        "program": plan.name,
        "platform": plan.platform,
        "topology": str(plan.topology),
        "writer": WRITER,
        "members": {name: hashlib.sha256(members[name]).hexdigest() for name in sorted(members)},
    }
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        _add(archive, "manifest.json", json.dumps(manifest, indent=1).encode())
        for name in (*sorted(members), *sorted(ready)):
            _add(archive, name, members.get(name) or ready.get(name, b""))
        archive.comment = b"0" * (_MARK_SIZE + _SEAL_SIZE)
    body = out.getvalue()[: -_MARK_SIZE - _SEAL_SIZE]
    code = signing.mark(_SIGNED_AS, body) if marked else None
    body += _MARK + (code or bytes(signing.KEY_BYTES)).hex().encode()
    return body + _SEAL + hashlib.sha256(body).hexdigest().encode()


def is_marked_plan(raw: bytes) -> bool:
    """Returns whether the bytes of a plan.bin have this user's mark. Raises PWC0610."""
    body, mark = raw[: -_MARK_SIZE - _SEAL_SIZE], raw[-_MARK_SIZE - _SEAL_SIZE : -_SEAL_SIZE]
    if not mark.startswith(_MARK):  # written by a version without marks
        return False
    try:
        code = bytes.fromhex(mark[len(_MARK) :].decode())
    except ValueError:
        return False
    return any(code) and signing.is_marked(_SIGNED_AS, body, code)


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    info = zipfile.ZipInfo(name, date_time=_EPOCH)
    info.external_attr = 0o644 << 16
    archive.writestr(info, data)


def save_plan(plan: Plan, path: str | Path) -> int:
    """Writes plan.bin with this user's mark, and returns its size in bytes.

    Raises PWC0606, PWC0608 for a plan with host callbacks, and PWC0610.
    """
    for run in plan.runs():
        if plan.computations[run.computation].callbacks:
            raise PathwaysError(CallsBack(name=run.name, program=plan.name, where=run.where))
    return write_whole(path, write_plan(plan, marked=True))


def load_plan(path: str | Path) -> Plan:
    """Reads plan.bin. A plan without this user's mark is vetted first, and loses its modules for one device.

    Raises PWC0601 (not a plan), PWC0602 (damaged), PWC0603 (of another format), PWC0610, and the errors of `vetted`.
    """
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        raise PathwaysError(NotAPlan(path=str(path), found=error.strerror or str(error))) from None
    plan = read_plan(raw, str(path))
    return replace(plan, marked=True) if is_marked_plan(raw) else vetted(plan, str(path))


def read_plan(raw: bytes, path: str = "plan", files: Mapping[str, str] = MappingProxyType({})) -> Plan:
    """Decodes the bytes of a plan.bin without parsing its modules. Raises PWC0601, PWC0602 or PWC0603.

    `files` has the path on this machine of each file that source lines name, if it is known.
    """
    if not raw.startswith(b"PK\x03\x04"):
        raise PathwaysError(NotAPlan(path=path, found=_guess(raw)))
    try:
        members = _members(raw)
        manifest = cast("dict[str, Any]", json.loads(members["manifest.json"]))
        if manifest.get("kind") != "pathways plan":
            raise PathwaysError(NotAPlan(path=path, found="a zip archive that is not a plan"))
        _check_version(manifest, path)
        _check_seal(raw, path)
        _check_digests(manifest, members, path)
        return decode_plan(
            members["plan.pb"],
            modules=_below(members, "computations/", ".vhlo"),
            locals=_below(members, "local/", ".vhlo"),
            constants=_below(members, "constants/"),
            phases=_below(members, "phases/"),
            executables=_below(members, "executables/"),
            files=files,
        )
    except (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, EOFError, OSError) as error:
        raise _damaged(path, f"the archive cannot be read: {error}") from None
    except KeyError as error:
        raise _damaged(path, f"the member {error} is missing") from None
    except (DecodeError, ValueError, TypeError, RecursionError, AttributeError, RuntimeError) as error:
        raise _damaged(path, f"a member cannot be decoded: {error}") from None


def stored_fields(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    """Builds dicts for `dataclasses.asdict` without the fields that have a meaning in this process only."""
    return {name: value for name, value in fields if name not in NOT_STORED}


def _members(raw: bytes) -> dict[str, bytes]:
    """Reads the members of the archive. They must not overlap, so that all together are no larger than the file."""
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        infos = archive.infolist()
        if any(i.compress_type != zipfile.ZIP_STORED or i.file_size != i.compress_size for i in infos):
            raise zipfile.BadZipFile("a member is compressed; plans store theirs")
        end = 0
        for info in sorted(infos, key=lambda i: i.header_offset):
            if info.header_offset < end:
                raise zipfile.BadZipFile(f"{info.filename!r} overlaps another member")
            end = info.header_offset + _ZIP_HEADER_BYTES + info.file_size
        if end > len(raw):
            raise zipfile.BadZipFile("a member extends beyond the end of the file")
        if len({i.filename for i in infos}) < len(infos):
            raise zipfile.BadZipFile("two members have one name")
        return {i.filename: archive.read(i) for i in infos}


def _check_version(manifest: dict[str, Any], path: str) -> None:
    version = manifest.get("format")
    if version != FORMAT:
        writer = ", ".join(f"{k} {v}" for k, v in cast("dict[str, Any]", manifest.get("writer", {})).items())
        have = version if isinstance(version, int) else -1
        raise PathwaysError(PlanVersion(path=path, have_version=have, need_version=FORMAT, writer=writer or "unknown"))


def _check_seal(raw: bytes, path: str) -> None:
    body, seal = raw[:-_SEAL_SIZE], raw[-_SEAL_SIZE:]
    if not seal.startswith(_SEAL):
        raise _damaged(path, "the seal at its end is missing: it is truncated, or was changed by another tool")
    if seal[len(_SEAL) :] != hashlib.sha256(body).hexdigest().encode():
        raise _damaged(path, "the seal at its end does not match: some bytes were changed")


def _check_digests(manifest: dict[str, Any], members: dict[str, bytes], path: str) -> None:
    stated = cast("dict[str, str]", manifest["members"])
    listed = {name for name in members if not name.startswith("executables/")}
    if set(stated) | {"manifest.json"} != listed:
        raise _damaged(path, f"its members are {sorted(members)}, its manifest lists {sorted(stated)}")
    for name, digest in stated.items():
        if hashlib.sha256(members[name]).hexdigest() != digest:
            raise _damaged(path, f"{name} does not match its digest")


def _below(members: dict[str, bytes], folder: str, suffix: str = "") -> dict[str, bytes]:
    return {n[len(folder) : len(n) - len(suffix)]: data for n, data in members.items() if n.startswith(folder)}


def _guess(raw: bytes) -> str:
    head = raw[:4096]
    if not raw:
        return "an empty file"
    if b"pw.phase" in head:
        phase = re.search(rb'pw\.phase = "(\w+)"', raw)
        return f"IR after phase {phase[1].decode() if phase else '?'}, not a plan; pass it to pwc compile"
    if b"import " in head or b"def " in head:
        return "Python source; pass it to pwc compile, or to pwc run with the ending .py"
    return f"{len(raw)} bytes that begin with {raw[:8]!r}"


def _damaged(path: str, problem: str) -> PathwaysError:
    return PathwaysError(DamagedPlan(path=path, problem=problem))
