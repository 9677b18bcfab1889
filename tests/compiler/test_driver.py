"""Tests which IR a compilation keeps as dumps."""

from collections.abc import Sequence

import numpy as np

import pathways as pw
from pathways.compiler.driver import Compilation
from pathways.compiler.passes.base import Pass, Session
from pathways.compiler.passes.find_pipeline import FindPipeline
from pathways.compiler.passes.propagate_shardings import PropagateShardings
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.mlir import text
from pathways.dialect.phases import Phase
from pathways.dialect.topology import parse_topology


def traced() -> Compilation:
    lowered = pw.program(lambda x: x + 1).lower(np.ones(4, np.float32))
    return Compilation(ProgramIR(lowered.module), lowered.constants, Session(parse_topology("devices=1")))


def dumped(compilation: Compilation, upto: Phase, passes: Sequence[Pass]) -> list[Phase]:
    """Continues a compilation and returns the phases of its dumps; the last dump is the program."""
    compilation.advance(upto, passes=passes, keep_dumps=True)
    assert compilation.dumps[compilation.program.phase] == text(compilation.program.read_module())
    return list(compilation.dumps)


def test_the_ir_before_the_first_pass_is_a_dump() -> None:
    compilation = traced()
    before = text(compilation.program.read_module())
    assert dumped(compilation, Phase.SHARD, [PropagateShardings()]) == [Phase.TRACE, Phase.SHARD]
    assert compilation.dumps[Phase.TRACE] == before != compilation.dumps[Phase.SHARD]


def test_a_compilation_without_passes_left_to_run_dumps_its_ir() -> None:
    compilation = traced()
    compilation.advance(Phase.SHARD)
    assert not compilation.dumps
    assert dumped(compilation, Phase.SHARD, [FindPipeline(), PropagateShardings()]) == [Phase.SHARD]
