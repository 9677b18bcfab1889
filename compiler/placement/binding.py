"""Where a slice is bound: what placement decides, and what holds for every program of a process from then on."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Binding:
    """Where a slice is bound: an island of the topology, and devices of it in order."""

    island: str
    devices: tuple[int, ...]
