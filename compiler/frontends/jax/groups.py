"""Defines a group: operations outside of the user's placed jits that become one computation. `gather.py` makes the
groups, and `emit.py` lowers them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pathways.compiler.frontends.jax.graph import Call, ControlFlow, ExplicitMove, Loose, TracedValue
from pathways.compiler.frontends.jax.meshes import SliceMesh
from pathways.dialect.diagnostics import Where


@dataclass(eq=False)
class Group:
    """Unplaced operations that run as one computation."""

    mesh: SliceMesh
    operations: list[Loose]
    inputs: list[TracedValue]
    outputs: list[TracedValue]
    depends: bool
    """Whether the group depends on a placed call or a move."""
    span: tuple[int, int]
    """The numbers of the group's first and last operation in the program."""

    @property
    def size(self) -> int:
        """The number of its equations."""
        return sum(len(o.eqns) for o in self.operations)

    @property
    def where(self) -> Where | None:
        return next((o.where for o in self.operations if o.where is not None), None)

    @property
    def name(self) -> str:
        scopes = {o.scope for o in self.operations}
        if len(scopes) == 1 and (scope := scopes.pop()):
            return scope
        kinds = list(dict.fromkeys(e.primitive.name for o in self.operations for e in o.eqns))
        return "_".join(kinds) if len(kinds) <= 2 else f"{kinds[0]}_to_{kinds[-1]}"


def faces(
    operations: Sequence[Loose], is_taken: Callable[[TracedValue], bool]
) -> tuple[list[TracedValue], list[TracedValue]]:
    """Returns the inputs of a group of operations, and its values for which `is_taken`: each once, in order."""
    made = dict.fromkeys(v for o in operations for v in o.outputs)
    inputs = dict.fromkeys(v for o in operations for v in o.inputs if v not in made)
    return [*inputs], [v for v in made if is_taken(v)]


Unit: TypeAlias = Call | ExplicitMove | ControlFlow | Group
