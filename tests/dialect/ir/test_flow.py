"""The dataflow that passes update incrementally equals the dataflow read from their IR."""

from typing import Any

import jax
import pytest
from support.pipelines import block, pipe
from support.random_programs import INPUTS, SHAPE, draw, draw_irregular

import pathways as pw
from pathways.compiler.driver import Compilation
from pathways.compiler.frontends import builder
from pathways.compiler.instruments import Instrument
from pathways.compiler.pass_manager import Options
from pathways.compiler.passes.base import Pass, Session
from pathways.dialect.ir.flow import Flow, read_flow
from pathways.dialect.ir.places import number_slots
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.ir.verify import verify
from pathways.dialect.mlir import bytecode, parse
from pathways.dialect.phases import Phase


def _rows(flow: Flow) -> list[Any]:
    return [(n.number, n.op.operation, n.callee, n.mesh, tuple(n.operands), n.results) for n in flow.nodes]


def _check_flow(program: ProgramIR) -> None:
    """Asserts that the flow kept with each function equals the flow read from its ops."""
    for function in program.functions:
        kept, read = function.flow, read_flow(function)
        assert _rows(kept) == _rows(read)
        assert kept.values == read.values
        assert (kept.arguments, kept.makers, kept.returned) == (read.arguments, read.makers, read.returned)
        assert (kept.types, kept.sizes, kept.users) == (read.types, read.sizes, read.users)
        if (slots := kept.slots) is not None:
            kept.slots = None
            assert number_slots(function) == slots


class _FlowChecker(Instrument):
    """Checks the flow after every pass, and counts the passes. Slots are numbered before each pass that may do so."""

    def __init__(self) -> None:
        self.passes = 0

    def before(self, step: Pass, program: ProgramIR, session: Session) -> None:
        for function in program.functions if program.phase.reached(Phase.PLACE) else ():
            number_slots(function)

    def after(self, step: Pass, program: ProgramIR) -> None:
        self.passes += 1
        _check_flow(program)


def _check(lowered: Any, options: Options) -> None:
    module = parse(bytecode(lowered.module.operation), lowered.module.context)
    checker = _FlowChecker()
    Compilation(ProgramIR(module), lowered.constants, Session()).advance(options=options, instruments=[checker])
    assert checker.passes >= 7


@pytest.mark.parametrize("schedule", ["program", "gpipe", "1f1b", "zero-bubble"])
def test_the_flow_is_correct_after_every_pass_over_a_pipeline(schedule: str) -> None:
    p = pipe(slices=2, microbatches=3, devices=2, stage=block, layers=2)
    _check(p.lowered(), Options(schedule=schedule))


@pytest.mark.long("more random examples of the same kind", keep=("draw-[1-4]", "draw_irregular-2"))
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("drawn", [draw, draw_irregular])
def test_the_flow_is_correct_after_every_pass_over_random_programs(drawn: Any, seed: int) -> None:
    placed, _ = drawn(seed)
    values = [jax.ShapeDtypeStruct(SHAPE, "float32")] * INPUTS
    _check(pw.program(placed).lower(*values), Options())


@pytest.mark.parametrize("seed", range(3))
def test_the_flow_of_a_newly_lowered_program_is_correct(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[ProgramIR] = []

    def checks(program: ProgramIR) -> None:
        checked.append(program)
        _check_flow(program)
        verify(program)

    monkeypatch.setattr(builder, "verify", checks)
    placed, _ = draw_irregular(seed)
    pw.program(placed).lower(*[jax.ShapeDtypeStruct(SHAPE, "float32")] * INPUTS)
    assert checked
