"""Verifies the IR of a program against the rules of its phase. The pass manager calls it after every pass, and the
driver for every dump that it reads.
"""

from collections.abc import Iterator

from pathways.compiler.export import outline_of_plan
from pathways.compiler.stream_ops import planned_streams
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.errors import InvalidIR
from pathways.dialect.ir import pw
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.ir.verify import Changes, verify
from pathways.dialect.ir.verify_plan import values_held
from pathways.dialect.ir.wellformed import violation
from pathways.dialect.mlir import Operation
from pathways.dialect.phases import Phase
from pathways.dialect.plan.check import At, Problem, buffer_problems, stream_problems
from pathways.dialect.plan.nouns import Plan


def verify_program(program: ProgramIR, changes: Changes | None = None) -> None:
    """Raises PWC0701 with all violations of the first broken rule, each at the line of its op.

    `changes`: changes since the last full verification. In phase `plan` they left the instruction streams unchanged.
    """
    verify(program, changes)
    checked = changes is not None and changes.since is Phase.PLAN
    if not checked and program.phase is Phase.PLAN and (found := list(_violations(program))):
        raise PathwaysError(*found)


def _violations(program: ProgramIR) -> Iterator[InvalidIR]:
    if missing := list(_without_buffer(program)):
        yield from missing
        return
    plan = outline_of_plan(program)
    for number in (*range(len(plan.bodies)), -1):
        broken = False
        for problem in _problems(plan if number < 0 else plan.of_body(number), number):
            broken = True
            yield violation(_operation(program, problem.at), f"{problem.subject} {problem.what}".strip(), problem.rule)
        if broken:
            return


def _without_buffer(program: ProgramIR) -> Iterator[InvalidIR]:
    """Finds islands whose planned streams do not have one buffer for each value. `verify_plan.py` checks ops."""
    for function, streams in zip(program.functions, planned_streams(program) or (), strict=False):
        need = values_held(function)
        have = {stream.island: sum(len(group.kinds) for group in stream.groups) for stream in streams}
        for island in sorted(need.keys() | have.keys()):
            if need[island] != have.get(island, 0):
                text = f"declares {have.get(island, 0)} buffers on @{island}"
                yield violation(function.operation, text, f"{need[island]}: one for each value")


def _problems(function: Plan, number: int) -> Iterator[Problem]:
    wrong = [Problem("", f"has {what}", rule) for what, rule in buffer_problems(function)]
    for problem in wrong or stream_problems(function, number):
        yield problem if problem.at is None else problem._replace(subject="")


def _operation(program: ProgramIR, at: At | None) -> Operation:
    """Returns the op of an instruction; the module if the problem does not belong to one instruction."""
    if at is None:
        return program.base.operation
    function = program if at.body < 0 else list(program.bodies.values())[at.body]
    operations = function.plans[at.island].operation.regions[0].blocks[0].operations
    return [op.operation for op in operations if not isinstance(op, pw.BuffersOp)][at.number]
