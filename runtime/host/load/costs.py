"""Reads from XLA what a run of a plan costs: flops and bytes, and the size of the code. `Compiled.cost_analysis` calls
it for devices of this process, or through each host of a cluster.

A host sends its counts to the client as JSON.
"""

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.plan.instructions import Run
from pathways.dialect.plan.nouns import Plan
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.devices.executable_cache import Executables
from pathways.runtime.host.devices.layouts import Sides
from pathways.runtime.host.load.launches import code_of
from pathways.runtime.host.run.fallible import watched_callbacks
from pathways.runtime.wire.errors import BadMessage

Totals: TypeAlias = defaultdict[str, float]
"""Counts by XLA's names for them."""


@dataclass(eq=False)
class IslandCost:
    """The costs of one run of a plan on an island, summed over its devices. `code` is bytes on one device."""

    totals: Totals = field(default_factory=lambda: Totals(float))
    code: int = 0

    def with_part(self, other: "IslandCost") -> "IslandCost":
        """Adds the costs that another host of the island counted for its devices."""
        for name, value in other.totals.items():
            self.totals[name] += value
        self.code = max(self.code, other.code)
        return self


def costs_of(plan: Plan, sides: Sides, executables: Executables) -> dict[str, IslandCost]:
    """Counts the costs of each island of `sides`.

    The bodies of branches count once, as loops do in XLA, since data decides how often they run.
    """
    found = {s.island: IslandCost() for s in plan.streams if s.island in sides.islands}
    known: dict[tuple[int, int], tuple[Totals, int]] = {}
    for run in plan.runs():
        key = run.computation, run.mesh
        if plan.meshes[run.mesh].island not in sides.islands:
            continue
        island = found.setdefault(plan.meshes[run.mesh].island, IslandCost())
        if key not in known:
            known[key] = _cost(plan, run, sides, executables)
            island.code += known[key][1]
        for name, value in known[key][0].items():
            island.totals[name] += value
    return found


def _cost(plan: Plan, run: Run, sides: Sides, executables: Executables) -> tuple[Totals, int]:
    """Returns the costs of a computation on the gang of a mesh, and the size of its code on one device."""
    computation = plan.computations[run.computation]
    watched = watched_callbacks(run, computation)
    total = Totals(float)
    size = 0
    for module, devices in code_of(computation, sides.devices(run.mesh)):
        code = executables.load(module, devices, watched)
        if watched:  # code with callbacks is never shared: no run uses this one
            executables.retire(watched[0].record)
        for name, value in pjrt.costs(code).items():
            total[name] += value * sum(pjrt.is_here(d) for d in devices)  # other hosts count their own devices
        size = pjrt.code_bytes(code)
    return total, size


def write_costs(costs: Mapping[str, IslandCost]) -> str:
    return json.dumps({island: {"totals": cost.totals, "code": cost.code} for island, cost in costs.items()})


def read_costs(text: str, host: str) -> dict[str, IslandCost]:
    """Reads the output of `write_costs` from a host. Raises PWC0911 for any other text."""
    try:
        read: Any = json.loads(text)
        return {str(island): _read_cost(cost) for island, cost in read.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        rule = "for each island, counts by name and the code size"
        raise PathwaysError(BadMessage(have_=f"costs from {host}: {text[:100]!r}", rule=rule)) from None


def _read_cost(read: Any) -> IslandCost:
    totals, code = read["totals"], read["code"]
    if not isinstance(totals, dict) or type(code) is not int or len(read) != 2:
        raise TypeError
    counts = cast("dict[str, Any]", totals)
    if not all(type(count) in (int, float) for count in counts.values()):
        raise TypeError
    return IslandCost(Totals(float, counts), code)
