"""What a scheduler knows of a run, and what a policy is asked."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Protocol


@dataclass(frozen=True)
class Request:
    """One run of one client's program, admitted as a whole: its work is known, and so is what it needs.

    `bytes` is what it will take on each device that has a limit, beside what clients hold already; `seconds` is what
    one turn is expected to take.
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
        """The lowest goes first; no two runs have the same."""
        ...

    def submitted(self, request: Request) -> None: ...

    def started(self, request: Request) -> None:
        """Its turn has come; a long run may get several."""
        ...

    def ended(self, request: Request) -> None:
        """It is done, or was given up."""
        ...
