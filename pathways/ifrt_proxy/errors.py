"""Defines the errors of the proxy, and converts errors to the status codes that JAX turns into exceptions."""

from typing import Any, ClassVar

from pathways.dialect.diagnostics import Diagnostic, Exit, PathwaysError

_CANCELLED, _UNKNOWN, _INVALID, _NOT_FOUND, _EXHAUSTED = 1, 2, 3, 5, 8
_UNIMPLEMENTED, _INTERNAL, _UNAVAILABLE = 12, 13, 14


class RequestRefused(Diagnostic):
    code: ClassVar[str] = "PWC0940"
    title: ClassVar[str] = "the proxy does not support {what}"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "{rule}"
    hint: ClassVar[str] = "docs/unmodified-jax.md lists what works; a pw.program supports more"
    what: str
    have_: str
    rule: str


class RequestMalformed(Diagnostic):
    code: ClassVar[str] = "PWC0944"
    title: ClassVar[str] = "a client of the proxy sent a malformed {what}"
    have: ClassVar[str] = "{problem}"
    need: ClassVar[str] = "the messages of jaxlib's own client"
    hint: ClassVar[str] = "use one version of jaxlib for the whole script; if it does, please report a bug"
    what: str
    problem: str


class UnknownHandle(Diagnostic):
    code: ClassVar[str] = "PWC0941"
    title: ClassVar[str] = "a client of the proxy names an unknown {what}"
    have: ClassVar[str] = "{what} {number}"
    need: ClassVar[str] = "the handle of an object of this session that is not deleted"
    hint: ClassVar[str] = "use one version of jaxlib for the whole script; if it does, please report a bug"
    what: str
    number: int


class NoHpack(Diagnostic):
    code: ClassVar[str] = "PWC0942"
    title: ClassVar[str] = "this installation cannot serve the IFRT proxy protocol"
    have: ClassVar[str] = "the package hpack is not installed"
    need: ClassVar[str] = "hpack, in the process of the proxy"
    hint: ClassVar[str] = "pip install 'pathways-mpmd[proxy]'"


class OpenProxy(Diagnostic):
    code: ClassVar[str] = "PWC0943"
    exit: ClassVar[Exit] = Exit.USAGE
    title: ClassVar[str] = "the proxy would accept every process of the network"
    have: ClassVar[str] = "the address {address}; JAX's client has neither TLS nor a password"
    need: ClassVar[str] = "an address of this machine only, such as 127.0.0.1:29000"
    hint: ClassVar[str] = "use an ssh tunnel to this machine; or --insecure, if you trust every process of the network"
    address: str


_CODES = {
    "PWC0940": _UNIMPLEMENTED,
    "PWC0129": _UNIMPLEMENTED,
    "PWC0941": _NOT_FOUND,
    "PWC0944": _INVALID,
    "PWC0102": _UNIMPLEMENTED,
    "PWC0702": _INVALID,
    "PWC0701": _INVALID,
    "PWC0207": _INVALID,
    "PWC0217": _INVALID,
    "PWC0301": _EXHAUSTED,
    "PWC0302": _EXHAUSTED,
    "PWC0506": _EXHAUSTED,
    "PWC0507": _EXHAUSTED,
    "PWC0937": _EXHAUSTED,
    "PWC0518": _CANCELLED,
    "PWC0910": _UNAVAILABLE,
    "PWC0917": _UNAVAILABLE,
}
"""The status code of each error that is not INTERNAL."""


def write_status(error: BaseException | None, into: Any) -> None:
    """Writes an error into a StatusProto; None is success."""
    into.SetInParent()
    if error is None:
        return
    coded = isinstance(error, PathwaysError)
    into.code = _CODES.get(error.code, _INTERNAL) if coded else _UNKNOWN
    into.message = str(error) if coded else f"{type(error).__name__}: {error}"
