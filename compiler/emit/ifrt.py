"""Shardy on what is written here: its verifier reads the MPMD text, its lowering makes IFRT IR of it."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from pathways.compiler.emit.errors import RefusedByShardy
from pathways.compiler.emit.mpmd_text import mpmd_text
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.jax_api import JaxRuntimeError
from pathways.dialect.mlir import Module, ir, registered_only, text
from pathways.dialect.shardy_mpmd import lower_to_ifrt, register
from pathways.dialect.versions import WRITER

MPMD: Final = "mpmd"
IFRT: Final = "ifrt"
FORMS: Final = (MPMD, IFRT)
"""The forms in which a program can be written for others."""


def form_text(program: ProgramIR, constants: Mapping[str, bytes], form: str) -> str:
    """Writes a program of phase `schedule` in one of the forms, with locations. Raises PWC0125 to PWC0127, PWC0703."""
    return text(emitted(program, constants, form))


def emitted(program: ProgramIR, constants: Mapping[str, bytes], form: str) -> Module:
    """Makes the module of a form, in the program's context, verified by Shardy."""
    register(program.context)
    written = mpmd_text(program, constants)
    with registered_only(program.context):
        module = _asked(program, MPMD, lambda: ir.Module.parse(written, context=program.context))
        _asked(program, MPMD, module.operation.verify)
        if form == IFRT:
            _asked(program, IFRT, lambda: lower_to_ifrt(module))
            _asked(program, IFRT, module.operation.verify)
    return module


def _asked(program: ProgramIR, form: str, question: Callable[[], Any]) -> Any:
    """Asks Shardy; what it refuses is a fault of what was written."""
    try:
        return question()
    except (ir.MLIRError, JaxRuntimeError, ValueError) as error:
        message = str(error).strip()
        raise PathwaysError(
            RefusedByShardy(program=program.name, form=form, version=WRITER["jaxlib"], message=message)
        ) from None
