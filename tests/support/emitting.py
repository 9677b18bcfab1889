"""Prepares programs for export to other formats, as `pwc compile --emit` does."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from pathways.api.stages import Lowered
from pathways.compiler.driver import Compilation
from pathways.compiler.pass_manager import Options
from pathways.compiler.passes.base import Session
from pathways.compiler.schedule import PROGRAM
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.mlir import bytecode, parse
from pathways.dialect.phases import Phase


def scheduled(lowered: Lowered, schedule: str = PROGRAM) -> Compilation:
    """Compiles a program to phase `schedule`, with one island for each slice."""
    module: Any = lowered.module
    program = ProgramIR(parse(bytecode(module.operation), module.context))
    compilation = Compilation(program, lowered.constants, Session(None))
    compilation.advance(Phase.SCHEDULE, options=Options(schedule=schedule))
    return compilation


def some_value(rng: np.random.Generator, like: Any) -> Any:
    """Returns an argument of this type: random floats, or zeros for other types."""
    if jnp.issubdtype(like.dtype, jnp.floating):
        return rng.standard_normal(like.shape).astype(like.dtype)
    return np.zeros(like.shape, like.dtype)
