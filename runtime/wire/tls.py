"""Connections between machines: mutual TLS 1.3 over TCP, among members of one cluster and nothing else.

Each end knows the other by its certificate, which must be of the cluster's own authority and of the role that is wanted
there: a host's does not make a client. No authority of the system is asked, and no name of a machine matters.
"""

import contextlib
import ssl
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from pathways.dialect.diagnostics import PathwaysError
from pathways.runtime.wire.addresses import Address, show_address
from pathways.runtime.wire.certificates import bad_keys, member_files
from pathways.runtime.wire.errors import NoPeer
from pathways.runtime.wire.frames import ConnectionEnded
from pathways.runtime.wire.identity import ROLES, Identity, Role, read_cluster, read_identity, uris_of


@dataclass(frozen=True)
class Keys:
    """What makes this process a member of its cluster."""

    cluster: str
    connecting: ssl.SSLContext
    listening: ssl.SSLContext


def read_keys(folder: Path) -> Keys:
    """Reads the folder of a member. Raises PWC0914 for what does not hold its keys, or where others may read them."""
    authority, member = member_files(folder)
    contexts: list[ssl.SSLContext] = []
    try:
        for protocol in (ssl.PROTOCOL_TLS_CLIENT, ssl.PROTOCOL_TLS_SERVER):
            context = ssl.SSLContext(protocol)  # which trusts nothing yet
            context.check_hostname = False  # members are told by what they are, not by where
            context.verify_mode = ssl.CERT_REQUIRED
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT
            context.load_verify_locations(authority)
            context.load_cert_chain(member, password="")  # no key of ours has one: nothing is asked at a terminal
            contexts.append(context)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise bad_keys(folder, f"files that do not fit together: {error}", "keys that pathways has made") from None
    connecting, listening = contexts
    listening.num_tickets = 0  # connections stay: none is taken up again
    clusters = [read_cluster(uri) for certificate in listening.get_ca_certs() for uri in uris_of(certificate)]
    if len(clusters) != 1 or clusters[0] is None:
        raise bad_keys(folder, "another authority than a cluster's", "keys that pathways has made")
    return Keys(clusters[0], connecting, listening)


def identity_of(keys: Keys, folder: Path) -> Identity:
    """Who this process is, by its own keys. Raises PWC0914 where they are not valid, now say."""
    ends = [(ssl.MemoryBIO(), ssl.MemoryBIO()) for _ in range(2)]
    here = keys.connecting.wrap_bio(*ends[0])
    there = keys.listening.wrap_bio(*ends[1], server_side=True)
    try:
        for _ in range(3):  # each says a thing, and hears the other's
            for end, (_, out), (other, _) in ((here, *ends), (there, *reversed(ends))):
                with contextlib.suppress(ssl.SSLWantReadError):
                    end.do_handshake()
                other.write(out.read())
        return member_at(uris_of(there.getpeercert()), keys, ROLES)
    except (OSError, ValueError, ConnectionEnded) as error:
        reason = error.verify_message if isinstance(error, ssl.SSLCertVerificationError) else str(error)
        raise bad_keys(folder, f"a certificate that is refused: {reason}", "keys that are valid now") from None


def checked_keys(folder: Path, role: Role, name: str = "") -> Keys:
    """The keys of a member. Raises PWC0914 where they are another's, or not valid now."""
    keys = read_keys(folder)
    me = identity_of(keys, folder)
    if me.role != role or (name and me.name != name):
        raise bad_keys(folder, f"the keys of {me}", f"those of a {role} {name}".rstrip())
    return keys


def member_at(said: Sequence[str], keys: Keys, wanted: Collection[Role]) -> Identity:
    """Who the other end is, by the URIs of its certificate. Raises ConnectionEnded where it is none that is wanted."""
    peer = read_identity(said[0]) if len(said) == 1 else None
    if peer is None or peer.cluster != keys.cluster or peer.role not in wanted:
        raise ConnectionEnded(f"its certificate is that of {peer or said}")
    return peer


def no_peer(address: Address, error: Exception, wanted: str, seconds: float) -> PathwaysError:
    """Why an end was not let in, or did not let this process in, as PWC0913."""
    match error:
        case PathwaysError():
            reason = error.diagnostic.text(error.diagnostic.have)
        case ssl.SSLCertVerificationError():
            reason = f"its certificate is refused: {error.verify_message}"
        case ssl.SSLEOFError():
            reason = "it has ended the connection"
        case ssl.SSLError() if "ALERT_" in str(error.reason):
            reason = f"it refuses this process: {_plain(error.reason.partition('ALERT_')[2])}"
        case ssl.SSLError():
            reason = f"what it says is not TLS of this cluster: {_plain(error.reason or str(error))}"
        case TimeoutError():
            reason = f"it did not say in {seconds:g} seconds who it is"
        case OSError():
            reason = error.strerror or str(error)
        case _:
            reason = str(error)
    return PathwaysError(NoPeer(address=show_address(address), reason=reason, wanted=wanted))


def _plain(reason: str) -> str:
    """Words of a reason of OpenSSL's."""
    return reason.replace("_", " ").lower()
