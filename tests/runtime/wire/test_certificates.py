"""Keys are private to their user, state their owner and validity, and are refused if anything is wrong."""

import ssl
import stat
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from pathways.dialect.diagnostics import PathwaysError
from pathways.runtime.wire import certificates as c
from pathways.runtime.wire.identity import ROLES, Identity, read_cluster, read_identity
from pathways.runtime.wire.tls import identity_of, read_keys


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    c.make_authority(tmp_path / "authority", "demo")
    return tmp_path / "authority"


def refusal(use: Callable[[], Any]) -> PathwaysError:
    with pytest.raises(PathwaysError) as caught:
        use()
    return caught.value


def test_only_their_user_can_read_the_files_of_keys(authority: Path, tmp_path: Path) -> None:
    member = tmp_path / "hosts" / "island0"
    assert c.issue(authority, member, "host", "island0") == Identity("demo", "host", "island0")
    for folder in (authority, member):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert [stat.S_IMODE(p.stat().st_mode) for p in folder.iterdir()] == [0o600, 0o600]
    assert {p.name for p in member.iterdir()} == {c.AUTHORITY, c.MEMBER}  # without the key that signs
    assert b"PRIVATE" not in (member / c.AUTHORITY).read_bytes()
    assert read_keys(member).cluster == "demo"


def test_a_certificate_states_its_owner_and_its_validity(authority: Path, tmp_path: Path) -> None:
    begins = datetime(2030, 1, 1, tzinfo=UTC)
    c.issue(authority, tmp_path / "me", "client", "me/1 ü", begins=begins, valid=timedelta(days=3))
    found = x509.load_pem_x509_certificate((tmp_path / "me" / c.MEMBER).read_bytes())
    named = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert named.get_values_for_type(x509.UniformResourceIdentifier) == ["pathways://demo/client/me%2F1%20%C3%BC"]
    assert found.not_valid_after_utc == begins + timedelta(days=3)
    assert timedelta() < begins - found.not_valid_before_utc < timedelta(hours=1)  # clocks of machines differ
    constraints = found.extensions.get_extension_for_class(x509.BasicConstraints)
    assert constraints.critical and not constraints.value.ca  # a member cannot issue certificates


def test_keys_of_a_member_are_replaced_and_an_authority_is_not(authority: Path, tmp_path: Path) -> None:
    seen: set[bytes] = set()
    for _ in range(2):
        c.issue(authority, tmp_path / "me", "client", "me")
        seen.add((tmp_path / "me" / c.MEMBER).read_bytes())
    assert len(seen) == 2
    before = (authority / c.AUTHORITY_KEY).read_bytes()
    assert refusal(lambda: c.make_authority(authority, "other")).code == "PWC0914"
    assert (authority / c.AUTHORITY_KEY).read_bytes() == before


def test_a_link_in_place_of_keys_is_replaced_and_not_followed(authority: Path, tmp_path: Path) -> None:
    c.issue(authority, tmp_path / "me", "client", "me")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("as it was")
    (tmp_path / "me" / c.MEMBER).unlink()
    (tmp_path / "me" / c.MEMBER).symlink_to(elsewhere)
    assert refusal(lambda: read_keys(tmp_path / "me")).code == "PWC0914"
    c.issue(authority, tmp_path / "me", "client", "me")
    assert elsewhere.read_text() == "as it was" and read_keys(tmp_path / "me")


@pytest.mark.parametrize("name", ["", "x" * 201, "a\nb", "a\0b", "\ud800"])
def test_an_invalid_name_or_role_is_refused(name: str, authority: Path, tmp_path: Path) -> None:
    assert refusal(lambda: c.make_authority(tmp_path / "new", name)).code == "PWC0914"
    assert refusal(lambda: c.issue(authority, tmp_path / "new", "host", name)).code == "PWC0914"
    role: Any = "king"
    assert refusal(lambda: c.issue(authority, tmp_path / "new", role, "name")).code == "PWC0914"
    assert not (tmp_path / "new").exists()


def damage(how: str, folder: Path, other: Path) -> None:
    member = folder / c.MEMBER
    match how:
        case "no folder":
            folder.rename(folder.with_name("gone"))
        case "no keys":
            member.unlink()
        case "no authority":
            (folder / c.AUTHORITY).unlink()
        case "a folder that others may enter":
            folder.chmod(0o750)
        case "keys that others may read":
            member.chmod(0o640)
        case "a pipe":
            member.unlink()
            member.mkdir()
        case "noise":
            member.write_bytes(b"-----BEGIN PRIVATE KEY-----\nnoise")
        case "half of it":
            member.write_bytes(member.read_bytes()[:200])
        case "an authority that is none":
            (folder / c.AUTHORITY).write_text("")
        case "the certificate of another":
            key, mark, _ = member.read_bytes().partition(b"-----BEGIN CERTIFICATE")
            member.write_bytes(key + mark + (other / c.MEMBER).read_bytes().partition(mark)[2])
        case "a member for an authority":
            (folder / c.AUTHORITY).write_bytes(member.read_bytes())
        case _:
            pytest.fail(how)


@pytest.mark.parametrize(
    "how",
    ["no folder", "no keys", "no authority", "a folder that others may enter", "keys that others may read", "a pipe",
     "noise", "half of it", "an authority that is none", "the certificate of another", "a member for an authority"],
)  # fmt: skip
def test_a_damaged_or_unprotected_folder_of_keys_is_refused(how: str, authority: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        c.issue(authority, tmp_path / name, "host", name)
    damage(how, tmp_path / "one", tmp_path / "two")
    assert refusal(lambda: read_keys(tmp_path / "one")).code == "PWC0914"


@pytest.mark.parametrize("how", ["gone", "noise", "a member's", "read by others"])
def test_a_damaged_or_unprotected_authority_signs_nothing(how: str, authority: Path, tmp_path: Path) -> None:
    c.issue(authority, tmp_path / "one", "host", "one")
    key = authority / c.AUTHORITY_KEY
    match how:
        case "gone":
            key.unlink()
        case "noise":
            key.write_text("noise")
        case "a member's":
            key.write_bytes((tmp_path / "one" / c.MEMBER).read_bytes())
        case _:
            key.chmod(0o644)
    assert refusal(lambda: c.issue(authority, tmp_path / "two", "host", "two")).code == "PWC0914"
    assert not (tmp_path / "two").exists()


def test_keys_can_be_read_but_not_made_without_cryptography(
    authority: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    c.issue(authority, tmp_path / "one", "host", "one")
    monkeypatch.delitem(sys.modules, "pathways.runtime.wire.x509")
    monkeypatch.setitem(sys.modules, "cryptography", None)
    for make in (
        lambda: c.make_authority(tmp_path / "new", "demo"),
        lambda: c.issue(authority, tmp_path / "new", "host", "two"),
    ):
        error = refusal(make)
        assert error.code == "PWC0915" and "pathways-mpmd[cluster]" in str(error)
    assert isinstance(read_keys(tmp_path / "one").listening, ssl.SSLContext) and not (tmp_path / "new").exists()


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(NAMES, st.sampled_from(ROLES), NAMES)
def test_an_identity_is_parsed_from_its_own_uri(cluster: str, role: Any, name: str) -> None:
    identity = Identity(cluster, role, name)
    assert read_identity(identity.uri) == identity and read_cluster(identity.uri) is None


@pytest.mark.parametrize(
    "uri",
    ["", "pathways://", "pathways://c", "pathways://c/host", "pathways://c/host/", "pathways://c/king/a",
     "pathways://c/host/a/b", "pathways://c/host/%FF", "pathways://c/host/%61", "pathways://c/host/a\n",
     "http://c/host/a", " pathways://c/host/a"],
)  # fmt: skip
def test_a_malformed_uri_is_no_identity(uri: str) -> None:
    assert read_identity(uri) is None


@pytest.mark.parametrize("name", ["x", "x" * 200])
def test_a_name_has_1_to_200_characters(name: str, authority: Path, tmp_path: Path) -> None:
    assert c.issue(authority, tmp_path / "me", "client", name).name == name


def test_keys_are_not_made_in_a_folder_that_others_may_enter(authority: Path, tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    for make in (
        lambda: c.make_authority(tmp_path / "open", "demo"),
        lambda: c.issue(authority, tmp_path / "open", "host", "island0"),
    ):
        assert refusal(make).code == "PWC0914" and not list((tmp_path / "open").iterdir())


def extension(found: x509.Certificate, kind: Any) -> tuple[Any, bool]:
    """Returns an extension of a certificate, and whether it is critical."""
    one = found.extensions.get_extension_for_class(kind)
    return one.value, one.critical


USES = ("digital_signature", "key_cert_sign", "content_commitment", "key_encipherment", "data_encipherment",
        "key_agreement", "crl_sign")  # fmt: skip


def test_an_authority_signs_members_alone_and_a_member_signs_no_certificate(authority: Path, tmp_path: Path) -> None:
    c.issue(authority, tmp_path / "me", "client", "me")
    signer = x509.load_pem_x509_certificate((authority / c.AUTHORITY).read_bytes())
    member = x509.load_pem_x509_certificate((tmp_path / "me" / c.MEMBER).read_bytes())
    for found, use in ((signer, "key_cert_sign"), (member, "digital_signature")):
        usage, is_critical = extension(found, x509.KeyUsage)
        assert [name for name in USES if getattr(usage, name)] == [use] and is_critical
    constraints, is_critical = extension(signer, x509.BasicConstraints)
    assert (constraints.ca, constraints.path_length, is_critical) == (True, 0, True)
    constraints, _ = extension(member, x509.BasicConstraints)
    assert (constraints.ca, constraints.path_length) == (False, None)
    purposes, _ = extension(member, x509.ExtendedKeyUsage)
    assert {purpose.dotted_string for purpose in purposes} == {"1.3.6.1.5.5.7.3.1", "1.3.6.1.5.5.7.3.2"}


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    """Folders of members, with files in place of keys."""
    for name in ("controller", "host.island1", "host.island0", "client.me", "hostess.a", "host.empty"):
        (tmp_path / name).mkdir()
        if name != "host.empty":
            (tmp_path / name / c.MEMBER).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("role", "name", "found"),
    [("controller", "", "controller"), ("host", "island0", "host.island0"), ("host", "island1", "host.island1"),
     ("client", "", "client.me"), ("client", "me", "client.me")],
)  # fmt: skip
def test_the_folder_of_a_member_is_found_by_its_role_and_name(role: Any, name: str, found: str, folders: Path) -> None:
    assert c.member_folder(folders, role, name) == folders / found
    assert c.member_folder(folders / found, role, "any") == folders / found, "the folder may be named itself"


@pytest.mark.parametrize(
    ("role", "name", "said"),
    [
        ("host", "", "host.island0, host.island1: choose one of them"),
        ("host", "island2", "neither member.pem nor a folder of host island2"),
        ("host", "empty", "neither member.pem nor a folder of host empty"),
        ("client", "you", "client.you, which `pwc cluster keys` creates"),
    ],
)
def test_a_folder_of_no_member_or_several_is_refused(role: Any, name: str, said: str, folders: Path) -> None:
    error = refusal(lambda: c.member_folder(folders, role, name))
    assert error.code == "PWC0914" and said in str(error)


def test_the_folders_of_a_cluster_are_made_once_and_later_members_are_added(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    made = c.make_folders(keys, "demo", ["island0", "pod/1"], ["me"])
    assert [path.name for path in made] == ["authority", "controller", "host.island0", "host.pod.1", "client.me"]
    assert {path.parent for path in made} == {keys}
    found = [str(identity_of(read_keys(path), path)) for path in made[1:]]
    assert found == ["controller controller of demo", "host island0 of demo", "host pod/1 of demo", "client me of demo"]
    before = {path: path.read_bytes() for path in keys.rglob("*.*") if path.is_file()}
    assert c.make_folders(keys, "another", [], ["you"]) == [keys / "client.you"]
    assert read_keys(keys / "client.you").cluster == "demo", "the authority is that of the first time"
    for hosts in (["island0"], ["new", "new"]):
        assert refusal(lambda hosts=hosts: c.make_folders(keys, "demo", hosts, [])).code == "PWC0914"
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize("uri", ["", "pathways://", "pathways://%61", "pathways://a/b", "http://a", "pathways://%FF"])
def test_a_malformed_uri_names_no_cluster(uri: str) -> None:
    assert read_cluster(uri) is None


def test_what_a_member_has_signs_nothing_for_it_is_not_of_a_cluster(authority: Path, tmp_path: Path) -> None:
    c.issue(authority, tmp_path / "one", "host", "one")
    (authority / c.AUTHORITY_KEY).write_bytes((tmp_path / "one" / c.MEMBER).read_bytes())
    assert "is not of a cluster" in str(refusal(lambda: c.issue(authority, tmp_path / "two", "host", "two")))
