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
from pathways.dialect.ir.flow import Flow
from pathways.dialect.ir.places import number_slots
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.ir.verify import verify
from pathways.dialect.mlir import bytecode, parse, text
from pathways.dialect.phases import Phase


def _rows(flow: Flow) -> list[Any]:
    nodes = flow.nodes
    fields = [(n.op.OPERATION_NAME, n.op.values(), str(n.op.location)) for n in nodes]
    return [(n.number, f, n.callee, n.mesh, tuple(n.operands), n.results) for n, f in zip(nodes, fields, strict=True)]


def _check_flow(program: ProgramIR) -> None:
    """Asserts that each function equals the one that is read from its ops, and that a copy writes the same ops."""
    written = ProgramIR(parse(bytecode(program.read_module().operation), program.context))
    assert text(program.copy().read_module()) == text(program.read_module()) == text(written.read_module())
    for function, other in zip(program.functions, written.functions, strict=True):
        kept, read = function.flow, other.flow
        assert _rows(kept) == _rows(read)
        assert (function.arguments, function.results) == (other.arguments, other.results)
        assert (kept.arguments, kept.makers, kept.returned) == (read.arguments, read.makers, read.returned)
        assert (kept.types, kept.sizes, [*kept.users]) == (read.types, read.sizes, [*read.users])
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
