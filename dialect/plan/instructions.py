"""The instructions of a plan: the fields of each, and the slots it reads, writes and drops. Declared here alone.

A new instruction is a class here, an op in dialect/ir/pw.py with the same fields, a message in plan.proto, code that
makes it (compiler/buffers/streams.py), and code that runs it (runtime/host/load/steps.py); a test compares the tables.
Fields named `name` and `where` are the location of the op; all others are its attributes, by the same name or by
the one that `Refers` states, where a number stands for a symbol.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple, TypeAlias

from pathways.dialect.diagnostics import Where

Slots: TypeAlias = tuple[int, ...]


class Effects(NamedTuple):
    """Slots of its island that an instruction reads, writes and drops."""

    reads: Slots
    writes: Slots
    drops: Slots


@dataclass(frozen=True)
class Refers:
    """Marks a field of one index or several into a table of the plan: symbols in the IR, maybe by another name."""

    table: str
    attribute: str = ""


@dataclass(frozen=True)
class Run:
    """Enqueue `computation` (index) on the gang of `mesh` (index); slots in, slots out."""

    KIND: ClassVar[str] = "run"
    COUNTED: ClassVar[tuple[str, str]] = ("run", "runs")
    step: int
    computation: Annotated[int, Refers("computations", "callee")]
    mesh: Annotated[int, Refers("meshes")]
    inputs: Slots
    outputs: Slots
    donated: Slots
    name: str
    where: Where | None
    temporaries: int = 0
    """Bytes on one device that the executable needs while it runs."""
    action: str = ""
    """Its action in a pipeline: `2F3` is stage 2, forward, microbatch 3."""
    parts: tuple[str, ...] = ()
    """The calls that were merged into it, each with its action and line."""

    @property
    def effects(self) -> Effects:
        return Effects(self.inputs, self.outputs, tuple([self.inputs[i] for i in self.donated]))


@dataclass(frozen=True)
class Send:
    """Offer a buffer to the island `to`, on a channel."""

    KIND: ClassVar[str] = "send"
    COUNTED: ClassVar[tuple[str, str]] = ("send", "sends")
    step: int
    channel: int
    slot: int
    to: str
    where: Where | None

    @property
    def effects(self) -> Effects:
        return Effects((self.slot,), (), ())


@dataclass(frozen=True)
class Recv:
    """Take a buffer from the island `source`, on a channel."""

    KIND: ClassVar[str] = "recv"
    COUNTED: ClassVar[tuple[str, str]] = ("receive", "receives")
    step: int
    channel: int
    slot: int
    source: str
    where: Where | None

    @property
    def effects(self) -> Effects:
        return Effects((), (self.slot,), ())


@dataclass(frozen=True)
class Copy:
    """Move or reshard a buffer inside an island."""

    KIND: ClassVar[str] = "copy"
    COUNTED: ClassVar[tuple[str, str]] = ("copy", "copies")
    step: int
    source: int
    target: int
    where: Where | None

    @property
    def effects(self) -> Effects:
        return Effects((self.source,), (self.target,), ())


@dataclass(frozen=True)
class Free:
    """Drop buffers after their last use."""

    KIND: ClassVar[str] = "free"
    COUNTED: ClassVar[tuple[str, str]] = ("free", "frees")
    step: int
    slots: Slots

    @property
    def effects(self) -> Effects:
        return Effects(self.slots, (), self.slots)


@dataclass(frozen=True)
class Branch:
    """Await the deciding value, then run bodies (indices into `Plan.bodies`); each stream that takes part has a part.

    `kind` cond: operand 0 is awaited, the number of the body to run on the other operands. `while`: the second body is
    run for as long as the first says so; the last operands are carried, and become the results. `inputs` are slots of
    this island, `taken` says which operands they are; so do `outputs` and `made` for results.
    """

    KIND: ClassVar[str] = "branch"
    COUNTED: ClassVar[tuple[str, str]] = ("branch", "branches")
    step: int
    kind: str
    bodies: Annotated[tuple[int, ...], Refers("bodies")]
    inputs: Slots
    taken: tuple[int, ...]
    outputs: Slots
    made: tuple[int, ...]
    meshes: Annotated[tuple[int, ...], Refers("meshes")]
    """Meshes with all devices of this island that bodies work on."""
    name: str
    where: Where | None
    temporaries: int = 0
    """Bytes on one of their devices that bodies need beside inputs and outputs."""
    donated: Slots = ()
    """Positions in `inputs` of values that a loop carries, and that are not needed afterwards."""

    @property
    def effects(self) -> Effects:
        return Effects(self.inputs, self.outputs, tuple([self.inputs[i] for i in self.donated]))


Instruction: TypeAlias = Run | Send | Recv | Copy | Free | Branch
INSTRUCTIONS: tuple[type[Instruction], ...] = (Run, Send, Recv, Copy, Free, Branch)
