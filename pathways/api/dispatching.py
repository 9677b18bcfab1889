"""Names the two ways to enqueue the computations of a plan: many at once without waiting (parallel), or one after the
other (sequential). Users choose one with the option `dispatch`.
"""

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.errors import BadArguments
from pathways.dialect.user_line import caller

PARALLEL, SEQUENTIAL = DISPATCH = ("parallel", "sequential")


def is_sequential(dispatch: str) -> bool:
    """Returns whether a dispatch name means sequential. Raises PWC0104 for an unknown name."""
    if dispatch not in DISPATCH:
        problem, rule = "the dispatch mode is unknown", " or ".join(DISPATCH)
        advice, have = "use dispatch='parallel'; the other mode is for comparisons", repr(dispatch)
        error = BadArguments(problem=problem, have_=have, rule=rule, advice=advice, where=caller())
        raise PathwaysError(error)
    return dispatch == SEQUENTIAL
