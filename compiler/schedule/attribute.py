"""Reads and writes the name and the cost figures of a program's schedule in the IR, as the module attribute
`pw.schedule`. Compiler passes write it, and plans copy it.
"""

from dataclasses import fields
from typing import Any

from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.mlir import ir
from pathways.dialect.schedule_figures import Schedule

NAME = "pw.schedule"


def write_schedule(program: ProgramIR, schedule: Schedule) -> None:
    with program.context:
        entries = {f.name: _write(getattr(schedule, f.name)) for f in fields(Schedule)}
        program.attributes[NAME] = ir.DictAttr.get(entries)


def read_schedule(program: ProgramIR) -> Schedule:
    """Reads the schedule of a program; program order if the IR states none."""
    attributes = program.attributes
    if NAME not in attributes:
        return Schedule("program")
    found = ir.DictAttr(attributes[NAME])
    return Schedule(**{f.name: found[f.name].value for f in fields(Schedule) if f.name in found})


def _write(value: str | int | float) -> Any:
    match value:
        case str():
            return ir.StringAttr.get(value)
        case int():
            return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)
        case _:
            return ir.FloatAttr.get_f64(value)
