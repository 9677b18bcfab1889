"""Defines the table of buffers of one run (its frame), and steps, the prepared instructions that read and fill it. A
step must never wait for data.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from pathways.dialect.plan.instructions import Instruction, Run
from pathways.dialect.plan.nouns import Plan
from pathways.runtime.host.between.data_plane import Unsent
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.devices.in_flight_limit import DeviceQueue, Gang
from pathways.runtime.host.devices.islands import PhysicalIsland
from pathways.runtime.host.run.decisions import RunDecisions
from pathways.runtime.host.run.poison import Poison
from pathways.runtime.states import Life, States

_NO_SOURCES: Mapping[str, Any] = MappingProxyType({})


class Frame:
    """The values of one run of a plan, or of one run of a body."""

    __slots__ = ("base", "decisions", "early", "edges", "sources", "tokens", "transfers", "unsent", "values")

    def __init__(
        self,
        size: int,
        constants: Sequence[tuple[int, Any]],
        base: int = -1,
        transfers: int = 0,
        decisions: RunDecisions | None = None,
        sources: Mapping[str, Any] = _NO_SOURCES,
    ) -> None:
        self.values: list[Any] = [None] * size
        """By slot: the buffers of all islands, then values in transit between islands."""
        self.tokens: list[Any] = []
        """Tokens of the last launches: when they are done, no device's queue holds work of this run."""
        self.early: list[Any] = []
        """Tokens of earlier launches, by which the watchdog sees progress."""
        self.base = base
        """The first of its launch ids; -1: it has none yet."""
        self.transfers = transfers
        """The first of the numbers under which its values are sent to other hosts."""
        self.sources = sources
        """The sources of other hosts' values, by host. A host that has exited since the run was sent keeps its entry:
        the host that replaces it does not know this run."""
        self.decisions = decisions
        """The decisions between hosts, if there are several hosts."""
        self.edges: dict[int, Life] = {}
        """The states of the values that go between hosts (runtime/states.py), by number."""
        self.unsent: list[tuple[int, Unsent]] = []
        """Values for other hosts that no thread is sending yet, each with its bit (`InboundValue.sent`)."""
        for slot, array in constants:
            self.values[slot] = array

    def transition_edge(self, states: States, number: int, event: str) -> None:
        """Notes an event of a value that goes between hosts. Raises InternalError if its state does not allow it."""
        if (life := self.edges.get(number)) is None:
            life = self.edges[number] = Life(states)
        life.transition(event)


class Start(NamedTuple):
    """Holds the arguments of `launch_step` (host/load/steps.py), which launches the computation of a step."""

    poison: Callable[[Run, str, Sequence[Any], Exception], Poison]
    """Makes the poison for the results if the launch fails."""
    run: Run
    island: str
    inputs: Sequence[int]
    outputs: Sequence[int]
    emptied: Sequence[int]
    gang: Gang
    launch: Callable[[list[Any], Sequence[int], Sequence[int], int, bool, bool], Sequence[Any]]
    """A `Launcher` (host/load/launches.py)."""
    number: int
    last: bool
    """Whether no later launch of the run uses these devices."""

    def row(self, constants: Sequence[tuple[int, Any]]) -> list[Any]:
        """Returns the operands of the launch: constants, and None for those that each launch fills in."""
        known = dict(constants)
        return [known.get(slot) for slot in self.inputs]

    def places(self, slot: int) -> list[int]:
        """Returns the numbers of the operands that read a slot."""
        return [number for number, read in enumerate(self.inputs) if read == slot]

    def failed(self, operands: Sequence[Any], error: Exception) -> list[Any]:
        """Returns the results of a launch that has failed: poison."""
        return [self.poison(self.run, self.island, operands, error)] * len(self.outputs)


class AtOnce(NamedTuple):
    """Launches a computation that is the only one of its run."""

    start: Callable[[Sequence[Any], int], tuple[Sequence[Any], list[Any]]]
    """Launches on a row of operands under a launch id; returns tokens, and the results."""
    keep: Callable[[Sequence[Any], Sequence[Any]], None]
    """Keeps tokens for the in-flight limit, if `Gang.next_is_due` has returned True and the results are not ready."""


@dataclass(frozen=True, eq=False)
class Step:
    """One prepared instruction: `enqueue` executes it; the other fields describe it to observers.

    `outputs` are the slots that it fills, `emptied` the slots that it empties. `launch` is its launch id minus the
    first launch id of the frame; -1: it launches no computation.
    """

    enqueue: Callable[[Frame], None]
    instruction: Instruction
    island: PhysicalIsland
    plan: Plan
    outputs: Sequence[int] = ()
    emptied: Sequence[int] = ()
    devices: tuple[pjrt.Device, ...] = ()
    queues: tuple[DeviceQueue, ...] = ()
    launch: int = -1
    start: Start | None = None
    """The launch that it makes, if any."""
    at_once: AtOnce | None = None
    """The same launch for a plan that has no other step."""

    def fail(self, frame: Frame, poison: Poison) -> None:
        """Fills its outputs with poison instead of enqueuing it."""
        for slot in self.outputs:
            frame.values[slot] = poison
        for slot in self.emptied:
            frame.values[slot] = None


@dataclass(frozen=True, eq=False)
class Part:
    """A group of steps that are enqueued without other runs in between."""

    steps: list[Step]
