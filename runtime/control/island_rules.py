"""Checks if a given island may be added to a running cluster or removed from it, and states the reason if not.
`island_changes.py` calls it. Pure functions.
"""

import re
from collections.abc import Container, Iterator
from itertools import count

from pathways.dialect.diagnostics import Diagnostic
from pathways.dialect.ranks import RankTable
from pathways.dialect.topology import Island, Topology
from pathways.runtime.wire.errors import NotOverProcesses, WrongIslands

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def refused_new(topology: Topology, island: Island, ranks: RankTable) -> Diagnostic | None:
    """Returns why an island cannot be added, None if it can. `ranks` is the table that hosts received at the start."""
    if not _NAME.fullmatch(island.name):
        rule = "1 to 64 letters, digits, - and _: files and sockets have this name, too"
        return WrongIslands(problem="the name is not valid", have_=repr(island.name), rule=rule)
    if island.name in topology.names:
        problem, rule = f"there is already an island {island.name}", "another name"
        return WrongIslands(problem=problem, have_=str(topology), rule=rule)
    if ranks.count(island.name) != island.hosts:
        have = f"{island.name} with {island.hosts} hosts"
        rule = "one host, or as many hosts as the island of this name had at the start"
        return NotOverProcesses(what="adding the island", have_=have, rule=rule)
    return None


def refused_removal(topology: Topology, name: str) -> Diagnostic | None:
    """Returns why an island cannot be removed, None if it can."""
    if name not in topology.names:
        problem, rule = f"there is no island {name}", "the name of an island"
    elif len(topology.islands) == 1:
        problem, rule = f"{name} is the last island", "at least one island that remains"
    else:
        return None
    return WrongIslands(problem=problem, have_=str(topology), rule=rule)


def new_names(known: Container[str]) -> Iterator[str]:
    """Yields unused island names."""
    return (name for number in count() if (name := f"island{number}") not in known)
