"""Sets up TLS for connections between machines of a cluster. Each end must show a certificate of the same cluster, for
the role that the other end expects. Controllers, hosts and clients use it.

The version is TLS 1.3. The cluster's own authority signs the certificates. A host's certificate does not admit a
client. System authorities and host names are not used.
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
    """The TLS contexts of this process as a member of its cluster."""

    cluster: str
    connecting: ssl.SSLContext
    listening: ssl.SSLContext


def read_keys(folder: Path) -> Keys:
    """Reads the folder of a member. Raises PWC0914 if it does not hold the keys, or if others may read them."""
    authority, member = member_files(folder)
    contexts: list[ssl.SSLContext] = []
    try:
        for protocol in (ssl.PROTOCOL_TLS_CLIENT, ssl.PROTOCOL_TLS_SERVER):
            context = ssl.SSLContext(protocol)  # trusts no authority yet
            context.check_hostname = False  # members are identified by role and name, not by address
            context.verify_mode = ssl.CERT_REQUIRED
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT
            context.load_verify_locations(authority)
            context.load_cert_chain(member, password="")  # our keys have no password: never prompt at a terminal
            contexts.append(context)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise bad_keys(folder, f"files that do not match: {error}", "keys that `pwc cluster keys` made") from None
    connecting, listening = contexts
    listening.num_tickets = 0  # connections are long-lived: no session is resumed
    clusters = [read_cluster(uri) for certificate in listening.get_ca_certs() for uri in uris_of(certificate)]
    if len(clusters) != 1 or clusters[0] is None:
        raise bad_keys(folder, "an authority of no cluster", "keys that `pwc cluster keys` made")
    return Keys(clusters[0], connecting, listening)


def identity_of(keys: Keys, folder: Path) -> Identity:
    """Returns the identity in this process's own keys. Raises PWC0914 if the keys are invalid, for example expired."""
    ends = [(ssl.MemoryBIO(), ssl.MemoryBIO()) for _ in range(2)]
    here = keys.connecting.wrap_bio(*ends[0])
    there = keys.listening.wrap_bio(*ends[1], server_side=True)
    try:
        for _ in range(3):  # in each round both ends send and receive
            for end, (_, out), (other, _) in ((here, *ends), (there, *reversed(ends))):
                with contextlib.suppress(ssl.SSLWantReadError):
                    end.do_handshake()
                other.write(out.read())
        return member_at(uris_of(there.getpeercert()), keys, ROLES)
    except (OSError, ValueError, ConnectionEnded) as error:
        reason = error.verify_message if isinstance(error, ssl.SSLCertVerificationError) else str(error)
        rule = "keys that are valid now: delete this folder, and make new keys"
        raise bad_keys(folder, f"a certificate that is refused: {reason}", rule) from None


def checked_keys(folder: Path, role: Role, name: str = "") -> Keys:
    """Returns the keys of a member. Raises PWC0914 if they belong to another member, or are not valid now."""
    keys = read_keys(folder)
    me = identity_of(keys, folder)
    if me.role != role or (name and me.name != name):
        raise bad_keys(folder, f"the keys of {me}", f"keys of a {role} {name}".rstrip())
    return keys


def member_at(names: Sequence[str], keys: Keys, wanted: Collection[Role]) -> Identity:
    """Returns the identity in the URIs of a certificate. Raises ConnectionEnded unless its cluster and role match."""
    peer = read_identity(names[0]) if len(names) == 1 else None
    if peer is None or peer.cluster != keys.cluster or peer.role not in wanted:
        raise ConnectionEnded(f"its certificate belongs to {peer or names}")
    return peer


def no_peer(address: Address, error: Exception, wanted: str, seconds: float) -> PathwaysError:
    """Builds PWC0913 with the reason why a connection was refused, by this process or by the other end."""
    match error:
        case PathwaysError():
            reason = error.diagnostic.text(error.diagnostic.have)
        case ssl.SSLCertVerificationError():
            reason = f"its certificate is refused: {error.verify_message}"
        case ssl.SSLEOFError():
            reason = "it closed the connection"
        case ssl.SSLError() if "ALERT_" in str(error.reason):
            reason = f"it refuses this process: {_plain(error.reason.partition('ALERT_')[2])}"
        case ssl.SSLError():
            reason = f"its answer is not TLS of this cluster: {_plain(error.reason or str(error))}"
        case TimeoutError():
            reason = f"it did not identify itself in {seconds:g} seconds"
        case OSError():
            reason = error.strerror or str(error)
        case _:
            reason = str(error)
    return PathwaysError(NoPeer(address=show_address(address), reason=reason, wanted=wanted))


def _plain(reason: str) -> str:
    """Formats a reason of OpenSSL as words."""
    return reason.replace("_", " ").lower()
