"""Who a process is in its cluster, as its certificate says it: `pathways://CLUSTER/ROLE/NAME`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast, get_args
from urllib.parse import quote, unquote

Role: TypeAlias = Literal["controller", "host", "client"]
"""A host has devices, a client has programs; the controller tells hosts what to do, which no other may."""
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
    """What the certificate of a cluster's authority says."""
    return f"pathways://{quote(cluster, safe='')}"


def read_cluster(uri: str) -> str | None:
    """The cluster that a URI names; None where it is not as `cluster_uri` writes it."""
    found = _CLUSTER.fullmatch(uri)
    cluster = unquote(found[1]) if found else ""
    return cluster if cluster and cluster_uri(cluster) == uri else None


def read_identity(uri: str) -> Identity | None:
    """The member that a URI names; None where it is not as `Identity.uri` writes it: a member has one name."""
    found = _MEMBER.fullmatch(uri)
    if found is None or found[2] not in ROLES:
        return None
    identity = Identity(unquote(found[1]), cast("Role", found[2]), unquote(found[3]))
    return identity if identity.uri == uri else None


def uris_of(certificate: Mapping[str, Any] | None) -> list[str]:
    """The URIs in a certificate, as `ssl` shows those that it has verified."""
    names: Any = (certificate or {}).get("subjectAltName", ())
    return [value for kind, value in names if kind == "URI"]
