"""Defines what the scheduler knows about a run: its client, islands and memory. It also defines the interface of a
scheduling policy.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Protocol


@dataclass(slots=True)
class Cost:
    """The expected seconds of a slot of a plan: a moving average over its runs, of all clients that have the plan."""

    seconds: float = 1e-3

    def measured(self, seconds: float) -> None:
        """Adds a run whose slots took this long."""
        self.seconds += (seconds - self.seconds) / 8


@dataclass(frozen=True)
class Request:
    """One run of a client's program. It is admitted as a whole, since its work and its memory are known.

    `bytes`: memory that the run needs on each device that has a limit, in addition to what clients hold. `cost` may
    change while the run waits: what was expected at its submission may be wrong by a factor of ten.
    """

    number: int
    client: str
    program: str
    islands: frozenset[str]
    weight: float = 1.0
    cost: Cost = field(default_factory=Cost)
    bytes: Mapping[Hashable, int] = field(default_factory=dict[Hashable, int])

    @property
    def seconds(self) -> float:
        """Returns the expected time of one scheduler slot, as known now."""
        return self.cost.seconds


class SchedulingPolicy(Protocol):
    """Ranks waiting runs. Ranks are equal on all islands, so that runs over several islands have one order."""

    name: ClassVar[str]

    def rank(self, request: Request) -> tuple[float, int]:
        """Returns the rank of a run: the lowest goes first. The second number is the run's own number.

        The rank of a waiting run may change only when a run of its client is submitted, started or completed.
        """
        ...

    def submitted(self, request: Request) -> None: ...

    def started(self, request: Request) -> None:
        """Called when a run gets a slot; a long run may get several slots."""
        ...

    def ended(self, request: Request) -> None:
        """Called when a run completes or is cancelled."""
        ...
