"""Defines the data types of a plan: `Plan` itself, and the computations, buffers, meshes, arguments and constants in
it. The compiler writes them and the runtime loads them.

They are frozen dataclasses. plan.proto has the same fields, and codec.py converts them. A sharded value has a mesh and
dimensions only. Tables of shards are computed at load (reshard.py), so that a plan has the same size for 1 shard and
for 2,048.
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
"""The format version that this code writes, and the only one that it reads."""


@dataclass(frozen=True)
class PlanSlice:
    """A virtual slice, bound to devices of an island of the plan's topology, and the reason of that placement."""

    name: str
    island: str
    devices: tuple[int, ...]
    reason: str
    prefer: str | None = None
    runner_up: str = ""


@dataclass(frozen=True)
class Decision:
    """A choice of the compiler about a slice, a call, a transfer or a reshard (`kind`), at one or more steps.

    `chosen` is the choice, `reason` its reason, `runner_up` the next best choice and its cost, `bytes` the bytes moved.
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
    """A mesh (index into `Plan.meshes`), and the mesh axes that split each dimension."""

    mesh: int
    dims: Dims


@dataclass(frozen=True)
class BufferKind:
    """Properties that many buffers share; `bytes` is on one device."""

    type: ArrayType
    layout: Layout
    bytes: int


@dataclass(frozen=True)
class Buffers:
    """Buffers that are created at the same step, in consecutive slots.

    `kinds` are indices into `Stream.kinds`. `birth` and `deaths` are steps; -1 means before the first step, or never
    freed. Their memory counts for `owner`.
    """

    name: str
    role: str
    owner: str
    kinds: tuple[int, ...]
    birth: int
    deaths: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Buffer:
    """One logical buffer. `bytes` is on one device; `birth` and `death` are steps as in `Buffers`."""

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
    """The instructions of one island, in order. Slots are indices into `buffers`, which are `groups` expanded."""

    island: str
    peak_bytes: int
    kinds: tuple[BufferKind, ...]
    groups: tuple[Buffers, ...]
    instructions: tuple[Instruction, ...]

    @cached_property
    def kind_of(self) -> tuple[BufferKind, ...]:
        """The kind of the buffer in each slot; most code needs only this."""
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
    """One StableHLO module in a portable form, which older and newer runtimes can read, and its signature."""

    name: str
    module: bytes = field(repr=False)
    donated: tuple[int, ...]
    inputs: tuple[ArrayType, ...]
    in_layouts: tuple[Dims, ...]
    outputs: tuple[ArrayType, ...]
    out_layouts: tuple[Dims, ...]
    axes: tuple[tuple[str, int], ...]
    callbacks: tuple[int, ...] = ()
    """Numbers of its host callbacks (host_callbacks.py), in the order of their index in the module."""
    local: bytes = field(default=b"", repr=False)
    """The module for one device and its shards, if devices do not communicate; empty: the devices run as a gang."""


@dataclass(frozen=True)
class Port:
    """An argument or result of the program. `slot` -1: an unused argument; `dtype`: the element type the user sees.

    `piece` is set if the port is one of several consecutive buffers that hold one array.
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
    """An array that the program closes over: the member of the file with its bytes, and the slot that holds it."""

    island: str
    slot: int
    member: str


@dataclass(frozen=True)
class Body:
    """The body of a branch, with its own streams and slots. Its branches run only bodies before it."""

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
    """The placement policy, and its estimate of the time of a run and the bytes between islands, as text."""
    reproducible: bool = True
    """False if a time limit influenced a decision: then the same source may give another plan."""
    decisions: tuple[Decision, ...] = ()
    schedule: Schedule = field(default_factory=lambda: Schedule("program"))
    temporaries: str = ""
    """`estimated` or `measured` (by XLA): the origin of the temporaries of executables."""
    bodies: tuple[Body, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    """The parameters of a call: one for each child of `in_tree`, and the static ones. Older writers stored none."""
    constants: dict[str, bytes] = field(default_factory=dict[str, bytes], repr=False)
    phases: dict[str, bytes] = field(default_factory=dict[str, bytes], repr=False)
    executables: dict[str, bytes] = field(default_factory=dict[str, bytes], repr=False, compare=False)
    """Compiled code by name (runtime/host/devices/executable_cache.py): a cache; it can be compiled again."""
    marked: bool = field(default=False, compare=False)
    """Whether the plan was read from a file with this user's mark (signing.py)."""

    def sharding(self, layout: Layout) -> Sharding:
        return Sharding(self.meshes[layout.mesh].spec, layout.dims)

    def of_body(self, number: int) -> "Plan":
        """Returns a body as a plan, with the bodies that it may run."""
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
        """Yields all runs, including those in bodies."""
        for streams in self.all_streams:
            yield from (i for s in streams for i in s.instructions if isinstance(i, Run))

    def stream(self, island: str) -> Stream:
        return next(s for s in self.streams if s.island == island)
