"""Prepares how an array moves to other devices or to another sharding: asynchronous copies, slices and concatenations
on devices. The loader calls it once for each transfer of a plan. `client/engine.py` calls it for arguments that must
move to other devices first.

A transfer never waits. It passes through host memory only if the host computes for the devices, and the value is small
and ready (MAX_BYTES_THROUGH_HOST says where).

If every target shard is the source shard at the same position, a transfer is one batched copy. Otherwise each source
device cuts the pieces that other devices need, with one small program per device. One batched copy moves the pieces,
and each target device joins its pieces.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pathways.dialect.dtypes import ArrayType
from pathways.dialect.reshard import Piece, plan_reshard
from pathways.dialect.sharding import Box, volume
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.devices.layouts import Shards, Side

Mover: TypeAlias = Callable[[pjrt.DeviceArray], pjrt.DeviceArray]


@dataclass(frozen=True)
class DeviceOp:
    """One action of a transfer: a `cut` or `join` on a device, or a `copy` of `bytes` between two devices."""

    kind: str
    source: pjrt.Device
    target: pjrt.Device
    bytes: int


@dataclass(frozen=True, eq=False)
class Transfer:
    """A prepared transfer. `move` enqueues it; `record` lists its actions, which are the same each time."""

    move: Mover
    record: tuple[DeviceOp, ...]


Compile: TypeAlias = Callable[[str, pjrt.Device], pjrt.Executable]
"""Compiles StableHLO text for a device, or returns the cached executable."""


def prepare_transfer(
    type_: ArrayType, source: Side, target: Side, compile_on: Compile, *, may_use_host: bool
) -> Transfer:
    """Prepares the transfer of arrays of one type from `source` to `target`.

    With `may_use_host`, the enqueuing thread copies small values that are ready (MAX_BYTES_THROUGH_HOST).
    """
    ids = {d: i for i, d in enumerate(dict.fromkeys((*source.devices, *target.devices)))}
    plan = plan_reshard(
        type_.shape,
        source.sharding,
        target.sharding,
        [ids[d] for d in source.devices],
        [ids[d] for d in target.devices],
    )
    if plan.is_copy:
        ends = zip(source.devices, target.devices, plan.source_boxes, strict=True)
        copies = tuple(DeviceOp("copy", a, b, _bytes(type_, box)) for a, b, box in ends)
        crossing = sum(op.bytes for op in copies if op.source != op.target)
        # A replica that is already on a target device, at another position, is not copied.
        if crossing == plan.moved * type_.shard_bytes(()):
            return Transfer(_whole(type_, source, target, may_use_host), copies)
    return _pieces(type_, target, source, plan.pieces, plan.source_boxes, plan.target_boxes, compile_on)


def _whole(type_: ArrayType, source: Side, target: Side, may_use_host: bool) -> Mover:
    devices, sharding = pjrt.device_list(target.devices), target.real

    def move(array: pjrt.DeviceArray) -> pjrt.DeviceArray:
        return pjrt.copy_whole(array, devices, sharding)

    is_small = len(target.devices) == 1 and type_.bytes <= MAX_BYTES_THROUGH_HOST
    if not may_use_host or not is_small or not pjrt.is_on_host(target.devices[0]):
        return move
    place = pjrt.placer(type_, sharding, target.devices, keeps=False)
    is_here = len(source.here) == len(source.devices)

    def move_ready(array: pjrt.DeviceArray) -> pjrt.DeviceArray:
        if not array.is_deleted() and array.is_ready():  # to ask a deleted array whether it is ready ends the process
            try:
                return place([pjrt.read_replica(array, is_here=is_here)])
            except pjrt.FAILURES:  # the copy below carries the error
                pass
        return move(array)

    return move_ready


MAX_BYTES_THROUGH_HOST = 16 << 10
"""Maximum size of a value that this thread copies itself if it is ready, and if the host computes for the devices.

PJRT's copy takes five times as long, since another thread makes it. So bodies of loops and branches use the host: the
enqueuing thread waits before each body anyway. So do arguments, which a call needs at once. Other transfers use PJRT,
since the thread must go on to the next launches: host copies made a step of a pipeline take 1.5 times as long.
"""


@dataclass(frozen=True, eq=False)
class DeviceProgram:
    """A prepared program of one device. Its arguments and results are shards on the device, or pieces of shards."""

    executable: pjrt.Executable

    def __call__(self, arrays: Sequence[pjrt.DeviceArray]) -> list[pjrt.DeviceArray]:
        out = self.executable.execute_sharded(list(arrays)).disassemble_into_single_device_arrays()
        return [shards[0] for shards in out]


def _pieces(
    type_: ArrayType,
    target: Side,
    source: Side,
    pieces: Sequence[Piece],
    source_boxes: Sequence[Box],
    target_boxes: Sequence[Box],
    compile_on: Compile,
) -> Transfer:
    cut = prepare_cut(type_, source, pieces, source_boxes, compile_on)
    join = prepare_join(type_, target, pieces, target_boxes, compile_on)
    to = [target.devices[piece.target] for piece in pieces]

    def move(array: pjrt.DeviceArray) -> pjrt.DeviceArray:
        return join(pjrt.copy_shards(cut(array), to) if to else [])

    record = [DeviceOp("cut", source.devices[p], source.devices[p], 0) for p in _cuts(pieces, source_boxes)]
    record += [
        DeviceOp("copy", source.devices[p.source], d, _bytes(type_, p.box)) for p, d in zip(pieces, to, strict=True)
    ]
    joined = (
        d
        for d, box, got in zip(target.devices, target_boxes, _by_target(pieces, len(target_boxes)), strict=True)
        if not _is_whole(box, got)
    )
    return Transfer(move, tuple(record) + tuple(DeviceOp("join", d, d, 0) for d in joined))


def prepare_cut(
    type_: ArrayType, source: Side, pieces: Sequence[Piece], source_boxes: Sequence[Box], compile_on: Compile
) -> Callable[[pjrt.DeviceArray], list[pjrt.DeviceArray]]:
    """Prepares to cut pieces out of an array's shards. The result gives one array per piece, on its source device."""
    cuts = _cuts(pieces, source_boxes)
    cutters = {
        position: DeviceProgram(compile_on(_cut(type_, source_boxes[position], boxes), source.devices[position]))
        for position, boxes in cuts.items()
    }
    used = sorted({piece.source for piece in pieces})
    place = {position: index for index, position in enumerate(source.here)}

    def cut(array: pjrt.DeviceArray) -> list[pjrt.DeviceArray]:
        shards = {i: pjrt.shard(array, place[i]) for i in used}
        held = {(i, source_boxes[i]): shards[i] for i in used}
        for position, cutter in cutters.items():
            held.update(zip(((position, b) for b in cuts[position]), cutter([shards[position]]), strict=True))
        return [held[p.source, p.box] for p in pieces]

    return cut


def prepare_join(
    type_: ArrayType, target: Side, pieces: Sequence[Piece], target_boxes: Sequence[Box], compile_on: Compile
) -> Callable[[Sequence[pjrt.DeviceArray]], pjrt.DeviceArray]:
    """Prepares to join pieces, each already on its target device, into an array.

    `pieces` are the pieces for devices of this process, ordered by target.
    """
    by_target = _by_target(pieces, len(target_boxes))
    incoming = [by_target[position] for position in target.here]
    joiners = [
        None
        if _is_whole(target_boxes[position], got)
        else _joiner(type_, target, position, target_boxes, got, compile_on)
        for position, got in zip(target.here, incoming, strict=True)
    ]
    if not target.here:
        return lambda _: Shards()
    assemble = pjrt.assembler(type_, target.real)

    def join(arrays: Sequence[pjrt.DeviceArray]) -> pjrt.DeviceArray:
        moved = iter(arrays)
        parts = [[next(moved) for _ in got] for got in incoming]
        joined = [got[0] if join is None else join(got)[0] for join, got in zip(joiners, parts, strict=True)]
        return assemble(joined)

    return join


def _joiner(
    type_: ArrayType, target: Side, position: int, boxes: Sequence[Box], got: Sequence[Piece], compile_on: Compile
) -> DeviceProgram:
    return DeviceProgram(compile_on(_join(type_, boxes[position], got), target.devices[position]))


def _cuts(pieces: Sequence[Piece], source_boxes: Sequence[Box]) -> dict[int, list[Box]]:
    """Finds the boxes that must be cut out of the shard at each position."""
    cuts: dict[int, list[Box]] = {}
    for piece in pieces:
        if piece.box != source_boxes[piece.source]:
            boxes = cuts.setdefault(piece.source, [])
            if piece.box not in boxes:
                boxes.append(piece.box)
    return cuts


def _by_target(pieces: Sequence[Piece], count: int) -> list[list[Piece]]:
    incoming: list[list[Piece]] = [[] for _ in range(count)]
    for piece in pieces:
        incoming[piece.target].append(piece)
    return incoming


def _bytes(type_: ArrayType, box: Box) -> int:
    return volume(box) * type_.shard_bytes(())


def _is_whole(box: Box, got: Sequence[Piece]) -> bool:
    return len(got) == 1 and got[0].box == box


def _shape(box: Box) -> tuple[int, ...]:
    return tuple(stop - start for start, stop in box)


def _typed(type_: ArrayType, box: Box) -> str:
    return ArrayType(_shape(box), type_.dtype).mlir


def _cut(type_: ArrayType, shard: Box, boxes: Sequence[Box]) -> str:
    """Writes a program that cuts `boxes` out of the shard with the box `shard`. Boxes refer to the whole array."""
    lines: list[str] = []
    for i, box in enumerate(boxes):
        ranges = ", ".join(f"{p - o}:{q - o}" for (p, q), (o, _) in zip(box, shard, strict=True))
        lines.append(f"%{i} = stablehlo.slice %a [{ranges}] : ({_typed(type_, shard)}) -> {_typed(type_, box)}")
    results = [_typed(type_, b) for b in boxes]
    return program_text([f"%a: {_typed(type_, shard)}"], results, lines, [f"%{i}" for i in range(len(boxes))])


def _join(type_: ArrayType, target: Box, got: Sequence[Piece]) -> str:
    """Writes a program that joins pieces into the shard with the box `target`. An empty shard has no pieces."""
    whole = _typed(type_, target)
    lines = [f"%z = stablehlo.constant {_zero(type_)} : {whole}"]
    current = "%z"
    for i, piece in enumerate(got):
        starts: list[str] = []
        for d, ((p, _), (o, _)) in enumerate(zip(piece.box, target, strict=True)):
            starts.append(f"%s{i}_{d}")
            lines.append(f"%s{i}_{d} = stablehlo.constant dense<{p - o}> : tensor<i32>")
        kinds = ", ".join([whole, _typed(type_, piece.box), *["tensor<i32>"] * len(starts)])
        operands = ", ".join([current, f"%p{i}", *starts])
        lines.append(f"%u{i} = stablehlo.dynamic_update_slice {operands} : ({kinds}) -> {whole}")
        current = f"%u{i}"
    parameters = [f"%p{i}: {_typed(type_, piece.box)}" for i, piece in enumerate(got)]
    return program_text(parameters, [whole], lines, [current])


def _zero(type_: ArrayType) -> str:
    if type_.dtype == "bool":
        return "dense<false>"
    if type_.dtype.startswith("complex"):
        return "dense<(0.0,0.0)>"
    if type_.dtype == "float8_e8m0fnu":  # this type has no zero; every element is overwritten
        return "dense<1.0>"
    return "dense<0>" if "int" in type_.dtype else "dense<0.0>"


def program_text(
    parameters: Sequence[str], results: Sequence[str], lines: Sequence[str], returned: Sequence[str]
) -> str:
    """Writes the StableHLO text of a small program from its typed parameters, result types, body lines and results."""
    body = "\n    ".join(lines)
    signature = f"func.func public @main({', '.join(parameters)}) -> ({', '.join(results)})"
    return (
        f"module {{\n  {signature} {{\n    {body}\n    return {', '.join(returned)} : {', '.join(results)}\n  }}\n}}\n"
    )
