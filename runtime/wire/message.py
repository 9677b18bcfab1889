"""Defines the base class of messages between processes. It also defines the five messages that processes of different
versions can exchange, for example to report that their versions differ.

A message is a frozen msgspec struct; `decode` (encoding.py) checks its annotations. Declaring a class makes it a
message. Its kind, one byte in a frame, is its position among all declarations: the five of this file come first and
must keep their order. A field named `blob` must be the last, because its bytes are sent unpacked.
"""

import platform

import msgspec

from pathways.dialect.versions import WRITER
from pathways.runtime.wire.fields import Count, Int, Name
from pathways.runtime.wire.frames import Bytes


class Message(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Base class of messages. Construct by position or by keyword, as a dataclass."""


class Hello(Message, frozen=True):
    """Host to controller, once: identifies the host."""

    island: str
    pid: Int
    versions: dict[str, str]
    address: str = ""
    """Address for clients; empty in a cluster of one client."""
    ticket: str = ""
    """Secret that the controller gave to this host only; empty in a cluster of one client."""


class ClientHello(Message, frozen=True):
    """Client to controller, once: identifies the client."""

    name: Name
    pid: Count
    versions: dict[str, str]


class RunRefused(Message, frozen=True):
    """Controller to client: a run has not begun and will not begin. `cause` is a diagnostic."""

    run: Int
    cause: str


class Ask(Message, frozen=True):
    """Client to controller: `status`, `stacks` or `stop`. The answer's value is JSON."""

    request: Int
    what: Name


class Answer(Message, frozen=True):
    """Answer to a request: completed, or the diagnostic that explains why not."""

    request: Int
    error: str = ""
    value: str = ""
    blob: Bytes = b""


VERSIONS = WRITER | {"python": ".".join(platform.python_version_tuple()[:2])}


def difference(theirs: dict[str, str]) -> str:
    """Describes the versions in which another process differs from this one. Empty if all are equal."""
    names = sorted(n for n in {*VERSIONS, *theirs} if VERSIONS.get(n) != theirs.get(n))
    return ", ".join(f"{n} {theirs.get(n, 'none')} (controller: {VERSIONS.get(n, 'none')})" for n in names)
