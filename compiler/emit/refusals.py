"""Raises an error, with the user's source line, for a program that Shardy's MPMD dialect cannot express. Examples are
Python callbacks and control flow on data. `mpmd_text.py` calls it first.
"""

from collections.abc import Iterator

from pathways.compiler.emit.errors import NotInShardy
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.errors import WrongPhase
from pathways.dialect.host_callbacks import read_callbacks
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.mlir import name_of, where_of
from pathways.dialect.phases import Phase


def check_sayable(program: ProgramIR) -> None:
    """Raises PWC0127 for control flow on data, Python callbacks and programs that run nothing; PWC0703."""
    if program.phase is not Phase.SCHEDULE:
        raise PathwaysError(
            WrongPhase(what="conversion to Shardy's MPMD dialect", have_phase=program.phase, need_phase=Phase.SCHEDULE),
        )
    found = [*_branches(program), *_callbacks(program), *_nothing(program)]
    if found:
        raise PathwaysError(*found)


def _branches(program: ProgramIR) -> Iterator[NotInShardy]:
    for node in program.flow.branches():
        yield NotInShardy(
            what=f"{node.op.OPERATION_NAME} (control flow on data over several meshes)",
            have_=f"{name_of(node.op)}, whose bodies run {', '.join(node.op.bodies)}",
            rule="a program in which every run makes the same calls",
            advice="lax.cond or lax.while_loop inside of one jit; a loop with a known length is unrolled",
            where=where_of(node.op),
        )


def _callbacks(program: ProgramIR) -> Iterator[NotInShardy]:
    for node in program.flow.calls():
        if read_callbacks(program.computations[node.callee]):
            yield NotInShardy(
                what="a host callback",
                have_=f"{node.callee}, which calls Python functions of this process",
                rule="computations that another process can run",
                advice="remove jax.debug.print, pure_callback and io_callback from it",
                where=where_of(node.op),
            )


def _nothing(program: ProgramIR) -> Iterator[NotInShardy]:
    if not program.flow.nodes and not any(program.flow.places):
        yield NotInShardy(
            what="a program without computations",
            have_=f"{program.name}, which returns its arguments unchanged",
            rule="at least one value on a mesh",
            advice="run a computation on a slice",
        )
