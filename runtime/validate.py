"""Everything about a plan that PJRT would not check, or would die of: before any device is touched. Pure.

PJRT compares byte sizes only and crashes on wrong device sets, argument counts and donated inputs; so slots, types,
layouts, device order and donation are compared here with the computations that they are handed to.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.dtypes import ArrayType, is_stored_as_named
from pathways.dialect.errors import UnsafePlan
from pathways.dialect.plan import Branch, Buffer, Copy, Free, Instruction, Layout, Plan, Port, Recv, Run, Send, Stream
from pathways.dialect.sharding import Dims, size_of_axes
from pathways.dialect.signature import parameter_problem
from pathways.dialect.trees import count_leaves
from pathways.runtime.validate_branches import branch_problems


def validate(plan: Plan, path: str = "plan") -> None:
    """Raises PWC0604 with the first broken rule."""
    for problem, rule in _problems(plan):
        raise PathwaysError(UnsafePlan(path=path, problem=problem, rule=rule))


_Problems = Iterator[tuple[str, str]]


def _problems(plan: Plan) -> _Problems:
    yield from _machines(plan)
    yield from _computations(plan)
    if count_leaves(plan.in_tree) != len(plan.inputs) or count_leaves(plan.out_tree) != len(plan.results):
        yield "a signature with another number of arrays than its trees have leaves", "one leaf an array"
    if problem := parameter_problem(plan.parameters, len(plan.in_tree.children)):
        yield problem, "one parameter an argument, each with a name of its own"
    for number in range(len(plan.bodies)):  # a body before whoever runs it
        yield from _function(plan.of_body(number))
    yield from _function(plan)


def _function(plan: Plan) -> _Problems:
    """The streams of the program, or of a body."""
    islands = [s.island for s in plan.streams]
    if len(set(islands)) != len(islands) or not set(islands) <= set(plan.topology.names):
        yield f"streams for {islands}", "one stream an island of the topology"
        return
    sends: Counter[Any] = Counter()
    for stream in plan.streams:
        yield from _groups(stream)
    for stream in plan.streams:
        for number, buffer in enumerate(stream.buffers):
            yield from _buffer(plan, stream, number, buffer)
    for stream in plan.streams:
        yield from _stream(plan, stream)
        for instruction in stream.instructions:
            if isinstance(instruction, Send):
                sends[instruction.channel, stream.island, instruction.to] += 1
            if isinstance(instruction, Recv):
                sends[instruction.channel, instruction.source, stream.island] -= 1
    if any(sends.values()):
        odd = [k for k, n in sends.items() if n]
        yield f"channels without two matching ends: {odd}", "one send and one receive a channel"
    yield from _channels(plan)
    yield from _ports(plan)
    yield from branch_problems(plan)


def _machines(plan: Plan) -> _Problems:
    sizes = {i.name: i.size for i in plan.topology.islands}
    names = {s.island for s in plan.streams}
    if len(names) != len(plan.streams) or not names <= sizes.keys() or len(sizes) != len(plan.topology.islands):
        yield f"streams for {sorted(names)}, islands {sorted(sizes)}", "one stream an island of the topology"
    if any(n < 1 or n > 1 << 20 for n in sizes.values()):
        yield f"islands of {sizes} devices", "a positive number of devices an island"
    for mesh in plan.meshes:
        size = size_of_axes(mesh.axes)
        if mesh.island not in sizes:
            yield f"mesh {mesh.name} on {mesh.island}", "meshes on islands of the topology"
        elif size != len(mesh.devices) or len(set(mesh.devices)) != size or size < 1:
            yield (
                f"mesh {mesh.name} of {size} over devices {mesh.devices}",
                "as many different devices as the axes span",
            )
        elif any(not 0 <= d < sizes[mesh.island] for d in mesh.devices):
            yield f"mesh {mesh.name} on devices {mesh.devices}", f"devices 0 to {sizes[mesh.island] - 1}"
        if len({name for name, _ in mesh.axes}) != len(mesh.axes):
            yield f"mesh {mesh.name} with axes {mesh.axes}", "axes with different names"


def _computations(plan: Plan) -> _Problems:
    for computation in plan.computations:
        sides = (computation.inputs, computation.in_layouts), (computation.outputs, computation.out_layouts)
        for types, layouts in sides:
            if len(types) != len(layouts):
                yield f"{computation.name} has {len(layouts)} layouts for {len(types)} arrays", "a layout an array"
        if any(not 0 <= d < len(computation.inputs) for d in computation.donated):
            yield f"{computation.name} donates {computation.donated}", f"inputs 0 to {len(computation.inputs) - 1}"
        if len(set(computation.donated)) != len(computation.donated):
            yield f"{computation.name} donates {computation.donated}", "each input at most once"


def _groups(stream: Stream) -> _Problems:
    for group in stream.groups:
        if len(group.kinds) != len(group.deaths) or any(not 0 <= k < len(stream.kinds) for k in group.kinds):
            have = f"buffers {group.name} of {stream.island} of kinds {group.kinds}, {len(group.deaths)} deaths"
            yield have, f"kinds 0 to {len(stream.kinds) - 1}, a death a buffer"


def _buffer(plan: Plan, stream: Stream, number: int, buffer: Buffer) -> _Problems:
    name = f"slot {number} of {stream.island} ({buffer.name})"
    layout = buffer.layout
    if not 0 <= layout.mesh < len(plan.meshes) or plan.meshes[layout.mesh].island != stream.island:
        yield f"{name} on mesh {layout.mesh}", f"a mesh of {stream.island}"
        return
    if not is_stored_as_named(buffer.type.dtype) or any(d < 0 for d in buffer.type.shape):
        yield f"{name} of type {buffer.type}", "a known element type and sizes from 0"
        return
    names = {n for n, _ in plan.meshes[layout.mesh].axes}
    used = [a for axes in layout.dims for a in axes]
    if len(layout.dims) != len(buffer.type.shape) or len(set(used)) != len(used) or not names.issuperset(used):
        yield f"{name} split as {layout.dims}", f"one entry a dimension, axes of {sorted(names)}"
        return
    sharding = plan.sharding(layout)
    if sharding.undivided(buffer.type.shape):
        yield f"{name} of {buffer.type} split as {sharding}", "shards of equal size"
    elif buffer.type.shard_bytes(sharding.shard_shape(buffer.type.shape)) != buffer.bytes:
        yield f"{name} of {buffer.bytes} bytes a device", "the bytes of its shard"


def _stream(plan: Plan, stream: Stream) -> _Problems:
    count = len(stream.buffers)
    outside = {c.slot for c in plan.constant_buffers if c.island == stream.island}
    kept = set(outside)
    alive = outside | {p.slot for p in plan.inputs if p.island == stream.island and p.slot >= 0}
    borrowed = {p.slot for p in plan.inputs if p.island == stream.island and p.slot >= 0 and not p.donated}
    results = {p.slot for p in plan.results if p.island == stream.island}
    for instruction in stream.instructions:
        reads, writes, drops = effects(instruction)
        for slot in (*reads, *writes, *drops):
            if not 0 <= slot < count:
                yield f"step {instruction.step} of {stream.island} names slot {slot} of {count}", "slots that exist"
                return
        if missing := [s for s in reads if s not in alive]:
            yield f"step {instruction.step} of {stream.island} reads slots {missing}", "slots written before, not freed"
            return
        if again := [s for s in writes if s in alive] or len(set(writes)) != len(writes):
            yield f"step {instruction.step} of {stream.island} writes {again}", "slots that hold nothing"
        if bad := [s for s in drops if s in kept or s in results]:
            yield f"step {instruction.step} of {stream.island} drops slots {bad}", "constants and results to stay"
        if isinstance(instruction, Run):
            yield from _run(plan, stream, instruction, borrowed)
        if isinstance(instruction, Branch) and (bad := borrowed & set(drops)):
            yield f"step {instruction.step} of {stream.island} donates {sorted(bad)}", "slots that are not the caller's"
        if isinstance(instruction, Copy):
            source, target = stream.buffers[instruction.source], stream.buffers[instruction.target]
            if source.type != target.type:
                yield f"step {instruction.step} copies {source.type} to {target.type}", "equal types"
        alive.difference_update(drops)
        alive.update(writes)
    if missing := results - alive:
        yield f"results in slots {sorted(missing)} of {stream.island} that hold nothing", "results that are written"


def _run(plan: Plan, stream: Stream, run: Run, borrowed: set[int]) -> _Problems:
    if not (0 <= run.computation < len(plan.computations) and 0 <= run.mesh < len(plan.meshes)):
        yield f"step {run.step} runs computation {run.computation} on mesh {run.mesh}", "ones that exist"
        return
    computation, mesh = plan.computations[run.computation], plan.meshes[run.mesh]
    name = f"step {run.step} ({run.name})"
    if mesh.axes != computation.axes or mesh.island != stream.island:
        yield f"{name} runs on {mesh.axes} of {mesh.island}", f"{computation.axes} on {stream.island}"
    if run.donated != computation.donated:
        yield f"{name} donates {run.donated}", f"{computation.donated}, as the computation was compiled"
    taken = Counter(run.inputs)
    for position in run.donated:
        if not 0 <= position < len(run.inputs):
            yield f"{name} donates input {position}", "an input that it has"
            return
        if taken[run.inputs[position]] > 1 or run.inputs[position] in borrowed:
            yield f"{name} donates slot {run.inputs[position]}", "a slot used once, and not the caller's"
    sides = (
        ("input", run.inputs, computation.inputs, computation.in_layouts),
        ("output", run.outputs, computation.outputs, computation.out_layouts),
    )
    for side, slots, types, layouts in sides:
        if len(slots) != len(types):
            yield f"{name} has {len(slots)} {side}s", f"{len(types)}"
            return
        for i, (slot, type_, dims) in enumerate(zip(slots, types, layouts, strict=True)):
            if not _fits(plan, stream.buffers[slot], type_, dims, run.mesh):
                have = f"{stream.buffers[slot].type} as {stream.buffers[slot].layout}"
                yield f"{name} {side} {i} is {have}", f"{type_} as {dims} on mesh {run.mesh}"


def _fits(plan: Plan, buffer: Buffer, type_: ArrayType, dims: Dims, mesh: int) -> bool:
    """Whether a buffer lies as a computation wants it: the same devices in the same order, the same parts on each."""
    if buffer.type != type_ or len(dims) != len(type_.shape):
        return False
    return plan.sharding(buffer.layout).same_layout(plan.sharding(Layout(mesh, dims)), type_.shape)


def _channels(plan: Plan) -> _Problems:
    sent: dict[int, Buffer] = {}
    for stream in plan.streams:
        sent.update({i.channel: stream.buffers[i.slot] for i in stream.instructions if isinstance(i, Send)})
    for stream in plan.streams:
        for i in stream.instructions:
            if isinstance(i, Recv) and stream.buffers[i.slot].type != sent[i.channel].type:
                have = f"channel {i.channel} sends {sent[i.channel].type}, receives {stream.buffers[i.slot].type}"
                yield have, "equal types"


def _ports(plan: Plan) -> _Problems:
    taken = Counter((p.island, p.slot) for p in plan.inputs if p.slot >= 0)
    taken.update((c.island, c.slot) for c in plan.constant_buffers)
    if shared := [k for k, n in taken.items() if n > 1]:
        yield f"several inputs or constants in {shared}", "a slot of its own for each"
    for port in (*plan.inputs, *plan.results):
        if port.slot >= 0:
            yield from _port(plan, port)
    for port in plan.results:
        if port.slot < 0:
            yield f"result {port.name} without a slot", "a slot for every result"
    for held in plan.constant_buffers:
        stream = next((s for s in plan.streams if s.island == held.island), None)
        if stream is None or not 0 <= held.slot < len(stream.buffers):
            yield f"a constant in slot {held.slot} of {held.island}", "a slot that exists"
        elif len(plan.constants.get(held.member, b"")) != stream.buffers[held.slot].type.bytes:
            yield f"constant {held.member} of the wrong size", f"{stream.buffers[held.slot].type.bytes} bytes"


def _port(plan: Plan, port: Port) -> _Problems:
    stream = next((s for s in plan.streams if s.island == port.island), None)
    if stream is None or port.slot >= len(stream.buffers):
        yield f"{port.name} in slot {port.slot} of {port.island}", "a slot that exists"
    elif stream.buffers[port.slot].type != port.type:
        yield f"{port.name} is {port.type}, its buffer {stream.buffers[port.slot].type}", "equal types"


def effects(instruction: Instruction) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Slots that an instruction reads, writes and drops."""
    match instruction:
        case Run():
            inputs = instruction.inputs
            return inputs, instruction.outputs, tuple(inputs[i] for i in instruction.donated if 0 <= i < len(inputs))
        case Send():
            return (instruction.slot,), (), ()
        case Recv():
            return (), (instruction.slot,), ()
        case Copy():
            return (instruction.source,), (instruction.target,), ()
        case Branch():
            inputs = instruction.inputs
            return inputs, instruction.outputs, tuple(inputs[i] for i in instruction.donated if 0 <= i < len(inputs))
        case Free():
            return instruction.slots, (), instruction.slots
