"""Replaces single fields of plans, and finds the error code with which a file of the changed plan is refused."""

from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.plan.check import validate
from pathways.dialect.plan.nouns import Body, Plan
from pathways.dialect.plan.plan_file import read_plan, write_plan


def code_of(plan: Plan) -> str:
    """Writes, reads and validates the plan; returns the code of the error that refuses it."""
    with pytest.raises(PathwaysError) as caught:
        validate(read_plan(write_plan(plan)))
    return caught.value.code


def on(plan: Plan, at: int, **changes: Any) -> Plan:
    """Replaces fields of one stream of the plan."""
    return replace(plan, streams=(*plan.streams[:at], replace(plan.streams[at], **changes), *plan.streams[at + 1 :]))


class At(NamedTuple):
    """An instruction and its position in the plan."""

    stream: int
    position: int
    instruction: Any


def every(plan: Plan, kind: type) -> list[At]:
    return [
        At(n, i, x) for n, s in enumerate(plan.streams) for i, x in enumerate(s.instructions) if isinstance(x, kind)
    ]


def changed(plan: Plan, at: At, **changes: Any) -> Plan:
    """Replaces fields of one instruction of the plan."""
    before = plan.streams[at.stream].instructions
    new = replace(at.instruction, **changes)
    return on(plan, at.stream, instructions=(*before[: at.position], new, *before[at.position + 1 :]))


def ported(plan: Plan, which: str, **changes: Any) -> Plan:
    ports = getattr(plan, which)
    return replace(plan, **{which: (replace(ports[0], **changes), *ports[1:])})


def meshed(plan: Plan, **changes: Any) -> Plan:
    return replace(plan, meshes=(replace(plan.meshes[0], **changes), *plan.meshes[1:]))


def sliced(plan: Plan, **changes: Any) -> Plan:
    return replace(plan, slices=(replace(plan.slices[0], **changes), *plan.slices[1:]))


def island(plan: Plan, **changes: Any) -> Plan:
    islands = plan.topology.islands
    return replace(plan, topology=replace(plan.topology, islands=(replace(islands[0], **changes), *islands[1:])))


def computed(plan: Plan, **changes: Any) -> Plan:
    return replace(plan, computations=(replace(plan.computations[0], **changes), *plan.computations[1:]))


def kinded(plan: Plan, **changes: Any) -> Plan:
    kinds = plan.streams[0].kinds
    return on(plan, 0, kinds=(replace(kinds[0], **changes), *kinds[1:]))


def body_of(plan: Plan) -> Any:
    return plan.bodies[0] if plan.bodies else Body("b", (), (), (), ())
