"""Defines poison, the error value that takes the place of an array that was never computed. It carries the first cause,
and every computation that reads it passes it on to its results.
"""

from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from pathways.dialect.diagnostics import Diagnostic, PathwaysError, Where
from pathways.runtime.errors import DeviceLost
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.devices.callbacks import type_raised
from pathways.runtime.host.devices.islands import PhysicalIsland

Origin: TypeAlias = tuple[str, str, Where | None]
"""The computation that makes a value, its island, and the user's line."""


@dataclass(frozen=True)
class Poison:
    """The content of a slot whose computation failed: the first cause, for all downstream computations."""

    cause: Diagnostic

    def error(self) -> PathwaysError:
        """Makes the error that a user sees. It is also of the class that a host callback of this process has raised."""
        raised = type_raised(self.cause.text(self.cause.have))
        return PathwaysError(self.cause, also=() if raised is None else (raised,))


def lost_among(islands: Iterable[PhysicalIsland], devices: Container[pjrt.Device] | None = None) -> Poison | None:
    """Returns the poison of the first lost device of some islands, among `devices` if these are given."""
    for island in islands:
        for position in list(island.lost):
            if devices is None or island.devices[position] in devices:
                return lost_poison(island, position)
    return None


def lost_poison(island: PhysicalIsland, position: int) -> Poison:
    """Returns the poison for values on a lost device."""
    reason = island.lost.get(position, "it was lost for some time")
    return Poison(island.causes.get(position) or DeviceLost(island=island.key, device=position, reason=reason))
