"""Checks if a plan fits machines other than those it was compiled for: each of its islands must match one of theirs.
`pwc check --topology` calls it.
"""

from collections.abc import Sequence

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.errors import DoesNotFit
from pathways.dialect.topology import Island, Topology


def check_fit(program: str, needed: Topology, offered: Topology, used: Sequence[str]) -> dict[str, str]:
    """Assigns a different offered island to each island in `used`, largest first. Raises PWC0607 with the numbers."""
    wanted = sorted((needed.island(n) for n in used), key=lambda i: -i.size)
    free = list(offered.islands)
    found: dict[str, str] = {}
    missing: list[Island] = []
    for island in wanted:
        candidates = [f for f in free if _suits(island, f)]
        if not candidates:
            missing.append(island)
            continue
        chosen = min(candidates, key=lambda i: i.size)
        free.remove(chosen)
        found[island.name] = chosen.name
    if missing:
        need = " + ".join(_shown(i) for i in wanted)
        have = " + ".join(_shown(i) for i in offered.islands)
        advice = _closest(missing[0], free)
        raise PathwaysError(DoesNotFit(program=program, have_=have, needs=need, advice=advice))
    return found


def _suits(needed: Island, there: Island) -> bool:
    kind = needed.kind in ("any", there.kind) or there.kind == "any"
    memory = needed.memory is None or there.memory is None or there.memory >= needed.memory
    return kind and memory and there.size >= needed.size


def _shown(island: Island) -> str:
    memory = f" ({island.memory / 1e9:.0f} GB)" if island.memory is not None else ""
    return f"{island.name}: {island.size} x {island.kind}{memory}"


def _closest(missing: Island, free: Sequence[Island]) -> str:
    again = "if its slices fit, compile it for these machines: pwc compile model.py --topology ..."
    if not free:
        return f"no island is free for {missing.name}; {again}"
    nearest = max(free, key=lambda i: i.size)
    lacks = missing.size - nearest.size
    if lacks > 0:
        return f"{nearest.name} has {lacks} devices too few for {missing.name} of the plan; {again}"
    return f"{nearest.name} has enough devices for {missing.name}, but another kind or too little memory; {again}"
