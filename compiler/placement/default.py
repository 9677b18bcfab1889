"""Makes a topology if the user states none, on a platform that can create devices on demand (simulated CPU devices).
The pass `place` calls it.
"""

import itertools

from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.platforms import platform_named
from pathways.dialect.topology import Island, Topology


def default_topology(program: ProgramIR) -> Topology:
    """Makes one island for each slice, and larger ones if slices must share. An implicit slice gets one device."""
    sizes: dict[str, int] = {}
    names: dict[str, str] = {}
    pins = {op.pin for op in program.slices.values()}
    fresh = (name for i in itertools.count() if (name := f"island{i}") not in pins)
    for symbol, op in program.slices.items():
        name = op.pin or (names[op.near] if op.near else next(fresh))
        names[symbol] = name
        sizes[name] = sizes.get(name, 0) + op.devices
    kind = kind_of_made(program.platform)
    islands = [Island(name, devices=size, kind=kind) for name, size in sizes.items()]
    return Topology(tuple(islands) or (Island("island0", devices=1, kind=kind),))


def kind_of_made(platform: str) -> str:
    """Returns the kind of the devices that a platform creates on demand; `any` if it creates none."""
    will = platform_named(platform).made_at_will
    return "any" if will is None else will.kind
