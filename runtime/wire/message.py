"""The base class of all messages, the five that processes of different versions exchange, and what is a version.

A message is a frozen msgspec struct: its annotations are what `decode` checks (encoding.py). A class is a message as
soon as it is declared. Its kind, one byte in a frame, is its position among all declarations: the five of this file
come first and must keep their order. A field named `blob` must be the last: its bytes are sent unpacked.
"""

import platform

import msgspec

from pathways.dialect.versions import WRITER
from pathways.runtime.wire.fields import Count, Int, Name


class Message(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Base class of messages. Construct by position or by keyword, as a dataclass."""


class Hello(Message, frozen=True):
    """A host to its controller, once: what it is."""

    island: str
    pid: Int
    versions: dict[str, str]
    address: str = ""
    """The address for clients; empty in a cluster of one client."""
    ticket: str = ""
    """The secret that the controller gave to this host alone; empty in a cluster of one client."""


class ComeIn(Message, frozen=True):
    """A client to the controller, once: who it is."""

    name: Name
    pid: Count
    versions: dict[str, str]


class RunRefused(Message, frozen=True):
    """The controller to a client: a run has not begun, and will not (`cause`: a diagnostic)."""

    run: Int
    cause: str


class Ask(Message, frozen=True):
    """A client to the controller: `status`, `stacks` or `stop`; the answer's value is JSON."""

    request: Int
    what: Name


class Answer(Message, frozen=True):
    """Something asked for: done, or the diagnostic why not."""

    request: Int
    error: str = ""
    value: str = ""
    blob: bytes = b""


VERSIONS = WRITER | {"python": ".".join(platform.python_version_tuple()[:2])}


def difference(theirs: dict[str, str]) -> str:
    """What another process has otherwise; empty where all is the same."""
    names = sorted(n for n in {*VERSIONS, *theirs} if VERSIONS.get(n) != theirs.get(n))
    return ", ".join(f"{n} {theirs.get(n, 'none')} there, {VERSIONS.get(n, 'none')} here" for n in names)
