"""Bringing jits home that lost their shardings in differentiation (see `MentionFinder`).

A stray goes to a mesh on which its function is placed elsewhere, if what it reads says which: an operand that a placed
call was given with a sharding there, or that a call of the same function made there. Where nothing says so, it stays
unplaced and follows its data.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from pathways.compiler.frontends.jax.compat import Eqn, is_unspecified
from pathways.compiler.frontends.jax.graph import GraphNode, Operand, TracedValue
from pathways.compiler.frontends.jax.mentions import FunctionKey, MentionFinder, function_of
from pathways.compiler.frontends.jax.meshes import JaxSharding, SliceMesh


class Strays:
    """Remembers who was given what where, in program order."""

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
        """The mesh of a stray and the shardings its operands were given there; None where nothing tells."""
        function = function_of(eqn)
        votes: Counter[SliceMesh] = Counter()
        for mesh in finder.places.get(function, ()) if function else ():
            for operand in operands:
                if isinstance(operand, TracedValue):
                    # What a call was given there says more than what was made there: that may be a neighbor's.
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
