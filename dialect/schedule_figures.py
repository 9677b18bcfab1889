"""The schedule of a program in numbers, as IR and plans carry it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """The order of the work, and what it costs. `note` says why it is not what was asked for.

    A bubble is the part of the time in which the slices of a pipeline wait; `bound` is the least that any order of the
    same work has. Both are given for equal stages (F 1, B 2, I 1, W 1), and `estimated` with the flops of each call.
    """

    name: str
    note: str = ""
    stages: int = 0
    slices: int = 0
    microbatches: int = 0
    bubble: float = 0.0
    bound: float = 0.0
    estimated_bubble: float = 0.0
    estimated_bound: float = 0.0
    estimated_seconds: float = 0.0
