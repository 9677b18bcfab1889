"""Everything about a plan that PJRT would not check, or would die of: before any device is touched. Pure.

PJRT compares byte sizes only and crashes on wrong device sets, argument counts and donated inputs; so slots, types,
layouts, device order and donation are compared here with the computations that they are handed to. A rule may rely on
those before it: the first broken one ends it. What a plan names is known to exist afterwards, whoever reads it.
"""

from collections import Counter
from collections.abc import Iterator
from weakref import WeakValueDictionary

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.dtypes import ArrayType
from pathways.dialect.errors import UnsafePlan
from pathways.dialect.labels import read_part
from pathways.dialect.plan.check_branches import branch_problems
from pathways.dialect.plan.check_channels import channel_problems
from pathways.dialect.plan.check_places import place_problems
from pathways.dialect.plan.check_signature import port_problems, tree_problems
from pathways.dialect.plan.check_types import computation_problems, layout_problem
from pathways.dialect.plan.instructions import Branch, Copy, Run
from pathways.dialect.plan.limits import check_amounts, check_work
from pathways.dialect.plan.nouns import Buffer, BufferKind, Layout, Plan, Stream
from pathways.dialect.plan.signature import parameter_problem
from pathways.dialect.sharding import Dims

_valid: WeakValueDictionary[int, Plan] = WeakValueDictionary()
"""Plans in which every rule holds, by their `id`: they never change, and are validated at the door and at load."""


def validate(plan: Plan, path: str = "plan") -> None:
    """Raises PWC0604 with the first broken rule, PWC0613 for a plan that asks for too much."""
    if _valid.get(id(plan)) is plan:
        return
    check_amounts(plan, path)
    for problem, rule in _problems(plan):
        raise PathwaysError(UnsafePlan(path=path, problem=problem, rule=rule))
    check_work(plan, path)
    _valid[id(plan)] = plan


_Problems = Iterator[tuple[str, str]]


def _problems(plan: Plan) -> _Problems:
    yield from place_problems(plan)
    yield from computation_problems(plan)
    yield from tree_problems(plan)
    if problem := parameter_problem(plan.parameters, len(plan.in_tree.children)):
        yield problem, "one parameter an argument, each with a name of its own"
    for number in range(len(plan.bodies)):  # a body before whoever runs it
        yield from _function(plan.of_body(number))
    yield from _function(plan)


def _function(plan: Plan) -> _Problems:
    """The streams of the program, or of a body."""
    for stream in plan.streams:
        yield from _buffers(plan, stream)
    yield from port_problems(plan)
    for stream in plan.streams:
        yield from _stream(plan, stream)
    yield from channel_problems(plan)
    yield from branch_problems(plan)


def _buffers(plan: Plan, stream: Stream) -> _Problems:
    for number, kind in enumerate(stream.kinds):
        yield from _kind(plan, f"kind {number} of the buffers of {stream.island}", stream.island, kind)
    for group in stream.groups:
        if len(group.kinds) != len(group.deaths) or any(not 0 <= k < len(stream.kinds) for k in group.kinds):
            have = f"buffers {group.name} of {stream.island} of kinds {group.kinds}, {len(group.deaths)} deaths"
            yield have, f"kinds 0 to {len(stream.kinds) - 1}, a death a buffer"
        if group.birth < -1 or min(group.deaths, default=0) < -1:
            yield f"buffers {group.name} of {stream.island} from step {group.birth}", "steps, or -1"
    if stream.peak_bytes < 0:
        yield f"a peak of {stream.peak_bytes} bytes on {stream.island}", "bytes from 0"


def _kind(plan: Plan, name: str, island: str, kind: BufferKind) -> _Problems:
    layout = kind.layout
    if not 0 <= layout.mesh < len(plan.meshes) or plan.meshes[layout.mesh].island != island:
        yield f"{name} on mesh {layout.mesh}", f"a mesh of {island}"
    elif (problem := layout_problem(kind.type, layout.dims, plan.meshes[layout.mesh].axes)) is not None:
        yield f"{name} {problem[0]}", problem[1]
    elif kind.type.shard_bytes(plan.sharding(layout).shard_shape(kind.type.shape)) != kind.bytes:
        yield f"{name} of {kind.bytes} bytes a device", "the bytes of its shard"


def _stream(plan: Plan, stream: Stream) -> _Problems:
    """What each instruction finds in its slots. A slot is written once: it is one value."""
    count = len(stream.buffers)
    kept = {c.slot for c in plan.constant_buffers if c.island == stream.island}
    inputs = [p for p in plan.inputs if p.island == stream.island and p.slot >= 0]
    alive = kept | {p.slot for p in inputs}
    written = set(alive)
    borrowed = {p.slot for p in inputs if not p.donated}
    stays = kept | {p.slot for p in plan.results if p.island == stream.island}
    for instruction in stream.instructions:
        name = f"step {instruction.step} of {stream.island}"
        if isinstance(instruction, Run | Branch) and (problem := _donation(instruction)) is not None:
            yield f"{name} ({instruction.name}) {problem}", "each input at most once"
            return
        reads, writes, drops = instruction.effects
        if bad := [s for s in (*reads, *writes, *drops) if not 0 <= s < count]:
            yield f"{name} names slots {bad} of {count}", "slots that exist"
            return
        if missing := [s for s in reads if s not in alive]:
            yield f"{name} reads slots {missing}", "slots written before, not freed"
            return
        if again := [s for s in writes if s in written] or len(set(writes)) != len(writes):
            yield f"{name} writes {again}", "slots that were never written"
        if bad := [s for s in drops if s in stays]:
            yield f"{name} drops slots {bad}", "constants and results to stay"
        if len(set(drops)) != len(drops):
            yield f"{name} drops slots {drops}", "each slot once"
        match instruction:
            case Run():
                yield from _run(plan, stream, instruction, borrowed)
            case Branch() if bad := borrowed & set(drops):
                yield f"{name} donates {sorted(bad)}", "slots that are not the caller's"
            case Copy():
                source, target = stream.buffers[instruction.source], stream.buffers[instruction.target]
                if source.type != target.type:
                    yield f"{name} copies {source.type} to {target.type}", "equal types"
            case _:
                pass
        alive.difference_update(drops)
        alive.update(writes)
        written.update(writes)
    if missing := {p.slot for p in plan.results if p.island == stream.island} - alive:
        yield f"results in slots {sorted(missing)} of {stream.island} that hold nothing", "results that are written"


def _donation(instruction: Run | Branch) -> str | None:
    donated, count = instruction.donated, len(instruction.inputs)
    if len(set(donated)) != len(donated) or any(not 0 <= i < count for i in donated):
        return f"donates {donated} of {count} inputs"
    return None


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
    if run.temporaries < 0:
        yield f"{name} needs {run.temporaries} bytes", "bytes from 0"
    taken = Counter(run.inputs)
    for position in run.donated:
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
    for part in run.parts:
        try:
            read_part(part)
        except ValueError as error:
            yield f"{name}: {error}", "parts as they are written: ACTION NAME FILE:LINE FUNCTION"


def _fits(plan: Plan, buffer: Buffer, type_: ArrayType, dims: Dims, mesh: int) -> bool:
    """Whether a buffer lies as a computation wants it: the same devices in the same order, the same parts on each."""
    if buffer.type != type_:
        return False
    if buffer.layout.mesh == mesh and buffer.layout.dims == dims:
        return True
    return plan.sharding(buffer.layout).same_layout(plan.sharding(Layout(mesh, dims)), type_.shape)
