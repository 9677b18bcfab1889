"""Formats the arguments and results of a plan as trees that fit on a screen. A row may stand for a whole subtree of
parameters. `pwc inspect` and `pwc run` use it.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pathways.dialect.plan.nouns import Port
from pathways.dialect.topology import readable

ROWS = 8
"""Maximum number of rows of arguments, of results, or of any other list that grows with the program."""
_KEY = re.compile(r"""\['(?:[^'\\]|\\.)*'\]|\["(?:[^"\\]|\\.)*"\]|\[[^\]]*\]|\.[^.\[]+|[^.\[]+|.""", re.DOTALL)


@dataclass(frozen=True)
class LeafGroup:
    """The leaves below one key path. `members` are their numbers."""

    name: str
    ports: tuple[Port, ...]
    members: tuple[int, ...]

    @property
    def single(self) -> Port | None:
        return self.ports[0] if len(self.ports) == 1 else None

    @property
    def islands(self) -> str:
        return listed(list(dict.fromkeys(p.island for p in self.ports if p.slot >= 0)), 3) or "unused"

    @property
    def donated(self) -> str:
        count = sum(p.donated for p in self.ports)
        return "donated" if count == len(self.ports) else f"{count} of them donated" if count else ""


def listed(texts: Sequence[str], count: int = ROWS) -> str:
    """Lists the first texts, and the total count if there are more."""
    return ", ".join(texts[:count]) + (f", ... ({len(texts)})" if len(texts) > count else "")


def counted(ports: Iterable[Port]) -> str:
    """Describes the number and total size of arrays: `26 arrays, 1.1 MiB`."""
    sizes = [p.type.bytes for p in ports]
    return f"{len(sizes)} array{'' if len(sizes) == 1 else 's'}, {readable(sum(sizes))}"


def keys(name: str) -> list[str]:
    """Splits a key path into steps: `params[0]['w']` -> `params`, `[0]`, `['w']`."""
    return _KEY.findall(name)


def grouped(ports: Sequence[Port], rows: int = ROWS) -> tuple[list[LeafGroup], list[Port]]:
    """Cuts trees at the depth that gives at most `rows` rows. Returns the rows, and the arrays left out.

    All trees are cut at one depth, so that rows are comparable. If a tree branches so widely that it would be one row,
    its first branches are shown, and the others are left out.
    """
    paths = [keys(p.name) for p in ports]
    deepest = max(map(len, paths), default=0)
    found: list[LeafGroup] = []
    for depth in range(1, deepest + 1):
        deeper = _cut(ports, paths, depth)
        if len(deeper) > rows:
            if len(found) <= 1:
                return deeper[:rows], [p for group in deeper[rows:] for p in group.ports]
            break
        found = deeper
    return found, []


def _cut(ports: Sequence[Port], paths: Sequence[Sequence[str]], depth: int) -> list[LeafGroup]:
    members: dict[tuple[str, ...], list[int]] = {}
    for number, path in enumerate(paths):
        members.setdefault(tuple(path[:depth]), []).append(number)
    # A single leaf is shown by its full name, because the row represents no other leaf.
    return [
        LeafGroup(ports[m[0]].name if len(m) == 1 else "".join(key), tuple(ports[i] for i in m), tuple(m))
        for key, m in members.items()
    ]
