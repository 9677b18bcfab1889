"""Defines the instructions of a plan, such as Run, Send and Free. An instruction states which slots (entries in its
island's table of buffers) it reads, writes and frees. They are declared only here.

A new instruction needs a class here, an op in dialect/ir/pw.py with the same fields, and a message in plan.proto. It
also needs code that makes it (compiler/buffers/streams.py) and code that runs it (runtime/host/load/steps.py). A test
compares the tables. Fields named `name` and `where` are the location of the op. All other fields are its attributes,
by the same name or by the one that `Refers` states, if a number replaces a symbol.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple, TypeAlias

from pathways.dialect.diagnostics import Where

Slots: TypeAlias = tuple[int, ...]


class Effects(NamedTuple):
    """The slots of its island that an instruction reads, writes and drops."""

    reads: Slots
    writes: Slots
    drops: Slots


@dataclass(frozen=True)
class Refers:
    """Marks a field that holds indices into a table of the plan. In the IR it holds symbols, maybe by another name."""

    table: str
    attribute: str = ""


@dataclass(frozen=True)
class Run:
    """Enqueues `computation` (index) on the gang of `mesh` (index); reads and writes slots."""

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
    """The calls that were merged into this run, each with its action and line."""

    @property
    def shown(self) -> str:
        """Its action and name, for users."""
        return f"{self.action} {self.name}" if self.action else self.name

    @property
    def effects(self) -> Effects:
        return Effects(self.inputs, self.outputs, tuple([self.inputs[i] for i in self.donated]))


@dataclass(frozen=True)
class Send:
    """Offers a buffer to the island `to`, on a channel."""

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
    """Receives a buffer from the island `source`, on a channel."""

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
    """Moves or reshards a buffer inside an island."""

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
    """Drops buffers after their last use."""

    KIND: ClassVar[str] = "free"
    COUNTED: ClassVar[tuple[str, str]] = ("free", "frees")
    step: int
    slots: Slots

    @property
    def effects(self) -> Effects:
        return Effects(self.slots, (), self.slots)


@dataclass(frozen=True)
class Branch:
    """Awaits the deciding value, then runs bodies (indices into `Plan.bodies`). Each island involved has a Branch.

    `kind` cond: operand 0 is awaited; it is the number of the body to run on the other operands. `kind` while: the
    second body runs as long as the first returns true. The last operands are carried, and become the results. `inputs`
    are slots of this island, and `taken` are the numbers of these operands. `outputs` and `made` are the same for
    results.
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
    """Meshes that together contain all devices of this island that bodies use."""
    name: str
    where: Where | None
    temporaries: int = 0
    """Bytes on one of these devices that bodies need in addition to inputs and outputs."""
    donated: Slots = ()
    """Positions in `inputs` of values that a loop carries and that are not needed after it."""

    @property
    def effects(self) -> Effects:
        return Effects(self.inputs, self.outputs, tuple([self.inputs[i] for i in self.donated]))


Instruction: TypeAlias = Run | Send | Recv | Copy | Free | Branch
INSTRUCTIONS: tuple[type[Instruction], ...] = (Run, Send, Recv, Copy, Free, Branch)
