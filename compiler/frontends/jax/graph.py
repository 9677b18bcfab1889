"""Defines the graph of a traced program. Its nodes are the user's placed jits, explicit moves between devices, and the
operations between them, which have no placement yet.

`flatten.py` builds the graph; the other modules of this front end rewrite it, and `emit.py` emits it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, TypeAlias

from pathways.compiler.frontends.jax.compat import Aval, Eqn, effects_of
from pathways.compiler.frontends.jax.meshes import JaxSharding, SliceMesh
from pathways.dialect.diagnostics import Where
from pathways.dialect.sharding import Dims


@dataclass(eq=False, slots=True)
class TracedValue:
    """One array in the dataflow, compared by identity."""

    aval: Aval


@dataclass(eq=False, slots=True)
class Constant(TracedValue):
    """An array known while tracing: an array that a function closes over, or the index of an unrolled loop."""

    array: Any
    name: str


Operand: TypeAlias = Any
"""A `TracedValue`, or a jaxpr `Literal` (a scalar written in the equation itself)."""


@dataclass(frozen=True, eq=False)
class Callee:
    """The computation of a placed call: equations over `constvars + invars`, and the user's shardings."""

    name: str
    jaxpr: Any
    in_shardings: tuple[JaxSharding, ...]
    out_shardings: tuple[JaxSharding, ...]

    @property
    def key(self) -> tuple[Any, ...]:
        """A key that is equal for calls of the same traced function; the jaxpr must be kept alive."""
        return (id(self.jaxpr), self.name, self.in_shardings, self.out_shardings)


@dataclass(eq=False, slots=True)
class Call:
    """A placed call. `inputs` starts with the constants that the callee closes over."""

    callee: Callee
    mesh: SliceMesh
    inputs: list[TracedValue]
    outputs: list[TracedValue]
    where: Where | None


@dataclass(eq=False, slots=True)
class ExplicitMove:
    """A move by the user: `jax.device_put` to virtual devices, `reshard` or `with_sharding_constraint`."""

    mesh: SliceMesh
    dims: Dims
    source: TracedValue
    output: TracedValue
    where: Where | None

    @property
    def inputs(self) -> list[TracedValue]:
        return [self.source]

    @property
    def outputs(self) -> list[TracedValue]:
        return [self.output]


@dataclass(eq=False, slots=True)
class Loose:
    """Unplaced equations, usually one (alike.py). `scope` is the function that they came from.

    `operands` and `outputs` are those of all equations in order; `inputs` are the operands without literals. If
    `follows` is set, the node is a copy made for that consumer alone, and joins its group.
    """

    eqns: tuple[Eqn, ...]
    operands: list[Operand]
    outputs: list[TracedValue]
    scope: str
    where: Where | None
    follows: "Loose | None" = None
    inputs: list[TracedValue] = field(init=False)

    def __post_init__(self) -> None:
        self.read(self.operands)

    def read(self, operands: list[Operand]) -> None:
        """Replaces the operands."""
        self.operands = operands
        self.inputs = [v for v in operands if isinstance(v, TracedValue)]

    def equations(self) -> Iterator[tuple[Eqn, list[Operand], list[TracedValue]]]:
        """Yields each equation with its operands and its outputs."""
        taken = made = 0
        for eqn in self.eqns:
            more, end = taken + len(eqn.invars), made + len(eqn.outvars)
            yield eqn, self.operands[taken:more], self.outputs[made:end]
            taken, made = more, end

    def each_takes(self, found: Sequence[int], union: Callable[[Iterable[int]], int]) -> set[int]:
        """Unites one set per input for each equation, and returns the different unions. Sets are given by numbers."""
        if len(self.eqns) == 1:
            return {union(found)}
        width = len(self.eqns[0].invars)
        if len(found) == width * len(self.eqns) and all(len(e.invars) == width for e in self.eqns):
            columns = [set(found[i::width]) for i in range(width)]
            if all(len(column) == 1 for column in columns):  # true for most joined equations
                return {union(column.pop() for column in columns)}
        known = dict(zip(self.inputs, found, strict=True))
        return {union(known[v] for v in one.inputs) for one in self.apart()}

    def each_makes(self, found: Sequence[int], union: Callable[[Iterable[int]], int]) -> set[int]:
        """Unites one set per output for each equation, and returns the different unions."""
        if len(self.eqns) == 1:
            return {union(found)}
        if len(found) == len(self.eqns):
            return set(found)
        known = dict(zip(self.outputs, found, strict=True))
        return {union(known[v] for v in made) for _, _, made in self.equations()}

    def apart(self) -> "list[Loose]":
        """Returns one node per equation."""
        if len(self.eqns) == 1:
            return [self]
        return [Loose((e,), taken, made, self.scope, self.where) for e, taken, made in self.equations()]


@dataclass(eq=False, slots=True)
class ControlFlow:
    """Control flow that depends on data: the data decide which bodies run, and how often.

    `cond`: the first input is the number of the body to run. `while`: the second body runs as long as the first body
    returns true; the last inputs are carried. All bodies take the same values.
    """

    kind: str
    bodies: "list[TracedGraph]"
    inputs: list[TracedValue]
    outputs: list[TracedValue]
    where: Where | None

    @property
    def taken(self) -> list[TracedValue]:
        """The values that the bodies take."""
        return self.inputs[1:] if self.kind == "cond" else self.inputs


GraphNode: TypeAlias = Call | ExplicitMove | Loose | ControlFlow


@dataclass(eq=False)
class TracedGraph:
    """A graph whose nodes are in the order in which the program made them."""

    inputs: list[TracedValue]
    nodes: list[GraphNode] = field(default_factory=list[GraphNode])
    outputs: list[TracedValue] = field(default_factory=list[TracedValue])

    def constants(self) -> Iterator[Constant]:
        """Returns every constant in use, in order of first use."""
        return (value for value in self._read() if isinstance(value, Constant))

    def used(self) -> set[TracedValue]:
        """Returns all values that a node or a result reads."""
        return {*self._read()}

    def _read(self) -> dict[TracedValue, None]:
        """Returns the values that a node or a result reads, each once, in order of first use."""
        return dict.fromkeys(chain(chain.from_iterable([node.inputs for node in self.nodes]), self.outputs))

    def prune(self) -> None:
        """Removes nodes that no result needs and that have no effect."""
        live = set(self.outputs)
        kept: list[GraphNode] = []
        for found in reversed(self.nodes):
            parts: list[GraphNode] = [found]
            if isinstance(found, Loose) and not live.issuperset(found.outputs):
                parts = [*reversed(found.apart())]
            for node in parts:
                if any(v in live for v in node.outputs) or has_effects(node):
                    live.update(node.inputs)
                    kept.append(node)
        self.nodes = kept[::-1]


def has_effects(node: GraphNode) -> bool:
    """Whether a node has effects besides its results: it prints, or calls the host."""
    match node:
        case Loose():
            return any(eqn.effects for eqn in node.eqns)
        case Call():
            return effects_of(node.callee.jaxpr)
        case ControlFlow():
            return any(has_effects(inner) for body in node.bodies for inner in body.nodes)
        case _:
            return False
