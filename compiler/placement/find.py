"""Finds the placement policy that the user names, and calls it. Errors of a user's own policy are reported at its
source line. The compiler pass `place` uses this module.

A policy is built in, comes from a file (`my_place.py:pack`), or is an entry point in `pathways.passes`.
"""

from collections.abc import Callable
from typing import Any, TypeAlias, cast

from pathways.compiler.errors import BadPlacement, BadPolicy
from pathways.compiler.placement.balanced import balanced
from pathways.compiler.placement.layout import LayoutPolicy
from pathways.compiler.placement.min_cut import min_cut
from pathways.compiler.placement.optimal import Optimal
from pathways.compiler.placement.pinned import pinned
from pathways.compiler.placement.problem import Placement
from pathways.compiler.placement.spread import spread
from pathways.dialect.diagnostics import PathwaysError, Where
from pathways.dialect.plugins import PluginError, entry_point_names, find_plugin
from pathways.dialect.topology import Topology
from pathways.dialect.user_line import where_of_exception

CallGraph: TypeAlias = Any
"""A `networkx.DiGraph` of calls (problem.py); networkx's graphs are generic for type checkers only."""
PlacementPolicy: TypeAlias = Callable[[CallGraph, Topology], Placement]

POLICIES: dict[str, PlacementPolicy] = {
    "spread": spread,
    "pinned": pinned,
    "balanced": balanced,
    "min-cut": min_cut,
    "optimal": Optimal(),
}
"""The built-in policies. `layout:TEXT` (layout.py) and `optimal:nodes=N,seconds=S` carry options."""
LAYOUT = "layout:"


def find_placement(name: str) -> PlacementPolicy:
    """Returns the policy of this name. Raises PWC0307 with the known names."""
    if name in POLICIES:
        return POLICIES[name]
    if name.startswith(LAYOUT):
        return LayoutPolicy(name.removeprefix(LAYOUT))
    if name.startswith("optimal:"):
        return _optimal(name)
    try:
        return _as_policy(name, find_plugin(name))
    except PluginError as error:
        raise _bad(name, error.have, error.where) from error


def _optimal(name: str) -> PlacementPolicy:
    options: dict[str, Any] = {}
    for option in name.partition(":")[2].split(","):
        key, _, value = option.partition("=")
        try:
            options[key] = {"nodes": int, "seconds": float}[key](value)
            if not options[key] > 0:
                raise ValueError
        except (KeyError, ValueError):
            raise _bad(name, f"the option {option!r}; options are nodes=N and seconds=S, both above 0") from None
    return Optimal(**options)


def _as_policy(name: str, found: Any) -> PlacementPolicy:
    """Returns the policy of a plugin: a function, or a class (or object) with a method `place`."""
    try:
        candidate = found() if isinstance(found, type) else found
    except Exception as error:
        have = f"a class whose constructor raised {type(error).__name__}: {error}"
        raise _bad(name, have, where_of_exception(error)) from error
    policy: Any = getattr(candidate, "place", candidate)
    if not callable(policy):
        raise _bad(name, f"a {type(found).__name__}")
    return cast("PlacementPolicy", policy)


def run_policy(name: str, policy: PlacementPolicy, graph: CallGraph, topology: Topology) -> Placement:
    """Calls a policy. Its own exceptions become PWC0305 at its own line; coded errors pass unchanged."""
    try:
        placement: Any = policy(graph, topology)
    except PathwaysError:
        raise
    except Exception as error:
        have = f"{type(error).__name__}: {error}"
        where = where_of_exception(error)
        raise PathwaysError(
            BadPlacement(policy=name, have_=have, rule="a Placement as result", did="raised an exception", where=where)
        ) from error
    if not isinstance(placement, Placement):
        have = f"a {type(placement).__name__}"
        raise PathwaysError(BadPlacement(policy=name, have_=have, rule="a Placement(bindings, reasons)"))
    return placement


def _bad(name: str, have: str, where: Where | None = None) -> PathwaysError:
    known = ", ".join(sorted([*POLICIES, *entry_point_names()]))
    return PathwaysError(BadPolicy(policy=name, have_=have, known=known, where=where))
