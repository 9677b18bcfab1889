"""Implements the placement policy `layout`: the user assigns pipeline stages to islands in a short text, `embed*1
block*4 | block*4 head`.

Each item is a slice, named by a function that runs on it, with the number of consecutive slices like it. `|` starts the
next island of the topology. Slices are taken in the order of their first calls. `+` may stand for a space.
"""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pathways.compiler.errors import BadLayout
from pathways.compiler.placement.balanced import chain_order
from pathways.compiler.placement.binding import Binding
from pathways.compiler.placement.cost import CostModel
from pathways.compiler.placement.problem import FreeDevices, Placement
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.topology import Topology

if TYPE_CHECKING:
    import networkx as nx

_ITEM = re.compile(r"([\w.<>-]+?)(?:\*(\d+))?$")


@dataclass(frozen=True)
class LayoutPolicy:
    """A policy that assigns stages to islands by a layout string, `embed*1 block*4 | block*4 head`."""

    text: str

    def __call__(self, graph: "nx.DiGraph[Any]", topology: Topology) -> Placement:
        """Raises PWC0308 if the text does not name exactly the program's slices in order."""
        model = CostModel(graph, topology)
        order = [r for r in chain_order(model) if any(s == r.symbol for s, _ in model.calls)]
        runs = functions_by_slice(graph)
        rows = parse_layout(self.text)
        if len(rows) > len(topology.islands):
            raise self._bad(f"{len(rows)} islands in the layout", f"at most {len(topology.islands)}: {topology}")
        wanted = [(name, row) for row, names in enumerate(rows) for name in names]
        have = " ".join("/".join(runs[r.symbol][:2]) for r in order)
        if len(wanted) != len(order):
            raise self._bad(f"{len(wanted)} stages", f"{len(order)}, one per slice: {have}")
        for (name, _), request in zip(wanted, order, strict=True):
            if name not in runs[request.symbol]:
                raise self._bad(f"{name} for {request.symbol}, which runs {', '.join(runs[request.symbol])}", have)
        free = FreeDevices(topology, model.slices)
        bindings: dict[str, Binding] = {}
        reasons: dict[str, str] = {}
        for (name, row), request in zip(wanted, order, strict=True):
            island = topology.islands[row]
            if request.bound is None and (not request.fits(island) or free.count(island.name) < request.devices):
                raise free.refuse(f"the layout puts {request.symbol} ({name}) on {island.name}")
            bindings[request.symbol] = request.bound or free.take(request, island.name)
            reasons[request.symbol] = f"set by the layout: {name} in part {row + 1} of {len(rows)}"
        for request in model.slices:  # slices without calls are not stages, so the text does not name them
            if request.symbol not in bindings:
                island = next((i.name for i in topology.islands if free.count(i.name) >= request.devices), None)
                if island is None:
                    raise free.refuse()
                bindings[request.symbol] = request.bound or free.take(request, island)
                reasons[request.symbol] = "has no calls: the first island with room"
        return Placement(bindings, reasons)

    def _bad(self, have: str, rule: str) -> PathwaysError:
        return PathwaysError(BadLayout(layout=self.text, have_=have, rule=rule))


def functions_by_slice(graph: "nx.DiGraph[Any]") -> dict[str, list[str]]:
    """Returns the functions that run on each slice, those that the user placed there first."""
    found: dict[str, dict[str, bool]] = {r.symbol: {} for r in graph.graph["slices"]}
    for _, node in graph.nodes(data=True):
        if node.get("name"):
            names = found[node["slice"]]
            names[node["name"]] = names.get(node["name"], True) and node.get("gathered", False)
    return {s: sorted(names, key=lambda n, names=names: names[n]) for s, names in found.items()}


def parse_layout(text: str) -> list[list[str]]:
    """Returns the stages of each island; `block*2` counts twice. Raises PWC0308 for text that cannot be parsed."""
    rows: list[list[str]] = []
    for part in text.split("|"):
        row: list[str] = []
        for item in part.replace("+", " ").split():
            match = _ITEM.match(item)
            if match is None:
                raise PathwaysError(BadLayout(layout=text, have_=item, rule="NAME or NAME*COUNT, islands split by |"))
            row += [match[1]] * int(match[2] or 1)
        rows.append(row)
    return rows
