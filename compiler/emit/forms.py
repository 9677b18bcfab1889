"""Lists the output formats of `pwc compile --emit`: Shardy's MPMD dialect, and IFRT IR. The driver calls `form_text` to
write a program in one of them.
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from pathways.compiler.emit.ifrt import ifrt_module, mpmd_module
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.mlir import Module, text

Form: TypeAlias = Callable[[ProgramIR, Mapping[str, bytes]], Module]
"""Makes a module from a scheduled program and its constants, by digest."""
FORMS: Mapping[str, Form] = {"mpmd": mpmd_module, "ifrt": ifrt_module}
"""The forms, by their names in `--emit`."""


def form_text(program: ProgramIR, constants: Mapping[str, bytes], form: str) -> str:
    """Writes a program of phase `schedule` in one of the forms, with locations. Raises PWC0125 to PWC0127, PWC0703."""
    return text(FORMS[form](program, constants))
