"""Assembles the operations of each pipeline stage after the positions of the cuts are chosen. Loop iterations that fall
into one stage become a scan again. Cheap shared operations, such as masks, are copied to each stage that uses them.
`plan_stages.py` calls it.
"""

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

_MAX_INLINED_ELEMENTS = 1024
"""A closed-over array of at most this many elements is written into a stage's code. A larger array is an operand."""
_MIN_REDUCTION = 4
"""An operation on parameters alone, as the norm of a weight, runs on their stage if it shrinks them by this factor."""


@dataclass(eq=False)
class Stage:
    """One stage, or a segment of one: its ordered operations, its inputs, and the outputs that are used elsewhere.

    `number` is the number of the stage, `place` the index among all segments.
    """

    number: int
    place: int
    name: str
    operations: list[Operation] = field(default_factory=list[Operation])
    inputs: list[Value] = field(default_factory=list[Value])
    outputs: list[Value] = field(default_factory=list[Value])


@dataclass(frozen=True, eq=False)
class Stages:
    """The stages, or their segments, in order.

    `before` holds slices of stacked parameters, which are taken before all stages.
    """

    graph: LossGraph
    before: list[Operation]
    stages: list[Stage]


def assemble_stages(graph: LossGraph, spine: Spine, places: Sequence[int]) -> Stages:
    """Returns the stages of a cut at the positions `places`. The first and last stage may consist of two segments."""
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
        """Assigns each spine operation to its stage, after the operations outside the spine that it needs."""
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
        """Returns the arguments, or slices of them, that an operation reads through operations outside the spine."""
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
        """Adds the operations to a stage that compute a value, unless the value is already available there."""
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
        """Returns the stage that holds the parameters of an operation.

        Returns None unless the operation reads parameters of one stage alone, and its result is much smaller.
        """
        if any(v.depends != PARAMETER for v in operation.outputs):
            return None
        sources = [v for v in self._sources(operation) if v.depends]
        homes = {self._homes.get(v) for v in sources}
        if len(homes) != 1 or sum(v.bytes for v in sources) < _MIN_REDUCTION * sum(v.bytes for v in operation.outputs):
            return None
        return homes.pop()

    def faces(self) -> None:
        """Sets the inputs and outputs of each stage.

        Inputs are in order of first use, so that equal stages have equal code.
        """
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
    return compat.is_key(value.aval) or bytes_of(value.aval) <= _MAX_INLINED_ELEMENTS * value.aval.dtype.itemsize


def read(operand: Operand, env: dict[Value, Any]) -> Any:
    """Returns the value of an operand: a literal, a computed value, or a constant."""
    if not isinstance(operand, Value):
        return compat.as_literal_value(operand)
    return env.get(operand, operand.constant)
