"""Checks the records of a function as MLIR checks ops: each field is of the kind that its op declares, values are made
before they are taken, and each argument has one entry in the signature. `verify.py` calls it for functions that are not
ops. Other rules may then write the records as ops, to show them in an error.
"""

from collections.abc import Iterator

import numpy as np

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.errors import InvalidIR
from pathways.dialect.ir.flow import Flow, Node
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.ir.records import KINDS, are_sound
from pathways.dialect.ir.wellformed import DECLARED
from pathways.dialect.mlir import where_of

MAX_SHOWN = 400
"""Maximum characters of a record in an error."""


def check_records(program: ProgramIR, written: frozenset[str] | None) -> None:
    """Raises PWC0701 with all wrong fields, operands and lengths.

    `written`: checks only these fields; None: checks everything.
    """
    found = list(_signature(program)) if written is None else []
    if found := found or list(_nodes(program, written)):
        raise PathwaysError(*found)


def _signature(program: ProgramIR) -> Iterator[InvalidIR]:
    """Checks that all lists of a function have the right lengths, and that it returns values that it has."""
    signature, flow = program.signature, program.flow
    made = [node.results for node in flow]
    starts = [len(flow.arguments), *(results.stop for results in made)]
    returned = flow.returned
    taken, values = len(flow.arguments), len(flow.types)
    are_numbered = [node.number for node in flow] == list(range(len(flow)))
    are_ranges = [results.start for results in made] == starts[:-1] and starts[-1] == values
    checks = [
        (len(signature.arguments) == taken, f"states {len(signature.arguments)} arguments", f"{taken}: one for each"),
        (len(signature.locations) == taken, "states locations of other arguments", f"{taken}: one for each"),
        (are_numbered, "has nodes with wrong numbers", "0, 1, 2, ... in order"),
        (are_ranges, "has results with wrong numbers", "values in the order of their nodes, after the arguments"),
        (
            not returned or 0 <= min(returned) <= max(returned) < values,
            "returns a value that it lacks",
            "its own values",
        ),
        (len(signature.results) == len(returned), f"returns {len(returned)} values", f"{len(signature.results)}"),
    ]
    for is_right, problem, rule in checks:
        if not is_right:
            yield InvalidIR(op="func.func", problem=problem, have_=f"@{program.name}", rule=rule, where=program.where)


def _nodes(program: ProgramIR, written: frozenset[str] | None) -> Iterator[InvalidIR]:
    if are_sound([node.op for node in program.flow], written) and (written is not None or _are_before(program.flow)):
        return
    for node in program.flow:
        problems = [(problem, DECLARED) for problem in node.op.problems(written)]
        if written is None:
            problems += _operands(node)
        for problem, rule in problems:
            name, where = node.op.OPERATION_NAME, where_of(node.op)
            yield InvalidIR(op=name, problem=problem, have_=repr(node.op)[:MAX_SHOWN], rule=rule, where=where)


_COUNTED = frozenset(
    k.op_class for k in KINDS.values() if {k.op_class.operands_.count, k.op_class.results_.count} != {None}
)
"""The ops with a fixed number of operands or results."""


def _are_before(flow: Flow) -> bool:
    """Whether no node has problems with its `_operands`."""
    starts = np.array([node.results.start for node in flow], np.intp)
    try:
        is_before = (flow.operands >= 0) & (flow.operands < starts[flow.readers])
    except OverflowError:
        return False
    return bool(is_before.all()) and not any(any(_operands(n)) for n in flow if n.op.op_class in _COUNTED)


def _operands(node: Node) -> Iterator[tuple[str, str]]:
    operands, results, op = node.operands, node.results, node.op.op_class
    if operands and not 0 <= min(operands) <= max(operands) < results.start:
        rule = "calls, transfers and control flow after the nodes that make their operands"
        yield "takes a value that is not made before it", rule
    for what, arity, values in (("operands", op.operands_, operands), ("results", op.results_, results)):
        if arity.count not in (None, len(values)):
            yield f"has {len(values)} {what} in place of {arity.count}", DECLARED
