"""Makes the messages about the decisions of a data-dependent loop or branch that several hosts execute: a value was
decided, or none will be. The hosts of a run exchange them through the controller.
"""

from pathways.dialect.diagnostic_json import write_diagnostic
from pathways.dialect.diagnostics import Diagnostic
from pathways.runtime.wire import messages as m

Outcome = m.Decided | m.Undecided
"""A decision of a run, identified by its name: a value, or the reason why there will be none."""
DOOMED, CANCELLED = -1, -2
"""Names that stand for all open decisions of a run: those between hosts, or also those of loops on one host."""
ENDED = -3
"""Name that stands for the next decision of a loop, for hosts that take decisions in one common order."""


def doom(run: int, cause: Diagnostic, *, cancelled: bool) -> m.Undecided:
    """Builds the message that nothing more of a run will be decided: one of its hosts is lost, or it was cancelled."""
    return m.Undecided(run, 0, 0, CANCELLED if cancelled else DOOMED, write_diagnostic(cause))
