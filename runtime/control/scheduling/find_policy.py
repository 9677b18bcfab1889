"""Finds the scheduling policy that a user names: a built-in one, a class in a file, or an entry point."""

from typing import Any

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.errors import BadArguments
from pathways.dialect.plugins import PluginError, find_plugin
from pathways.runtime.control.scheduling import SCHEDULING_POLICIES, SchedulingPolicy

_ADVICE = "PATHWAYS_POLICY=stride, the default, or mine.py:Lottery"


def find_scheduling_policy(name: str) -> SchedulingPolicy:
    """Finds the scheduling policy of islands by name: built in, FILE.py:CLASS, or an entry point. Raises PWC0104."""
    if name in SCHEDULING_POLICIES:
        return SCHEDULING_POLICIES[name]()
    try:
        made: Any = find_plugin(name)()
    except PluginError as error:
        rule = f"{', '.join(SCHEDULING_POLICIES)}, or FILE.py:CLASS"
        problem = "there is no such scheduling policy"
        wrong = BadArguments(
            problem=problem,
            have_=f"{name}: {error.have}",
            rule=rule,
            advice=_ADVICE,
            where=error.where,
        )
        raise PathwaysError(wrong) from None
    missing = [m for m in ("name", "rank", "submitted", "started", "ended") if not hasattr(made, m)]
    if missing:
        problem, rule = (
            "a scheduling policy is incomplete",
            "what runtime/control/scheduling/request.py says of a SchedulingPolicy",
        )
        have = f"{name} without {', '.join(missing)}"
        raise PathwaysError(BadArguments(problem=problem, have_=have, rule=rule, advice=_ADVICE))
    return made
