"""Defines what a plan states about one of its StableHLO modules, and the exception for a module that breaks a rule. All
checks in this folder use them.
"""

from dataclasses import asdict, dataclass
from typing import Any

from pathways.dialect.dtypes import ArrayType
from pathways.dialect.sharding import Axes, Dims, size_of_axes


@dataclass(frozen=True)
class Stated:
    """The signature that a module must have, and its platform."""

    inputs: tuple[ArrayType, ...]
    in_layouts: tuple[Dims, ...]
    outputs: tuple[ArrayType, ...]
    out_layouts: tuple[Dims, ...]
    donated: tuple[int, ...]
    axes: Axes
    platform: str

    @property
    def partitions(self) -> int:
        return size_of_axes(self.axes)


def as_json(stated: Stated) -> dict[str, Any]:
    return asdict(stated)


def from_json(row: dict[str, Any]) -> Stated:
    return Stated(
        inputs=tuple(ArrayType(tuple(t["shape"]), t["dtype"]) for t in row["inputs"]),
        in_layouts=tuple(_dims(d) for d in row["in_layouts"]),
        outputs=tuple(ArrayType(tuple(t["shape"]), t["dtype"]) for t in row["outputs"]),
        out_layouts=tuple(_dims(d) for d in row["out_layouts"]),
        donated=tuple(row["donated"]),
        axes=tuple((name, size) for name, size in row["axes"]),
        platform=row["platform"],
    )


def _dims(rows: list[list[str]]) -> Dims:
    return tuple(tuple(axes) for axes in rows)


class Refused(Exception):
    """A module breaks a rule. `problem` is a text put after the module's name; `target`: an unknown custom call."""

    def __init__(self, problem: str, target: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.target = target
