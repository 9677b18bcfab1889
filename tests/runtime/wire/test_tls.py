"""A TLS listener admits only members of its cluster, and no other connection delays a member."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from support.clusters import PATIENCE
from support.members import HERE, NOISE, Door, Members

from pathways.dialect.diagnostics import PathwaysError
from pathways.runtime.wire import messages as m
from pathways.runtime.wire import tls, tls_ports, tls_socket
from pathways.runtime.wire.tls import Keys
from pathways.runtime.wire.tls_ports import join_as

HANDSHAKE_TIMEOUT_S = 0.3
"""How long a handshake that must fail may take."""


def keys_without_certificate(verifies: Keys | None = None) -> Keys:
    """Makes keys that have no certificate and verify no peer."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return Keys("demo", context, context)


REFUSED: dict[str, tuple[Callable[[Members], Keys], str, str]] = {
    "no certificate": (
        lambda _: keys_without_certificate(),
        "peer did not return a certificate",
        "certificate required",
    ),
    "another authority": (lambda a: a.keys("host", authority="theirs"), "certificate is refused", "unknown ca|unable"),
    "expired": (lambda a: a.keys("host", begins=-2), "certificate has expired", "expired"),
    "of tomorrow": (lambda a: a.keys("host", begins=1), "not yet valid", "certificate"),
    "a client's": (lambda a: a.keys("client", "other"), "to client other of demo", "not accept this process"),
    "a controller's": (lambda a: a.keys("controller", "b"), "to controller b of demo", "not accept this process"),
}
"""Keys that are not those of a host of the cluster, the listener's reason, and the error of the connecting process."""


@pytest.mark.parametrize("case", REFUSED)
def test_only_hosts_of_the_cluster_are_admitted(case: str, members: Members, door: Door) -> None:
    make, said, last_received = REFUSED[case]
    keys = make(members)
    if case == "another authority":  # trusts our authority, and is not trusted
        keys.connecting.load_verify_locations(members.folder / "ours" / "authority.pem")
    with pytest.raises(PathwaysError, match=last_received) as caught:
        connect_with(door, keys)
    assert caught.value.code == "PWC0913"
    assert said in door.reason()
    there, here = door.pair()
    there.post(m.Beat(1, 2))
    assert here.receive() == m.Beat(1, 2)


def connect_with(door: Door, keys: Keys) -> None:
    """Connects with the keys; keys without a certificate do not verify the listener."""
    if keys.connecting.verify_mode is not ssl.CERT_NONE:
        join_as(door.address, keys, "controller")
        return
    with socket.create_connection(door.address, PATIENCE) as sock:
        try:
            with keys.connecting.wrap_socket(sock) as stream:
                stream.recv(1)
        except OSError as error:
            raise tls.no_peer(door.address, error, "controller", 1) from None


@pytest.mark.parametrize("case", ["another authority", "expired", "a host's", "a client's"])
def test_a_connecting_host_refuses_a_wrong_controller(case: str, members: Members) -> None:
    match case:
        case "another authority":
            keys = members.keys("controller", authority="theirs")
        case "expired":
            keys = members.keys("controller", begins=-2)
        case "a client's":  # which would give orders to hosts
            keys = members.keys("client", "other")
        case _:
            keys = members.keys("host", "other")
    with Door(members, keys=keys) as door:
        with pytest.raises(PathwaysError, match=r"certificate (is|belongs)") as caught:
            join_as(door.address, members.keys("host"), "controller")
        assert caught.value.code == "PWC0913"


def test_a_controller_of_a_cluster_of_another_name_is_refused(members: Members, door: Door) -> None:
    ours = members.keys("host")
    with pytest.raises(PathwaysError, match="controller one of demo"):
        join_as(door.address, Keys("other", ours.connecting, ours.listening), "controller")


@pytest.mark.parametrize("case", NOISE)
def test_malformed_or_stalled_connections_end_soon(case: str, members: Members) -> None:
    stalls = case in ("silence", "half a handshake", "a handshake without an end")
    said = f"did not identify itself in {HANDSHAKE_TIMEOUT_S:g} seconds" if stalls else "not TLS"
    with Door(members, seconds=HANDSHAKE_TIMEOUT_S) as door, socket.create_connection(door.address) as sock:
        with contextlib.suppress(ConnectionError):
            sock.sendall(NOISE[case](members))
        assert said in door.reason()
        sock.settimeout(PATIENCE)
        with contextlib.suppress(ConnectionError):
            b"".join(iter(lambda: sock.recv(1 << 16), b""))  # an alert, perhaps; then it is closed
    with Door(members) as door:
        door.pair()[0].close()


def test_older_tls_is_refused(members: Members, door: Door) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(PathwaysError) as caught:
        connect_with(door, Keys("demo", context, context))
    assert caught.value.code == "PWC0913" and "unsupported protocol" in door.reason()


def test_silent_connections_delay_no_member(members: Members, door: Door) -> None:
    """Opens more connections than there may be handshakes at once; none of them sends anything."""
    before = door.pair()
    silent = [socket.create_connection(door.address) for _ in range(tls_ports.MAX_HANDSHAKES + 10)]
    for there, here in (before, door.pair()):
        there.post(m.Beat(3, 4))
        assert here.receive() == m.Beat(3, 4)
    for _ in range(10):
        assert "too many connections" in door.reason()
    for sock in silent:
        sock.close()


def test_a_handshake_of_too_many_bytes_is_refused(
    members: Members, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_socket, "MAX_HANDSHAKE_BYTES", 100)
    with pytest.raises(PathwaysError):
        join_as(door.address, members.keys("host"), "controller")
    assert "a TLS handshake that is too long" in door.reason()


class OtherService(threading.Thread):
    """Another listening service: sends bytes to the first connection, and waits until that ends."""

    def __init__(self, server: socket.socket, says: bytes) -> None:
        super().__init__(daemon=True)
        self.server, self.says = server, says
        self.start()

    def run(self) -> None:
        with contextlib.suppress(OSError):  # the server was closed before the thread began
            sock, _ = self.server.accept()
            with sock:
                sock.sendall(self.says)
                b"".join(iter(lambda: sock.recv(1 << 16), b""))


@pytest.mark.parametrize("says", [b"", b"SSH-2.0-OpenSSH\r\n", None])
def test_connecting_to_another_service_raises_an_error(says: bytes | None, members: Members) -> None:
    with socket.create_server(HERE) as server:
        address = server.getsockname()
        if says is None:
            server.close()  # nothing listens
        talker = OtherService(server, says or b"")
        with pytest.raises(PathwaysError) as caught:
            join_as(address, members.keys("host"), "controller", seconds=HANDSHAKE_TIMEOUT_S)
        talker.join(PATIENCE)
        assert caught.value.code == "PWC0913"


def test_a_closed_listener_admits_no_member(members: Members) -> None:
    with Door(members, seconds=10 * PATIENCE) as door:
        waiting = socket.create_connection(door.address)
        join_as(door.address, members.keys("host"), "controller")[0].close()
        door.accept()[0].close()
    with pytest.raises(PathwaysError) as caught:
        join_as(door.address, members.keys("host"), "controller", seconds=HANDSHAKE_TIMEOUT_S)
    assert caught.value.code == "PWC0913"
    waiting.settimeout(PATIENCE)
    assert not waiting.recv(1)
    waiting.close()


def test_members_have_the_names_in_their_certificates(tmp_path: Path, door: Door) -> None:
    for name in ("island0", "island1/2", "ü *"):
        door.pair(name)[0].close()
