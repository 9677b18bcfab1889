"""Generates the keys and X.509 certificates of a cluster, as bytes in PEM format. `certificates.py` calls it for `pwc
cluster keys`, and writes the bytes to files.

It is imported on demand, because no other module needs the package `cryptography`.
"""

from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from pathways.runtime.wire.identity import Identity, Role, cluster_uri, read_cluster

MAX_CLOCK_SKEW = timedelta(minutes=5)
"""Maximum clock difference between machines. Certificates are valid from this long before their start."""


def authority_pems(cluster: str, begins: datetime, valid: timedelta) -> tuple[bytes, bytes]:
    """Creates an authority. Returns its certificate, and its key followed by the certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("authority")
    builder = _builder(cluster_uri(cluster), key, name, key, name, begins, valid)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    certificate = builder.add_extension(_usage(signs=True), critical=True).sign(key, hashes.SHA256())
    return _pem(certificate), _pem(key) + _pem(certificate)


def member_pems(
    authority: bytes, role: Role, name: str, begins: datetime, valid: timedelta
) -> tuple[Identity, bytes, bytes]:
    """Creates a member of the authority whose key and certificate are given.

    Returns the member's identity, the certificate of the authority, and the member's key followed by its certificate.
    Raises ValueError if `authority` does not hold an authority.
    """
    signer = serialization.load_pem_private_key(authority, password=None)
    certificate = x509.load_pem_x509_certificate(authority)
    named = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    uris = named.get_values_for_type(x509.UniformResourceIdentifier)
    cluster = read_cluster(uris[0]) if len(uris) == 1 else None
    if cluster is None or not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise ValueError("its certificate is not of a cluster")
    identity = Identity(cluster, role, name)
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(identity.uri, key, _name(role), signer, certificate.subject, begins, valid)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(signs=False), critical=True)
    # Either role may listen or connect. Peers check the role in the name instead.
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
    return identity, _pem(certificate), _pem(key) + _pem(builder.sign(signer, hashes.SHA256()))


def _builder(
    uri: str,
    key: ec.EllipticCurvePrivateKey,
    subject: x509.Name,
    signer: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    begins: datetime,
    valid: timedelta,
) -> x509.CertificateBuilder:
    public = key.public_key()
    named = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri)])
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins - MAX_CLOCK_SKEW)
        .not_valid_after(begins + valid)
        .add_extension(named, critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )


def _name(what: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"pathways {what}")])


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(what: ec.EllipticCurvePrivateKey | x509.Certificate) -> bytes:
    pem = serialization.Encoding.PEM
    if isinstance(what, x509.Certificate):
        return what.public_bytes(pem)
    return what.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
