"""Checks the rules of the last compilation phase, `plan`, in the IR: each name in an instruction refers to something
that exists. `verify.py` calls it before a plan is made.

Slots, donation and channels are checked in the plan itself (dialect/plan/check.py).
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from pathways.dialect.call_labels import read_part
from pathways.dialect.ir import pw
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.ir.wellformed import Broken
from pathways.dialect.mlir import Attribute


def check_plans(program: ProgramIR) -> Iterator[Broken]:
    """Checks the streams of one function that are ops: one for each island that holds its values."""
    if program.whole.unwritten is not None:
        return
    held = values_held(program)
    for island, plan in program.plans.items():
        if island not in program.islands:
            yield plan.operation, f"is for @{island}, which does not exist", "a pw.island of the module"
        if plan.body is not None and plan.body not in program.bodies:
            yield plan.operation, f"is for the body @{plan.body}, which does not exist", "a pw.body function"
        operations = [op for block in plan.operation.regions[0].blocks for op in block.operations]
        declared = 0
        for op in operations:
            if isinstance(op, pw.BuffersOp):
                if op.slot != declared:
                    yield op.operation, f"begins at slot {op.slot}", f"slot {declared}: buffers have consecutive slots"
                declared += len(op.types)
        if declared != (need := held.pop(island, 0)):
            yield plan.operation, f"declares {declared} buffers", f"{need}: one for each value on @{island}"
        fit: set[tuple[Attribute, Attribute]] = set()
        for op in operations:
            yield from _buffers(program, op, fit) if isinstance(op, pw.BuffersOp) else _named(program, op)
    for island in held:
        yield program.operation, f"has no pw.plan for @{island}", "one for each island with values in phase plan"


def values_held(program: ProgramIR) -> Counter[str]:
    """Counts the values of a function on each island, from their shardings."""
    held: Counter[str] = Counter()
    flow = program.flow
    _, firsts, counts = np.unique(flow.place_ids, return_index=True, return_counts=True)
    different: zip[tuple[int, int]] = zip(firsts.tolist(), counts.tolist(), strict=True)
    for value, count in different:
        placed = flow.places[value]
        if placed is not None:
            held[program.island_of(placed.mesh)] += count
    return held


def check_per_device(program: ProgramIR) -> Iterator[Broken]:
    """Checks that each module for one device belongs to an existing computation."""
    known = {symbol for function in program.functions for symbol in function.computations}
    for symbol, operation in program.per_device.items() if program is program.functions[-1] else ():
        if symbol not in known:
            yield operation, f"is for one device of @{symbol}, which does not exist", "a computation of the module"


def _buffers(program: ProgramIR, op: pw.BuffersOp, fit: set[tuple[Attribute, Attribute]]) -> Iterator[Broken]:
    """Finds lists of different lengths, and unknown meshes. `fit` caches valid pairs of types and shardings."""
    attributes = op.operation.attributes
    lists = op.types, op.shards, op.sharding, attributes["bytes"], attributes["deaths"]
    if len({len(each) for each in lists}) != 1:
        have = f"lists {', '.join(str(len(each)) for each in lists)} types, shards, shardings, bytes and deaths"
        yield op.operation, have, "lists of the same length"
    key = attributes["types"], attributes["sharding"]
    if key in fit:
        return
    wrong = False
    for placed, type_ in zip(op.sharding, op.types, strict=False):
        if placed.mesh not in program.meshes or len(placed.dims) != len(type_.shape):
            wrong = True
            yield op.operation, f"puts {type_} on {placed}", "a pw.mesh of the module, and axes for each dimension"
    if not wrong:
        fit.add(key)


def _named(program: ProgramIR, op: Any) -> Iterator[Broken]:
    """Finds names in an instruction that do not exist."""
    operation = op.operation
    if isinstance(op, pw.RunOp):
        yield from broken_parts(op)
    if isinstance(op, pw.RunOp) and op.callee not in program.computations:
        yield operation, f"runs @{op.callee}, which does not exist", "a computation of this function"
    if isinstance(op, pw.RunOp) and op.mesh not in program.meshes:
        yield operation, f"names the mesh @{op.mesh}, which does not exist", "a pw.mesh of the module"
    if isinstance(op, pw.BranchOp):
        before = list(program.functions)[: program.functions.index(program)]
        if missing := [b for b in op.bodies if program.bodies.get(b) not in before]:
            yield operation, f"runs {missing}, which do not exist", "pw.body functions before it"
        if missing := [m for m in op.meshes if m not in program.meshes]:
            yield operation, f"names the meshes {missing}, which do not exist", "pw.mesh symbols of the module"
    other = op.to if isinstance(op, pw.SendOp) else op.source if isinstance(op, pw.RecvOp) else None
    if other is not None and other not in program.islands:
        yield operation, f"names @{other}, which does not exist", "a pw.island of the module"


def broken_parts(op: pw.CallOp | pw.RunOp) -> Iterator[Broken]:
    for part in op.parts or ():
        try:
            read_part(part)
        except ValueError as error:
            yield (
                op.operation,
                f"has a part that cannot be read: {error}",
                "action, name and line of each: 2F3 f model.py:1",
            )
