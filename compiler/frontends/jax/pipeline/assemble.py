"""From a cut to what each stage computes: loops joined again, what is beside the spine copied to its users."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pathways.compiler.frontends.jax import compat
from pathways.compiler.frontends.jax.graph import Operand
from pathways.compiler.frontends.jax.pipeline.graph import PARAMETER, LossGraph, Operation, Value
from pathways.compiler.frontends.jax.pipeline.loops import LoopJoiner, take_slice
from pathways.compiler.frontends.jax.pipeline.segments import segments_of
from pathways.compiler.frontends.jax.pipeline.spine import Spine
from pathways.compiler.frontends.jax.pipeline.work import bytes_of
from pathways.dialect.jax_api import Tracer

_SMALL_CONSTANT = 1024
"""Elements up to which an array that the loss closes over is a part of a stage's code, and no operand of it."""
_REDUCED = 4
"""An operation on parameters alone whose result is smaller by this is done where they are, as the norm of a weight."""


@dataclass(eq=False)
class Stage:
    """What one stage computes, or a segment of one, in order, what it takes and what others or the caller take of it.

    `number` says which stage, and `place` which of all segments.
    """

    number: int
    place: int
    name: str
    operations: list[Operation] = field(default_factory=list[Operation])
    inputs: list[Value] = field(default_factory=list[Value])
    outputs: list[Value] = field(default_factory=list[Value])


@dataclass(frozen=True, eq=False)
class Stages:
    """All stages in order, or their segments, and what is done before them: slices of stacked parameters."""

    graph: LossGraph
    before: list[Operation]
    stages: list[Stage]


def assemble_stages(graph: LossGraph, spine: Spine, places: Sequence[int]) -> Stages:
    """The stages of a cut at `places`, those at the ends in segments."""
    stage_of: dict[Operation, int] = {}
    segments = segments_of(spine, places)
    for place, segment in enumerate(segments):
        stage_of.update((o, place) for o in spine.operations[segment.begin : segment.end])
    joiner = LoopJoiner(stage_of)
    operations = joiner.joined(graph.operations)
    assembler = _Assembler(graph, stage_of, [Stage(s.stage, place, s.name) for place, s in enumerate(segments)])
    assembler.place(operations)
    assembler.faces()
    return Stages(graph, assembler.before, assembler.stages)


class _Assembler:
    def __init__(self, graph: LossGraph, stage_of: dict[Operation, int], stages: list[Stage]) -> None:
        self.graph = graph
        self.stage_of = stage_of
        self.before: list[Operation] = []
        self.stages = stages
        self._has: list[set[Operation]] = [set() for _ in stages]
        self._made: dict[Value, int] = {}
        self._homes: dict[Value, int] = {}
        self._beneath: dict[Operation, frozenset[Value]] = {}

    def place(self, operations: list[Operation]) -> None:
        """Gives each operation of the spine to its stage, and before it what it needs from beside the spine."""
        for operation in operations:
            if operation in self.stage_of:
                stage = self.stage_of[operation]
                self._made.update((v, stage) for v in operation.outputs)
                for value in self._sources(operation):
                    self._homes.setdefault(value, stage)
        for operation in operations:
            if operation in self.stage_of:
                stage = self.stage_of[operation]
                for value in operation.reads:
                    self._want(value, stage)
                self.stages[stage].operations.append(operation)
        for value in self.graph.results:
            if isinstance(value, Value) and value not in self._made:
                self._want(value, len(self.stages) - 1, result=True)

    def _sources(self, operation: Operation) -> frozenset[Value]:
        """The arguments, or slices of them, that an operation reads through operations beside the spine."""
        if operation not in self._beneath:
            found: set[Value] = set()
            for value in operation.reads:
                if value.maker is None or value.maker.run is take_slice:
                    found.add(value)
                elif value.maker not in self.stage_of:
                    found |= self._sources(value.maker)
            self._beneath[operation] = frozenset(found)
        return self._beneath[operation]

    def _want(self, value: Value, stage: int, result: bool = False) -> None:
        """Sees to it that a value is there on a stage."""
        operation = value.maker
        if operation is None or value in self._made:
            return
        source = operation.reads[0] if operation.run is take_slice else None
        if source is not None and source.argument >= 0 and source.depends == PARAMETER:
            if operation not in self._has[0]:
                self._has[0].add(operation)
                self.before.append(operation)
            return
        home = self._home(operation)
        if home is not None and home < stage:
            stage, result = home, True
        if result:
            self._made.update((v, stage) for v in operation.outputs)
        if operation in self._has[stage]:
            return
        self._has[stage].add(operation)
        for read in operation.reads:
            self._want(read, stage)
        self.stages[stage].operations.append(operation)

    def _home(self, operation: Operation) -> int | None:
        """Where the parameters are of an operation on them alone that makes much less of them."""
        if any(v.depends != PARAMETER for v in operation.outputs):
            return None
        sources = [v for v in self._sources(operation) if v.depends]
        homes = {self._homes.get(v) for v in sources}
        if len(homes) != 1 or sum(v.bytes for v in sources) < _REDUCED * sum(v.bytes for v in operation.outputs):
            return None
        return homes.pop()

    def faces(self) -> None:
        """What each stage takes, in order of first use (equal stages are then equal code), and what it gives."""
        results = {v for v in self.graph.results if isinstance(v, Value)}
        taken: set[Value] = set(results)
        for stage in reversed(self.stages):
            made = {v for o in stage.operations for v in o.outputs}
            reads = dict.fromkeys(v for o in stage.operations for v in o.reads if v not in made)
            stage.inputs = [v for v in reads if not is_code(v)]
            stage.outputs = [
                v for o in stage.operations for v in o.outputs if v in taken and self._made.get(v) == stage.place
            ]
            taken |= set(stage.inputs)


def is_code(value: Value) -> bool:
    """Whether a value is a small constant, which is written into the code of the stages that use it."""
    if value.constant is None or isinstance(value.constant, Tracer):
        return False
    return compat.is_key(value.aval) or bytes_of(value.aval) <= _SMALL_CONSTANT * value.aval.dtype.itemsize


def read(operand: Operand, env: dict[Value, Any]) -> Any:
    """What an operand is, in a stage or before all."""
    if not isinstance(operand, Value):
        return compat.as_literal_value(operand)
    return env.get(operand, operand.constant)
