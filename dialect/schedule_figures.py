"""Defines the figures of a pipeline schedule: its name, and its idle time (bubble) for equal stages. The compiler
stores them in IR and plans; `pwc inspect` and viz show them.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """Name and cost of a schedule. `note` says why it is not the requested one.

    A bubble is the fraction of the time in which the slices of a pipeline wait. `bound` is the smallest bubble of any
    order of the same work. Both assume equal stages (F 1, B 2, I 1, W 1). A simulation has the times of real stages.
    """

    name: str
    note: str = ""
    stages: int = 0
    slices: int = 0
    microbatches: int = 0
    bubble: float = 0.0
    bound: float = 0.0
