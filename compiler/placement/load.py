"""Finding a policy by name: built in, from a file (`my_place.py:pack`), or an entry point in `pathways.passes`."""

import importlib.util
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any, TypeAlias, cast

from pathways.compiler.errors import BadPlacement, BadPolicy
from pathways.compiler.frontend.compat import where_of_exception
from pathways.compiler.placement.balanced import balanced
from pathways.compiler.placement.layout import LayoutPolicy
from pathways.compiler.placement.min_cut import min_cut
from pathways.compiler.placement.optimal import Optimal
from pathways.compiler.placement.pinned import pinned
from pathways.compiler.placement.problem import Placement
from pathways.compiler.placement.spread import spread
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.topology import Topology

Graph: TypeAlias = Any
"""A `networkx.DiGraph` of calls (problem.py); networkx's graphs are generic for type checkers only."""
Policy: TypeAlias = Callable[[Graph, Topology], Placement]

POLICIES: dict[str, Policy] = {
    "spread": spread,
    "pinned": pinned,
    "balanced": balanced,
    "min-cut": min_cut,
    "optimal": Optimal(),
}
"""Built in; `layout:TEXT` (layout.py) and `optimal:nodes=N,seconds=S` carry options."""
LAYOUT = "layout:"
GROUP = "pathways.passes"


def load_policy(name: str) -> Policy:
    """The policy of this name. Raises PWC0307 with what there is."""
    if name in POLICIES:
        return POLICIES[name]
    if name.startswith(LAYOUT):
        return LayoutPolicy(name.removeprefix(LAYOUT))
    if name.startswith("optimal:"):
        return _optimal(name)
    path, colon, attribute = name.rpartition(":")
    if colon and path.endswith(".py"):
        return _as_policy(name, _from_file(name, Path(path), attribute))
    for entry in metadata.entry_points(group=GROUP):
        if entry.name == name:
            return _as_policy(name, entry.load())
    raise _bad(name, "no such policy")


def _optimal(name: str) -> Policy:
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


def _from_file(name: str, path: Path, attribute: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"__placement__{path.stem}", path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise _bad(name, f"no file {path}")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        have = f"{path} raised {type(error).__name__}: {error}"
        raise PathwaysError(
            BadPolicy(policy=name, have_=have, known=_known(), where=where_of_exception(error))
        ) from error
    if not hasattr(module, attribute):
        raise _bad(name, f"{path} has no {attribute}")
    return getattr(module, attribute)


def _as_policy(name: str, found: Any) -> Policy:
    """A function, or a class (or object) with a method `place`."""
    candidate = found() if isinstance(found, type) else found
    policy: Any = getattr(candidate, "place", candidate)
    if not callable(policy):
        raise _bad(name, f"a {type(found).__name__}")
    return cast("Policy", policy)


def run_policy(name: str, policy: Policy, graph: Graph, topology: Topology) -> Placement:
    """Asks a policy. Its own exceptions become PWC0305 at its own line; coded errors pass."""
    try:
        placement: Any = policy(graph, topology)
    except PathwaysError:
        raise
    except Exception as error:
        have = f"{type(error).__name__}: {error}"
        where = where_of_exception(error)
        raise PathwaysError(BadPlacement(policy=name, have_=have, rule="an answer", where=where)) from error
    if not isinstance(placement, Placement):
        have = f"a {type(placement).__name__}"
        raise PathwaysError(BadPlacement(policy=name, have_=have, rule="a Placement(bindings, reasons)"))
    return placement


def _known() -> str:
    entries = [e.name for e in metadata.entry_points(group=GROUP)]
    return ", ".join(sorted([*POLICIES, *entries]))


def _bad(name: str, have: str) -> PathwaysError:
    return PathwaysError(BadPolicy(policy=name, have_=have, known=_known()))
