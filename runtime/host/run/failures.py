"""Makes the error that users see for a failed computation: the computation's own error, or the loss of a host process
that took part in it. Hosts and `fallible.py` call it.
"""

from typing import Any

from pathways.dialect.diagnostics import Diagnostic, PathwaysError, Where
from pathways.dialect.platforms import is_broken_collective
from pathways.runtime.errors import failed_because
from pathways.runtime.host.devices.pjrt import FAILURES
from pathways.runtime.host.run.poison import Origin, Poison
from pathways.runtime.wire.errors import HostLost


def failure_of(name: str, island: str, cause: str, where: Where | None) -> Diagnostic:
    """Returns the reason for which a computation has failed: its own error, or the loss of a host.

    The controller ends all hosts of an island if one of them is lost. Often their collectives detect the loss before.
    """
    if is_broken_collective(cause):
        return HostLost(island=island, reason=f"a collective of {name} lost one of its hosts: {cause}", where=where)
    return failed_because(name, island, cause, where)


def why_failed(value: Any, origin: Origin) -> Diagnostic | None:
    """Waits for a result; returns the reason if it has failed, else None."""
    if isinstance(value, Poison):
        return value.cause
    try:
        value.block_until_ready()
    except FAILURES as error:
        if value.is_deleted():  # a later run has overwritten it
            return None
        name, island, where = origin
        return failure_of(name, island, text_of(error), where)
    return None


def why_not(what: str, island: str, error: Exception) -> Diagnostic:
    """Returns the diagnostic of an error, or makes one of its text."""
    if isinstance(error, PathwaysError):
        return error.diagnostic
    return failed_because(what, island=island, cause=text_of(error))


def text_of(error: Exception) -> str:
    return str(error) or type(error).__name__
