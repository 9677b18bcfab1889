"""Checks the records of a function as MLIR checks ops: each field is of the kind that its op declares, values are made
before they are taken, and each argument has one entry in the signature. `verify.py` calls it for functions that are not
ops. Other rules may then write the records as ops, to show them in an error.
"""

from collections.abc import Iterator

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.errors import InvalidIR
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.ir.wellformed import DECLARED
from pathways.dialect.mlir import where_of

MAX_SHOWN = 400
"""Maximum characters of a record in an error."""


def check_records(program: ProgramIR, written: frozenset[str] | None) -> None:
    """Raises PWC0701 with all wrong fields and operands. `written`: only these fields have changed, and no operands."""
    if found := [*_signature(program), *_nodes(program, written)]:
        raise PathwaysError(*found)


def _signature(program: ProgramIR) -> Iterator[InvalidIR]:
    signature, flow = program.signature, program.flow
    need, where = len(flow.arguments), where_of(program.func.operation)
    for have, what in ((len(signature.arguments), "arguments"), (len(signature.locations), "locations of arguments")):
        if have != need:
            yield InvalidIR(
                "func.func", f"states {have} {what}", f"@{program.name}", f"{need}: one for each", where=where
            )


def _nodes(program: ProgramIR, written: frozenset[str] | None) -> Iterator[InvalidIR]:
    sound: set[tuple[str, int]] = set()
    for node in program.flow:
        problems = [(problem, DECLARED) for problem in node.op.problems(written, sound)]
        if written is None and node.operands and not 0 <= min(node.operands) <= max(node.operands) < node.results.start:
            rule = "calls, transfers and control flow after the nodes that make their operands"
            problems.append(("takes a value that is not made before it", rule))
        for problem, rule in problems:
            name, where = node.op.OPERATION_NAME, where_of(node.op)
            yield InvalidIR(op=name, problem=problem, have_=repr(node.op)[:MAX_SHOWN], rule=rule, where=where)
