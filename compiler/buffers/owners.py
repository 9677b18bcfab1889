"""Names what the memory of each value is for, in words that the user knows: parameters, activations of a microbatch,
gradients. `streams.py` stores these names in the plan, for memory reports.
"""

import re

from pathways.dialect.call_labels import read_action, read_part
from pathways.dialect.ir.flow import Node
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.ir.records import shown_name

OWNER_CONSTANTS = "constants"
MOVED = "transfer buffers"
RESULTS = "results"
_ROOT = re.compile(r"\w+")


def owners(program: ProgramIR) -> list[str]:
    """Returns the owner of each value, by number.

    An argument belongs to its parameter (`params`, `state`). Results of a pipeline's forward calls are activations of a
    microbatch, results of its backward calls are its gradients. A moved value is a transfer buffer. Other values belong
    to the call that makes them.
    """
    found = [OWNER_CONSTANTS if a.is_constant else _root(a.name) for a in program.arguments]
    for node in program.flow.nodes:
        if node.is_transfer:
            found.append(MOVED)
        elif not node.is_call:
            found += [shown_name(node.op)] * len(node.results)
        elif node.op.made_by is not None:
            parts = [_of_part(part) for part in node.op.parts or ()]
            found += [parts[i] for i in node.op.made_by]
        else:
            made = _of_call(action_of_call(node), shown_name(node.op))
            found += [made] * len(node.results)
    for value in program.flow.returned:
        if value not in program.flow.arguments:
            found[value] = RESULTS
    return found


def action_of_call(node: Node) -> str | None:
    """Returns the action of a call. Recomputation for a backward call counts as forward work."""
    action: str | None = node.op.action
    if action is None or not node.op.again:
        return action
    return str(read_action(action)._replace(kind="F"))


def _of_call(action: str | None, name: str) -> str:
    if action is None:
        return name
    read = read_action(action)
    return f"{'activations' if read.kind == 'F' else 'gradients'} of microbatch {read.microbatch}"


def _of_part(part: str) -> str:
    """Returns the owner of the results of one part of a merged call."""
    read = read_part(part)
    return _of_call(read.action or None, read.name)


def _root(name: str) -> str:
    """Returns the parameter of `params['w'][0]`: `params`."""
    match = _ROOT.match(name)
    return match[0] if match else name
