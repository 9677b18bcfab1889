"""What users see of a computation that has failed: its own error, or that a host which took part in it is gone."""

from pathways.dialect.diagnostics import Diagnostic, Where
from pathways.dialect.platforms import is_broken_collective
from pathways.runtime.errors import ComputationFailed
from pathways.runtime.wire.errors import HostLost


def failure_of(name: str, island: str, cause: str, where: Where | None) -> Diagnostic:
    """Says why a computation has failed. Its controller ends all hosts of an island of which one is gone; others learn
    of that from their collective, often before."""
    if is_broken_collective(cause):
        return HostLost(island=island, reason=f"a collective of {name} has lost one of its hosts: {cause}", where=where)
    return ComputationFailed(computation=name, island=island, cause=cause, where=where)
