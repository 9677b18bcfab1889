"""Every value gets a buffer, every island its instruction stream."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pathways.compiler.errors import OutOfMemory
from pathways.compiler.lifetimes import Lifetime, donations, lifetimes
from pathways.compiler.passes.base import Pass, Session
from pathways.dialect import pw
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.mlir import Value, ir, name_of
from pathways.dialect.phases import Phase
from pathways.dialect.program import Program, array_type, described, main_of
from pathways.dialect.values import number_slots, value_places


@dataclass(frozen=True)
class PlanIslands(Pass):
    """Lay out buffers with birth, last use and size, mark donated operands, and write one pw.plan an island.

    Requires: phase schedule.
    Ensures: phase plan: each buffer is freed or donated exactly once after its last use, or kept as a result or a
    constant; each send has one receive; the peak of bytes on a device is known.
    """

    name: ClassVar[str] = "plan-islands"
    requires: ClassVar[Phase] = Phase.SCHEDULE
    ensures: ClassVar[Phase] = Phase.PLAN
    donate: bool = True

    def apply(self, program: Program, session: Session) -> None:
        plan_islands(program, donate=self.donate)


def plan_islands(program: Program, *, donate: bool = True) -> None:
    with program.context, ir.Location.unknown():
        writer = _Writer(program, donate)
        writer.run()
    program.phase = Phase.PLAN


@dataclass
class _Stream:
    """One island's plan while it is written."""

    op: pw.PlanOp
    ip: Any
    live: dict[int, int] = field(default_factory=dict[int, int])
    sizes: dict[int, tuple[str, int]] = field(default_factory=dict[int, "tuple[str, int]"])
    peak: int = 0

    def reach(self, program: Program, step: int) -> None:
        """Notes a new peak. Raises PWC0302 where it is more than the topology says there is."""
        self.peak = max([self.peak, *self.live.values()])
        memory = program.islands[self.op.island].memory
        if memory is not None and self.peak > memory:
            largest = sorted(self.sizes.values(), key=lambda named: -named[1])[:4]
            shown = "\n".join(f"{name}: {size:,}" for name, size in largest)
            error = OutOfMemory(island=self.op.island, memory=memory, peak=self.peak, step=step, largest=shown)
            raise PathwaysError(error)


class _Writer:
    def __init__(self, program: Program, donate: bool) -> None:
        self.program = program
        self.places = value_places(program)
        self.slots = number_slots(program, self.places)
        self.alive = lifetimes(program, self.places)
        self.arguments = dict(zip(program.block.arguments, program.arguments, strict=True))
        chosen = donations(program, self.alive) if donate else {}
        self.donated: dict[str, tuple[int, ...]] = {c: chosen.get(c, ()) for c in program.computations}
        self.streams: dict[str, _Stream] = {}

    def run(self) -> None:
        program = self.program
        for value, argument in self.arguments.items():
            if value in self.places:
                role = "constant" if argument.is_constant else "input"
                self._buffer(value, argument.name, role)
        for stream in self.streams.values():
            stream.reach(program, -1)
        for op in program.nodes():
            if isinstance(op, pw.CallOp):
                self._run(op)
            else:
                self._move(op)
        for symbol, positions in self.donated.items():
            _mark_donated(program.computations[symbol], positions)
        for stream in self.streams.values():
            stream.op.peak_bytes = stream.peak

    def _island(self, value: Value) -> str:
        return self.program.island_of(self.places[value].mesh)

    def _stream(self, island: str) -> _Stream:
        if island not in self.streams:
            op = pw.PlanOp.create(
                ip=ir.InsertionPoint(self.program.module.body),
                loc=ir.Location.unknown(),
                island=island,
                peak_bytes=0,
            )
            block = op.operation.regions[0].blocks.append()
            self.streams[island] = _Stream(op, ir.InsertionPoint(block))
            self.program.plans[island] = op
        return self.streams[island]

    def _buffer(self, value: Value, name: str, role: str) -> int:
        """Gives a value its buffer on its island."""
        stream = self._stream(self._island(value))
        slot = self.slots[value]
        placed, type_, life = self.places[value], array_type(value), self.alive[value]
        shard = self.program.sharding(placed).shard_shape(type_.shape)
        size = type_.shard_bytes(shard)
        returned = life.kept and role == "temporary"
        pw.BufferOp.create(
            ip=stream.ip,
            loc=ir.Location.name(name),
            slot=slot,
            name=name,
            role="result" if returned else role,
            dtype=type_.dtype,
            shape=type_.shape,
            shard_shape=shard,
            sharding=(placed,),
            bytes=size,
            birth=life.birth,
            death=-1 if life.kept else life.death,
        )
        stream.sizes[slot] = name, size
        for device in self._devices(value):
            stream.live[device] = stream.live.get(device, 0) + size
        return slot

    def _devices(self, value: Value) -> Iterator[int]:
        placed = self.places[value]
        ids = self.program.slices[self.program.slice_of(placed.mesh)].device_ids or ()
        return (ids[i] for i in self.program.mesh(placed.mesh).devices)

    def _drop(self, stream: _Stream, value: Value) -> int:
        slot = self.slots[value]
        borrowed = value in self.arguments and not self.alive[value].owned
        if not borrowed:  # what the caller keeps stays in memory
            _, size = stream.sizes.pop(slot)
            for device in self._devices(value):
                stream.live[device] -= size
        return slot

    def _run(self, call: pw.CallOp) -> None:
        stream = self._stream(call.island or "")
        step, name = call.step or 0, name_of(call.operation)
        donated = self.donated[call.callee]
        operands = list(call.operands)
        inputs = [self.slots[v] for v in operands]
        gone = {operands[i] for i in donated}
        for value in gone:  # its memory becomes a result's
            self._drop(stream, value)
        outputs = [self._buffer(r, _result_name(name, i, call), "temporary") for i, r in enumerate(call.results)]
        stream.reach(self.program, step)
        pw.RunOp.create(
            ip=stream.ip,
            loc=call.operation.location,
            step=step,
            callee=call.callee,
            mesh=call.mesh,
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            donated=donated,
        )
        self._free(stream, step, [*operands, *call.results], gone)

    def _move(self, op: pw.TransferOp) -> None:
        (value,), (result,), step = op.operands, op.results, op.step or 0
        here, there = self._stream(self._island(value)), self._stream(self._island(result))
        source = self.slots[value]
        target = self._buffer(result, f"{_shown(value, self)} moved", "temporary")
        there.reach(self.program, step)
        loc = op.operation.location
        if here is there:
            pw.CopyOp.create(ip=here.ip, loc=loc, step=step, source=source, target=target)
        else:
            pw.SendOp.create(ip=here.ip, loc=loc, step=step, channel=step, slot=source, to=there.op.island)
            pw.RecvOp.create(ip=there.ip, loc=loc, step=step, channel=step, slot=target, source=here.op.island)
        self._free(here, step, [value], set())
        self._free(there, step, [result], set())

    def _free(self, stream: _Stream, step: int, values: list[Value], gone: set[Value]) -> None:
        dead = [v for v in dict.fromkeys(values) if self._ends(self.alive[v], step) and v not in gone]
        if dead:
            slots = tuple(self._drop(stream, v) for v in dead)
            pw.FreeOp.create(ip=stream.ip, loc=ir.Location.unknown(), step=step, slots=slots)

    def _ends(self, life: Lifetime, step: int) -> bool:
        return life.death == step and not life.kept


def _result_name(name: str, index: int, call: pw.CallOp) -> str:
    return name if len(call.results) == 1 else f"{name}#{index}"


def _shown(value: Value, writer: _Writer) -> str:
    if isinstance(value.owner, ir.Block):
        return writer.arguments[value].name
    return name_of(value.owner)


def _mark_donated(computation: Any, positions: tuple[int, ...]) -> None:
    """Tells XLA which arguments it may overwrite."""
    main = main_of(computation)
    old = described(main, "arg_attrs", len(main.type.inputs))
    new: list[Any] = []
    for i, attribute in enumerate(old):
        entries = {n.name: n.attr for n in attribute if n.name not in ("jax.buffer_donor", "tf.aliasing_output")}
        if i in positions:
            entries["jax.buffer_donor"] = ir.BoolAttr.get(True)
        new.append(ir.DictAttr.get(entries))
    main.arg_attrs = ir.ArrayAttr.get(new)
