"""Finds the scheduling policy that the user names: a built-in one, a class in a Python file, or an entry point. A
controller calls it when it starts.

An error in a user's policy must not reach the host or client whose event called the policy. After its first error,
which is printed, runs are served first come, first served.
"""

import math
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.errors import BadArguments
from pathways.dialect.plugins import PluginError, make_plugin
from pathways.dialect.user_line import where_of_exception
from pathways.runtime.control.scheduling import SCHEDULING_POLICIES, Request, SchedulingPolicy
from pathways.runtime.control.scheduling.fifo import Fifo

_T = TypeVar("_T")

_ADVICE = "PATHWAYS_POLICY=stride (the default) or mine.py:Lottery; for a cluster: pwc cluster start --policy"


class Guarded:
    """Wraps a user's policy; switches to first come, first served at the policy's first error."""

    def __init__(self, policy: SchedulingPolicy) -> None:
        self.name = str(policy.name)
        self._policy: SchedulingPolicy = policy
        self._fallback = Fifo()

    def _ask(self, work: Callable[[SchedulingPolicy], _T]) -> _T:
        try:
            return work(self._policy)
        except Exception as error:
            if self._policy is self._fallback:
                raise
            where = where_of_exception(error)
            at = "" if where is None else f" at {where.file}:{where.line}"
            print(f"note: policy {self.name} failed{at}: {type(error).__name__}: {error}", file=sys.stderr)
            print("note: from now on, runs are scheduled in order of submission (fifo)", file=sys.stderr, flush=True)
            self.name, self._policy = f"fifo ({self.name} failed)", self._fallback
            return work(self._policy)

    def rank(self, request: Request) -> tuple[float, int]:
        return self._ask(lambda policy: _checked(policy.rank(request)))

    def submitted(self, request: Request) -> None:
        self._ask(lambda policy: policy.submitted(request))

    def started(self, request: Request) -> None:
        self._ask(lambda policy: policy.started(request))

    def ended(self, request: Request) -> None:
        self._ask(lambda policy: policy.ended(request))


def _checked(rank: tuple[float, int]) -> tuple[float, int]:
    """Returns a valid rank. Raises ValueError for NaN, which cannot be ordered."""
    first, number = float(rank[0]), int(rank[1])
    if math.isnan(first):
        raise ValueError("the rank is not a number")
    return first, number


def find_scheduling_policy(name: str) -> SchedulingPolicy:
    """Returns the scheduling policy with a name: built in, FILE.py:CLASS, or an entry point. Raises PWC0104."""
    if name in SCHEDULING_POLICIES:
        return SCHEDULING_POLICIES[name]()
    try:
        made = make_plugin(name)
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
            "all attributes of SchedulingPolicy in pathways.runtime.control.scheduling",
        )
        have = f"{name} without {', '.join(missing)}"
        raise PathwaysError(BadArguments(problem=problem, have_=have, rule=rule, advice=_ADVICE))
    guarded: Any = Guarded(made)
    return guarded
