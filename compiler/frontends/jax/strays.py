"""Restores the placement of jits that lost their shardings when JAX differentiated a loop. It finds the mesh from the
same function and the operands elsewhere in the program. `flatten.py` calls it.

A stray goes to a mesh on which its function is placed elsewhere, if its operands identify the mesh. An operand does so
if a placed call took it there with a sharding, or if a call of the same function made it there. Otherwise the stray
stays unplaced and follows its data.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from pathways.compiler.frontends.jax.compat import Eqn, is_unspecified
from pathways.compiler.frontends.jax.graph import GraphNode, Operand, TracedValue
from pathways.compiler.frontends.jax.mentions import FunctionKey, MentionFinder, function_of
from pathways.compiler.frontends.jax.meshes import JaxSharding, SliceMesh


class Strays:
    """Remembers, in program order, the shardings of placed calls' operands, and the calls that made each value."""

    def __init__(self) -> None:
        self._given: dict[TracedValue, dict[SliceMesh, JaxSharding]] = {}
        self._made: dict[TracedValue, tuple[FunctionKey | None, SliceMesh]] = {}

    def remember(self, eqn: Eqn, mesh: SliceMesh, in_shardings: Sequence[JaxSharding], node: GraphNode) -> None:
        explicit = node.inputs[len(node.inputs) - len(in_shardings) :]
        for value, sharding in zip(explicit, in_shardings, strict=True):
            if not is_unspecified(sharding):
                self._given.setdefault(value, {}).setdefault(mesh, sharding)
        maker = function_of(eqn), mesh
        self._made.update(dict.fromkeys(node.outputs, maker))

    def home(
        self, finder: MentionFinder, eqn: Eqn, operands: Sequence[Operand]
    ) -> tuple[SliceMesh, tuple[JaxSharding, ...]] | None:
        """Returns the mesh of a stray and its operands' shardings there; None if the operands identify no mesh."""
        function = function_of(eqn)
        votes: Counter[SliceMesh] = Counter()
        for mesh in finder.places.get(function, ()) if function else ():
            for operand in operands:
                if isinstance(operand, TracedValue):
                    # A sharding that a call took there counts more than a result made there: it may be another stage's.
                    votes[mesh] += 2 * (mesh in self._given.get(operand, ()))
                    votes[mesh] += self._made.get(operand) == (function, mesh)
        ranked = [(mesh, n) for mesh, n in votes.most_common(2) if n]
        if not ranked or (len(ranked) == 2 and ranked[0][1] == ranked[1][1]):
            return None
        chosen = ranked[0][0]
        return chosen, tuple(
            self._sharding(o, chosen, s) for o, s in zip(operands, eqn.params["in_shardings"], strict=True)
        )

    def _sharding(self, operand: Operand, mesh: SliceMesh, own: Any) -> JaxSharding:
        given = self._given.get(operand, {}) if isinstance(operand, TracedValue) else {}
        return given.get(mesh, own) if is_unspecified(own) else own
