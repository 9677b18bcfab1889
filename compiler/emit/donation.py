"""Finds the operands that a function of the emitted MPMD module may overwrite. No call of the function may leave such
an operand for a later reader. `mpmd_text.py` calls it.

Shardy states donation on the called function, so it must hold for all calls. If a result has the operand's type and
sharding, the result takes the operand's buffer (`tf.aliasing_output`). Otherwise only the memory is free
(`jax.buffer_donor`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pathways.compiler.computations.signature import ComputationSignature
from pathways.dialect.ir.arguments import Argument
from pathways.dialect.ir.flow import Flow


@dataclass(frozen=True)
class Donated:
    """A donated operand, by number, and the result that takes its buffer; None if no result does."""

    operand: int
    result: int | None


def dead_operands(flow: Flow, arguments: Sequence[Argument]) -> list[frozenset[int]]:
    """Finds, per node, the positions of operands that the program may overwrite and that are read last by this node."""
    kept = {v for v in flow.arguments if not (arguments[v].donate or arguments[v].is_constant)} | set(flow.returned)
    found: list[frozenset[int]] = []
    for node in flow.nodes:
        operands = list(node.operands)
        last = (i for i, v in enumerate(operands) if v not in kept and max(flow.users[v]) == node.number)
        found.append(frozenset(i for i in last if operands.count(operands[i]) == 1))
    return found


def pair_with_results(dead: frozenset[int], computed: ComputationSignature) -> list[Donated]:
    """Gives each dead operand the first free result of its type and sharding."""
    free = list(range(len(computed.outputs)))
    found: list[Donated] = []
    for operand in sorted(dead):
        like = computed.inputs[operand], computed.in_layouts[operand]
        result = next((r for r in free if (computed.outputs[r], computed.out_layouts[r]) == like), None)
        if result is not None:
            free.remove(result)
        found.append(Donated(operand, result))
    return found
