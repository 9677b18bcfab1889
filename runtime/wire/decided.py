"""What is said of the branches of a run between its hosts: what they go by, or that nothing more will be decided."""

from pathways.dialect.diagnostic_json import write_diagnostic
from pathways.dialect.diagnostics import Diagnostic
from pathways.runtime.wire import messages as m

Said = m.Decided | m.Undecided
"""A decision of a run, by its name: a value, or why there will be none."""
DOOMED, CANCELLED = -1, -2
"""Names of all that is not decided yet: between hosts, and of loops on one host, too."""
ENDED = -3
"""The name of whatever a loop would come to next, for hosts that go by decisions in one order."""


def doom(run: int, cause: Diagnostic, *, cancelled: bool) -> m.Undecided:
    """Says that nothing more of a run will be decided: a host of it is gone, or it was cancelled."""
    return m.Undecided(run, 0, 0, CANCELLED if cancelled else DOOMED, write_diagnostic(cause))
