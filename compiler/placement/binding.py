"""Defines a binding: the island and the devices on which a slice of virtual devices runs. A placement policy decides it
once, and it then holds for every program of the process.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Binding:
    """An island of the topology and devices of it, in order, to which a slice is bound."""

    island: str
    devices: tuple[int, ...]
