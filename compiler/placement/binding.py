"""Defines the binding of a slice, which a placement policy decides. It then holds for every program of the process."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Binding:
    """An island of the topology and devices of it, in order, to which a slice is bound."""

    island: str
    devices: tuple[int, ...]
