"""Parses emitted MPMD text, checks it with Shardy's own verifier, and can lower it to IFRT IR. `forms.py` calls it for
`pwc compile --emit`.
"""

from collections.abc import Callable, Mapping
from typing import Any

from pathways.compiler.emit.errors import RefusedByShardy
from pathways.compiler.emit.mpmd_text import mpmd_text
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.jax_api import JaxRuntimeError
from pathways.dialect.mlir import Module, ir, registered_only
from pathways.dialect.shardy_mpmd import lower_to_ifrt, register
from pathways.dialect.versions import WRITER


def mpmd_module(program: ProgramIR, constants: Mapping[str, bytes]) -> Module:
    """Makes the module in Shardy's MPMD dialect, in the program's context. Shardy verifies it."""
    register(program.context)
    written = mpmd_text(program, constants)
    with registered_only(program.context):
        module = _run_shardy(program, "mpmd", lambda: ir.Module.parse(written, context=program.context))
        _run_shardy(program, "mpmd", module.operation.verify)
    return module


def ifrt_module(program: ProgramIR, constants: Mapping[str, bytes]) -> Module:
    """Makes the module of IFRT IR, in the program's context. Shardy verifies it."""
    module = mpmd_module(program, constants)
    with registered_only(program.context):
        _run_shardy(program, "ifrt", lambda: lower_to_ifrt(module))
        _run_shardy(program, "ifrt", module.operation.verify)
    return module


def _run_shardy(program: ProgramIR, form: str, question: Callable[[], Any]) -> Any:
    """Runs a check of Shardy. If Shardy refuses the module, the emitter has a bug."""
    try:
        return question()
    except (ir.MLIRError, JaxRuntimeError, ValueError) as error:
        message = str(error).strip()
        raise PathwaysError(
            RefusedByShardy(program=program.name, form=form, version=WRITER["jaxlib"], message=message)
        ) from None
