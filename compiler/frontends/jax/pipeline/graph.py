"""Represents a loss as a flat list of operations. A cut between two pipeline stages can fall between any two of them.
`open.py` builds the list, and the rest of this package and `compiler/search` read it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pathways.compiler.frontends.jax import compat
from pathways.compiler.frontends.jax.compat import Aval, Eqn, where_of_equation
from pathways.compiler.frontends.jax.graph import Operand
from pathways.compiler.frontends.jax.pipeline.work import bytes_of
from pathways.dialect.diagnostics import Where

PARAMETER, DATA = 1, 2
"""Bits of `Value.depends`: what a value depends on. The spine of a model depends on both (spine.py)."""


@dataclass(eq=False, slots=True)
class Value:
    """One array, compared by identity. `argument` is its position among the leaves of the loss's arguments."""

    aval: Aval
    depends: int = 0
    argument: int = -1
    constant: Any = None
    maker: "Operation | None" = None
    part: float = 1.0
    """The share of its bytes that counts: one iteration of a loop, or one shard of a parameter."""

    @property
    def bytes(self) -> float:
        return bytes_of(self.aval) * self.part


@dataclass(eq=False)
class OpenedLoop:
    """A scan that was expanded to one operation per iteration. Adjacent iterations on one stage become a scan again."""

    eqn: Eqn
    consts: list[Operand]
    xs: list[Operand]
    carried: int
    made: list[list[Value]] = field(default_factory=list[list[Value]])
    """The arrays that each iteration stacks, in execution order."""
    chunks: list[list[Value]] = field(default_factory=list[list[Value]])
    """The arrays that each joined scan stacks (loops.py)."""

    @property
    def length(self) -> int:
        return self.eqn.params["length"]

    @property
    def reverse(self) -> bool:
        return self.eqn.params["reverse"]


@dataclass(eq=False, slots=True)
class Operation:
    """One equation, one iteration of a loop, or the stacking of a loop's results.

    `groups` are the checkpoints around it, the outermost first. `keeps` are the values that its backward pass keeps,
    and `keeps_bytes` are the bytes that it keeps inside.
    """

    name: str
    inputs: list[Operand]
    outputs: list[Value]
    run: Callable[[Sequence[Any]], Sequence[Any]]
    eqn: Eqn | None = None
    flops: float = 0.0
    groups: tuple[int, ...] = ()
    keeps: list[Value] = field(default_factory=list[Value])
    keeps_bytes: float = 0.0
    loop: OpenedLoop | None = None
    iteration: int = -1
    stacks: int = -1
    """The index of the result of `loop` that this operation stacks; -1 for other operations."""

    @property
    def is_iteration(self) -> bool:
        return self.iteration >= 0

    @property
    def effects(self) -> bool:
        return self.eqn is not None and bool(self.eqn.effects)

    @property
    def reads(self) -> list[Value]:
        return [v for v in self.inputs if isinstance(v, Value)]

    @property
    def where(self) -> Where | None:
        return None if self.eqn is None else where_of_equation(self.eqn)

    @property
    def scope(self) -> str:
        """Returns the enclosing modules, as named by `jax.named_scope` and flax: `Model/Block_3/Dense_0`."""
        return "" if self.eqn is None else compat.scope_of_equation(self.eqn)


@dataclass(frozen=True)
class Checkpoint:
    """The options of a user's `jax.checkpoint`, for the parts that it is cut into."""

    prevent_cse: bool
    policy: Any


@dataclass(eq=False)
class LossGraph:
    """The operations of a loss in order, the leaves of its arguments, and its results."""

    arguments: list[Value]
    operations: list[Operation] = field(default_factory=list[Operation])
    results: list[Operand] = field(default_factory=list[Operand])
    checkpoints: dict[int, Checkpoint] = field(default_factory=dict[int, Checkpoint])
    indivisible: list[Operation] = field(default_factory=list[Operation])
    """Operations larger than the grain that cannot be expanded."""

    @property
    def flops(self) -> float:
        return sum(o.flops for o in self.operations)

    def readers(self) -> dict[Value, list[Operation]]:
        """Returns the operations that read each value."""
        found: dict[Value, list[Operation]] = {}
        for operation in self.operations:
            for value in dict.fromkeys(operation.reads):
                found.setdefault(value, []).append(operation)
        return found
