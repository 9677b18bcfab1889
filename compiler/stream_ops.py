"""Holds the instruction streams that `plan-islands` has planned. They are written as ops of the module when it is
printed or changed. A plan is made from the streams themselves (`export.py`): to write and read ops takes longer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pathways.compiler.instruction_ops import InstructionWriter
from pathways.dialect.ir import pw
from pathways.dialect.ir.declare import INTEGERS
from pathways.dialect.ir.program import BodyIR, ProgramIR
from pathways.dialect.mlir import Attribute, ir
from pathways.dialect.plan.nouns import Buffers, Stream
from pathways.dialect.sdy import Placed, write_shardings


@dataclass(frozen=True)
class PlannedStreams:
    """The streams of each function of a program, in the order of `ProgramIR.functions`, before they are ops."""

    streams: Sequence[Sequence[Stream]]

    def write(self, program: ProgramIR) -> None:
        """Writes the ops where they would be if the pass had written them: before the modules for one device."""
        with program.context, ir.Location.unknown():
            first = next(iter(program.per_device.values()), None)
            ip = ir.InsertionPoint(program.base.body if first is None else first)
            for function, streams in zip(program.functions, self.streams, strict=True):
                for stream in streams:
                    _Writer(function, stream).run(ip)


def planned_streams(program: ProgramIR) -> Sequence[Sequence[Stream]] | None:
    """Returns the streams of each function; None if the plan is read from ops."""
    return program.unwritten.streams if isinstance(program.unwritten, PlannedStreams) else None


def peaks_of(program: ProgramIR) -> dict[str, int]:
    """Returns the largest number of bytes on a device of each island. Requires phase `plan`."""
    planned = planned_streams(program)
    return {s.island: s.peak_bytes for s in (program.plans.values() if planned is None else planned[-1])}


class _Writer:
    """Writes one stream as IR. Attributes that many ops share are built once."""

    def __init__(self, program: ProgramIR, stream: Stream) -> None:
        self.program = program
        self.stream = stream
        self.meshes = list(program.meshes)
        tables = {"meshes": self.meshes, "computations": list(program.computations), "bodies": list(program.bodies)}
        self._instructions = InstructionWriter(program.context, tables)
        self._unknown: Any = ir.Location.unknown()
        self._shared: dict[tuple[int, ...], dict[str, Attribute]] = {}

    def run(self, before: Any) -> None:
        stream = self.stream
        op = pw.PlanOp.create(
            ip=before,
            loc=self._unknown,
            island=stream.island,
            peak_bytes=stream.peak_bytes,
            body=self.program.name if isinstance(self.program, BodyIR) else None,
        )
        self.program.add_plan(op)
        ip = ir.InsertionPoint(op.operation.regions[0].blocks.append())
        born: dict[int, list[tuple[int, Buffers]]] = {}
        slot = 0
        for group in stream.groups:
            born.setdefault(group.birth, []).append((slot, group))
            slot += len(group.kinds)
        self._buffers(born.get(-1, []), ip)
        for instruction in stream.instructions:
            if instruction.effects.writes:
                self._buffers(born.get(instruction.step, []), ip)
            self._instructions.write(instruction, ip)

    def _buffers(self, groups: list[tuple[int, Buffers]], ip: Any) -> None:
        for slot, group in groups:
            pw.BuffersOp.create(
                ip=ip,
                loc=self._unknown,
                slot=slot,
                name=group.name,
                role=group.role,
                owner=group.owner,
                birth=group.birth,
                deaths=group.deaths,
                **self._kinds(group.kinds),
            )

    def _kinds(self, numbers: tuple[int, ...]) -> dict[str, Attribute]:
        if numbers not in self._shared:
            kinds = [self.stream.kinds[n] for n in numbers]
            placed = [Placed(self.meshes[k.layout.mesh], k.layout.dims) for k in kinds]
            shards = [
                replace(k.type, shape=self.program.sharding(p).shard_shape(k.type.shape))
                for k, p in zip(kinds, placed, strict=True)
            ]
            self._shared[numbers] = {
                "types": pw.TYPES.write(tuple(k.type for k in kinds)),
                "shards": pw.TYPES.write(tuple(shards)),
                "sharding": write_shardings(tuple(placed)),
                "bytes": INTEGERS.write(tuple(k.bytes for k in kinds)),
            }
        return self._shared[numbers]
