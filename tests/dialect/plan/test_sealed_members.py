"""A plan with a valid seal, as another tool could write, is refused if a member contradicts the manifest."""

import hashlib
import io
import zipfile
from pathlib import Path

import pytest

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.plan import plan_file
from pathways.dialect.plan.plan_file import read_plan

MARK, SEAL = plan_file._MARK, plan_file._SEAL  # pyright: ignore[reportPrivateUsage]


def members_of(raw: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def sealed(members: dict[str, bytes]) -> bytes:
    """Returns an unmarked archive of these members, with a valid seal."""
    out = io.BytesIO()
    mark = MARK + b"0" * 64
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data)
        archive.comment = b"0" * (len(mark) + len(SEAL) + 64)
    body = out.getvalue()[: -len(mark) - len(SEAL) - 64] + mark
    return body + SEAL + hashlib.sha256(body).hexdigest().encode()


def refusal(members: dict[str, bytes]) -> str:
    with pytest.raises(PathwaysError) as caught:
        read_plan(sealed(members))
    assert caught.value.code == "PWC0602"
    return str(caught.value)


def test_unchanged_members_with_a_new_seal_are_read(moe_plan: Path) -> None:
    raw = moe_plan.read_bytes()
    assert read_plan(sealed(members_of(raw))) == read_plan(raw)


@pytest.mark.parametrize("kind", ["plan.pb", "computations/", "local/", "phases/"])
def test_a_changed_member_is_refused(kind: str, moe_plan: Path) -> None:
    members = members_of(moe_plan.read_bytes())
    name = next(n for n in members if n.startswith(kind))
    data = members[name]
    for changed in (data[:-1] + bytes([data[-1] ^ 1]), data + b"\0", data[:-1], b""):
        assert f"{name} does not match its digest" in refusal(members | {name: changed})


def test_swapped_members_are_refused(moe_plan: Path) -> None:
    """Each member is valid, but belongs to another computation."""
    members = members_of(moe_plan.read_bytes())
    first, second, *_ = (n for n in members if n.startswith("computations/"))
    assert "does not match its digest" in refusal(members | {first: members[second], second: members[first]})


def test_an_extra_or_missing_member_is_refused(moe_plan: Path) -> None:
    members = members_of(moe_plan.read_bytes())
    assert "its manifest lists" in refusal(members | {"computations/other.vhlo": b""})
    for name in members:
        left = {n: data for n, data in members.items() if n != name}
        assert ("is missing" if name == "manifest.json" else "its manifest lists") in refusal(left)
