"""Whom the memory of each value is counted to, in the user's own words."""

import re

from pathways.dialect.actions import Action, read_action
from pathways.dialect.mlir import name_of
from pathways.dialect.program import Program

CONSTANTS = "constants"
MOVED = "transfer buffers"
RESULTS = "results"
_ROOT = re.compile(r"\w+")


def owners(program: Program) -> list[str]:
    """The owner of each value, by number.

    An argument belongs to its parameter (`params`, `state`); what a pipeline's forward calls make are activations of a
    microbatch, what its backward calls make its gradients; what moved is a transfer buffer; other values belong to the
    call that makes them.
    """
    found = [CONSTANTS if a.is_constant else _root(a.name) for a in program.arguments]
    for node in program.flow.nodes:
        owner = MOVED
        if node.callee:
            action = node.op.action
            owner = name_of(node.op.operation) or node.callee if action is None else of_action(read_action(action))
        found += [owner] * len(node.results)
    for value in program.flow.returned:
        if value >= len(program.arguments):
            found[value] = RESULTS
    return found


def of_action(action: Action) -> str:
    """The owner of what a call of a pipeline makes."""
    made = "activations" if action.kind == "F" else "gradients"
    return f"{made} of microbatch {action.microbatch}"


def _root(name: str) -> str:
    """The parameter of `params['w'][0]`."""
    match = _ROOT.match(name)
    return match[0] if match else name
