"""The topology for when the user names none: on CPU, where devices can be made at will, one island a slice."""

import itertools

from pathways.dialect.ir.program import Program
from pathways.dialect.topology import Island, Topology

CPU_KIND = "cpu"
"""What CPU devices call themselves."""


def default_topology(program: Program) -> Topology:
    """One island for each slice, and larger ones where slices must share; an implicit slice gets one device."""
    sizes: dict[str, int] = {}
    names: dict[str, str] = {}
    pins = {op.pin for op in program.slices.values()}
    fresh = (name for i in itertools.count() if (name := f"island{i}") not in pins)
    for symbol, op in program.slices.items():
        name = op.pin or (names[op.near] if op.near else next(fresh))
        names[symbol] = name
        sizes[name] = sizes.get(name, 0) + op.devices
    islands = [Island(name, devices=size, kind=CPU_KIND) for name, size in sizes.items()]
    return Topology(tuple(islands) or (Island("island0", devices=1, kind=CPU_KIND),))
