"""Defines what the scheduler knows about a run: its client, islands and memory. It also defines the interface of a
scheduling policy.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Protocol


@dataclass(frozen=True)
class Request:
    """One run of a client's program. It is admitted as a whole, since its work and its memory are known.

    `bytes`: memory that the run needs on each device that has a limit, in addition to what clients hold. `seconds`: the
    expected time of one scheduler slot.
    """

    number: int
    client: str
    program: str
    islands: frozenset[str]
    weight: float = 1.0
    seconds: float = 1e-3
    bytes: Mapping[Hashable, int] = field(default_factory=dict[Hashable, int])


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
