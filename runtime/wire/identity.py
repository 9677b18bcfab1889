"""Defines the identity of a process in a cluster, as its TLS certificate states it: `pathways://CLUSTER/ROLE/NAME`. The
role is controller, host or client. TLS connections check it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast, get_args
from urllib.parse import quote, unquote

Role: TypeAlias = Literal["controller", "host", "client"]
"""A host has devices, a client has programs, the controller alone sends commands to hosts."""
ROLES: tuple[Role, ...] = get_args(Role)
_CLUSTER = re.compile(r"pathways://([^/]+)")
_MEMBER = re.compile(r"pathways://([^/]+)/([a-z]+)/([^/]+)")


@dataclass(frozen=True)
class Identity:
    """A member of a cluster."""

    cluster: str
    role: Role
    name: str

    def __str__(self) -> str:
        return f"{self.role} {self.name} of {self.cluster}"

    @property
    def uri(self) -> str:
        return f"{cluster_uri(self.cluster)}/{self.role}/{quote(self.name, safe='')}"


def cluster_uri(cluster: str) -> str:
    """Returns the URI in the certificate of a cluster's authority."""
    return f"pathways://{quote(cluster, safe='')}"


def read_cluster(uri: str) -> str | None:
    """Returns the cluster that a URI names, or None if `cluster_uri` does not write it in this form."""
    found = _CLUSTER.fullmatch(uri)
    cluster = unquote(found[1]) if found else ""
    return cluster if cluster and cluster_uri(cluster) == uri else None


def read_identity(uri: str) -> Identity | None:
    """Returns the member that a URI names, or None if `Identity.uri` does not write it so: a member has one name."""
    found = _MEMBER.fullmatch(uri)
    if found is None or found[2] not in ROLES:
        return None
    identity = Identity(unquote(found[1]), cast("Role", found[2]), unquote(found[3]))
    return identity if identity.uri == uri else None


def uris_of(certificate: Mapping[str, Any] | None) -> list[str]:
    """Returns the URIs of a certificate, in the form in which `ssl` returns verified certificates."""
    names: Any = (certificate or {}).get("subjectAltName", ())
    return [value for kind, value in names if kind == "URI"]
