"""The rules of phase `plan`: instruction streams that name what there is, and buffers that hold something when read."""

from collections.abc import Iterator
from typing import Any

from pathways.dialect.ir import pw
from pathways.dialect.ir.program import Program
from pathways.dialect.ir.wellformed import Broken
from pathways.dialect.labels import read_part


def check_plans(program: Program) -> Iterator[Broken]:
    """The streams of one function. Later rules rely on earlier ones, op by op."""
    sent: dict[int, str] = {}
    received: dict[int, str] = {}
    for island, plan in program.plans.items():
        if island not in program.islands:
            yield plan.operation, f"is for @{island}, which does not exist", "a pw.island of the module"
        alive: set[int] = set()
        operations = [op for block in plan.operation.regions[0].blocks for op in block.operations]
        declared = 0
        for op in operations:
            if isinstance(op, pw.BuffersOp):
                if op.slot != declared:
                    yield op.operation, f"begins at slot {op.slot}", f"slot {declared}: buffers follow each other"
                declared += len(op.types)
        for op in operations:
            wrong = list(_named(program, op))
            yield from wrong
            if not wrong:
                yield from _slots(op, alive, declared)
                if isinstance(op, pw.SendOp):
                    sent[op.channel] = island
                if isinstance(op, pw.RecvOp):
                    received[op.channel] = island
    if sent.keys() != received.keys():
        odd = sorted(sent.keys() ^ received.keys())
        yield program.module.operation, f"has channels {odd} with one end", "one send and one receive a channel"


def _named(program: Program, op: Any) -> Iterator[Broken]:
    """What an instruction names that does not exist, and lists that do not fit each other."""
    operation = op.operation
    if isinstance(op, pw.BuffersOp):
        lists = op.types, op.shards, op.sharding, op.bytes, op.deaths
        if len({len(each) for each in lists}) != 1:
            have = f"lists {', '.join(str(len(each)) for each in lists)} types, shards, shardings, bytes and deaths"
            yield operation, have, "as many of each"
        for placed, type_ in zip(op.sharding, op.types, strict=False):
            if placed.mesh not in program.meshes or len(placed.dims) != len(type_.shape):
                yield operation, f"puts {type_} on {placed}", "a pw.mesh of the module, and axes for each dimension"
    if isinstance(op, pw.RunOp):
        yield from broken_parts(op)
    if isinstance(op, pw.RunOp) and op.callee not in program.computations:
        yield operation, f"runs @{op.callee}, which is not there", "a computation of this function"
    if isinstance(op, pw.RunOp) and op.mesh not in program.meshes:
        yield operation, f"names the mesh @{op.mesh}, which does not exist", "a pw.mesh of the module"
    if isinstance(op, (pw.RunOp, pw.BranchOp)) and any(not 0 <= i < len(op.inputs) for i in op.donated):
        yield operation, f"donates {op.donated} of {len(op.inputs)} inputs", "positions in its inputs"
    if isinstance(op, pw.BranchOp):
        before = list(program.functions)[: program.functions.index(program)]
        if missing := [b for b in op.bodies if program.bodies.get(b) not in before]:
            yield operation, f"runs {missing}, which are not there", "pw.body functions before it"
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
                f"is merged of what cannot be: {error}",
                "action, name and line of each: 2F3 f model.py:1",
            )


def _slots(op: Any, alive: set[int], declared: int) -> Iterator[Broken]:
    """Follows one instruction: what holds a value before it, and after it."""
    reads, writes, drops = _effects(op)
    for slot in reads:
        if slot not in alive:
            yield op.operation, f"reads slot {slot}, which holds nothing", "buffers written before and not freed"
    for slot in writes:
        if not 0 <= slot < declared:
            yield op.operation, f"writes slot {slot}, which no pw.buffers declares", f"slots 0 to {declared - 1}"
    alive -= set(drops)
    if isinstance(op, pw.BuffersOp) and op.birth < 0:
        alive.update(range(op.slot, op.slot + len(op.types)))
    alive |= set(writes)


def _effects(op: Any) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Slots that an instruction reads, writes and drops."""
    match op:
        case pw.RunOp():
            return op.inputs, op.outputs, tuple(op.inputs[i] for i in op.donated)
        case pw.SendOp():
            return (op.slot,), (), ()
        case pw.RecvOp():
            return (), (op.slot,), ()
        case pw.CopyOp():
            return (op.source,), (op.target,), ()
        case pw.BranchOp():
            return op.inputs, op.outputs, tuple(op.inputs[i] for i in op.donated)
        case pw.FreeOp():
            return op.slots, (), op.slots
        case _:
            return (), (), ()
