"""What the scheduler knows of a run, and the interface of a scheduling policy."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Protocol


@dataclass(frozen=True)
class Request:
    """One run of one client's program, admitted as a whole: its work and the memory it needs are known.

    `bytes` is the memory that it will take on each device that has a limit, beside what clients hold already;
    `seconds` is the time that one turn is expected to take.
    """

    number: int
    client: str
    program: str
    islands: frozenset[str]
    weight: float = 1.0
    seconds: float = 1e-3
    bytes: Mapping[Hashable, int] = field(default_factory=dict[Hashable, int])


class SchedulingPolicy(Protocol):
    """Ranks waiting runs. Ranks are the same on all islands, so that runs that span several meet in one order."""

    name: ClassVar[str]

    def rank(self, request: Request) -> tuple[float, int]:
        """Ranks a run: the lowest goes first. The second number is the run's own.

        The rank of a waiting run may change only when a run of its client is submitted, started or ended.
        """
        ...

    def submitted(self, request: Request) -> None: ...

    def started(self, request: Request) -> None:
        """Notes that a run's turn has come; a long run may get several."""
        ...

    def ended(self, request: Request) -> None:
        """Notes that a run is done, or was cancelled."""
        ...
