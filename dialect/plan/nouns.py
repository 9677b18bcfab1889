"""The plan, which the runtime loads. Frozen nouns; plan.proto has the same fields, codec.py reads and writes them.

Sharded values are named by mesh and dimensions; tables of shards are made at load (reshard.py), so that a plan has
the same size for 1 shard and for 2,048.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

from pathways.dialect.diagnostics import Where
from pathways.dialect.dtypes import ArrayType
from pathways.dialect.pieces import LeafPiece
from pathways.dialect.plan.instructions import Instruction, Run
from pathways.dialect.plan.signature import Parameter
from pathways.dialect.schedule_figures import Schedule
from pathways.dialect.sharding import Dims, MeshSpec, Sharding
from pathways.dialect.topology import Topology
from pathways.dialect.trees import Tree

FORMAT = 4
"""The version of the format that this code writes, and the only one it reads."""


@dataclass(frozen=True)
class PlanSlice:
    """A virtual slice and its binding: devices of an abstract island."""

    name: str
    island: str
    devices: tuple[int, ...]
    reason: str
    prefer: str | None = None
    runner_up: str = ""


@dataclass(frozen=True)
class Decision:
    """The reason for a choice about a slice, a call, a transfer or a reshard (`kind`), at one step or several.

    `chosen` is the choice, `reason` what decided it, `runner_up` the next best and its cost; `bytes` move.
    """

    kind: str
    name: str
    chosen: str
    reason: str
    runner_up: str
    steps: tuple[int, ...]
    bytes: int
    where: Where | None


@dataclass(frozen=True)
class PlanMesh:
    """A mesh on one island; `devices` are positions on the island, row-major over the axes."""

    name: str
    slice: str
    island: str
    axes: tuple[tuple[str, int], ...]
    devices: tuple[int, ...]

    @property
    def spec(self) -> MeshSpec:
        return MeshSpec(self.axes, self.devices)


@dataclass(frozen=True)
class Layout:
    """A mesh (index into `Plan.meshes`) and the axes of each dimension."""

    mesh: int
    dims: Dims


@dataclass(frozen=True)
class BufferKind:
    """The properties that many buffers have in common; `bytes` is on one device."""

    type: ArrayType
    layout: Layout
    bytes: int


@dataclass(frozen=True)
class Buffers:
    """Buffers that are born together, in slots that follow each other.

    `kinds` are indices into `Stream.kinds`; `birth` and `deaths` are steps, -1: before all, kept. The memory is counted
    as that of `owner`.
    """

    name: str
    role: str
    owner: str
    kinds: tuple[int, ...]
    birth: int
    deaths: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Buffer:
    """One logical buffer: `bytes` is on one device; `birth` and `death` are steps, -1: before all, kept."""

    name: str
    role: str
    owner: str
    type: ArrayType
    layout: Layout
    bytes: int
    birth: int
    death: int


@dataclass(frozen=True)
class Stream:
    """The instructions of one island, in order. Slots are indices into `buffers`, which are `groups` spread out."""

    island: str
    peak_bytes: int
    kinds: tuple[BufferKind, ...]
    groups: tuple[Buffers, ...]
    instructions: tuple[Instruction, ...]

    @cached_property
    def kind_of(self) -> tuple[BufferKind, ...]:
        """The kind of the buffer of each slot, which is all that most code needs of it."""
        return tuple([self.kinds[number] for group in self.groups for number in group.kinds])

    @cached_property
    def buffers(self) -> tuple[Buffer, ...]:
        return tuple(
            Buffer(
                group.name if len(group.kinds) == 1 else f"{group.name}#{i}",
                group.role,
                group.owner,
                (kind := self.kinds[number]).type,
                kind.layout,
                kind.bytes,
                group.birth,
                death,
            )
            for group in self.groups
            for i, (number, death) in enumerate(zip(group.kinds, group.deaths, strict=True))
        )


@dataclass(frozen=True)
class Computation:
    """One StableHLO module in the form that older and newer runtimes read."""

    name: str
    module: bytes = field(repr=False)
    donated: tuple[int, ...]
    inputs: tuple[ArrayType, ...]
    in_layouts: tuple[Dims, ...]
    outputs: tuple[ArrayType, ...]
    out_layouts: tuple[Dims, ...]
    axes: tuple[tuple[str, int], ...]
    callbacks: tuple[int, ...] = ()
    """Numbers of the Python functions that it calls (host_callbacks.py), by their index in the module."""
    local: bytes = field(default=b"", repr=False)
    """The module for one device and its shards, where no device needs another; empty: they run as a gang."""


@dataclass(frozen=True)
class Port:
    """An argument or result of the program. `slot` -1: an argument that nothing uses; `dtype`: what the user sees.

    `piece`: it is one buffer of an array that is held in several, those before and behind it.
    """

    name: str
    type: ArrayType
    dtype: str
    weak: bool
    island: str
    slot: int
    donated: bool = False
    piece: LeafPiece | None = None


@dataclass(frozen=True)
class ConstantData:
    """An array that the program closes over: its bytes, and the buffers that hold it."""

    island: str
    slot: int
    member: str


@dataclass(frozen=True)
class Body:
    """The body of a branch: streams of its own, over slots of its own. Its own branches run bodies before it."""

    name: str
    streams: tuple[Stream, ...]
    inputs: tuple[Port, ...]
    results: tuple[Port, ...]
    constant_buffers: tuple[ConstantData, ...]


@dataclass(frozen=True)
class Plan:
    """A compiled program. `constants` are raw bytes by member name; `phases` are dumps by file name."""

    name: str
    platform: str
    topology: Topology
    slices: tuple[PlanSlice, ...]
    meshes: tuple[PlanMesh, ...]
    computations: tuple[Computation, ...]
    streams: tuple[Stream, ...]
    inputs: tuple[Port, ...]
    results: tuple[Port, ...]
    constant_buffers: tuple[ConstantData, ...]
    in_tree: Tree
    out_tree: Tree
    placement: str = ""
    """The placement, and the time that it expects a run to take."""
    reproducible: bool = True
    """False where a time limit decided something: the same source may give another plan."""
    decisions: tuple[Decision, ...] = ()
    schedule: Schedule = field(default_factory=lambda: Schedule("program"))
    temporaries: str = ""
    """Whether the temporaries of executables are `estimated` or `measured`, by XLA."""
    bodies: tuple[Body, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    """The parameters of a call: one a child of `in_tree`, and the static ones; none in plans of older writers."""
    constants: dict[str, bytes] = field(default_factory=dict[str, bytes], repr=False)
    phases: dict[str, bytes] = field(default_factory=dict[str, bytes], repr=False)
    executables: dict[str, bytes] = field(default_factory=dict[str, bytes], repr=False, compare=False)
    """Ready code by name (runtime/host/devices/executable_cache.py): a cache of code that can be compiled again."""
    marked: bool = field(default=False, compare=False)
    """Whether it was read from a file with this user's mark (signing.py)."""

    def sharding(self, layout: Layout) -> Sharding:
        return Sharding(self.meshes[layout.mesh].spec, layout.dims)

    def of_body(self, number: int) -> "Plan":
        """Makes a plan of a body, with the bodies that it may run."""
        body = self.bodies[number]
        return replace(
            self, streams=body.streams, inputs=body.inputs, results=body.results,
            constant_buffers=body.constant_buffers, bodies=self.bodies[:number], decisions=(), phases={},
        )  # fmt: skip

    @property
    def all_streams(self) -> list[tuple[Stream, ...]]:
        """The streams of the program, then those of each body."""
        return [self.streams, *(body.streams for body in self.bodies)]

    def runs(self) -> Iterator[Run]:
        """Yields all runs, those in bodies too."""
        for streams in self.all_streams:
            yield from (i for s in streams for i in s.instructions if isinstance(i, Run))

    def stream(self, island: str) -> Stream:
        return next(s for s in self.streams if s.island == island)
