"""Validates a plan before any device is used: slots of buffers, types, device order, donation. PJRT does not check
these, or crashes. Hosts, clients, `pwc check` and the compiler call it. Pure functions.

PJRT compares byte sizes only, and crashes on wrong device sets, argument counts and donated inputs. So this module
compares slots, types, layouts, device order and donation with the signatures of computations. A rule may rely on the
rules before it, so the first broken rule ends the check. Afterwards everything that a plan names is known to exist.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple
from weakref import WeakValueDictionary

import numpy as np

from pathways.dialect.call_labels import read_part
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.dtypes import ArrayType
from pathways.dialect.errors import UnsafePlan
from pathways.dialect.plan.check_branches import branch_problems
from pathways.dialect.plan.check_channels import channel_problems
from pathways.dialect.plan.check_places import place_problems
from pathways.dialect.plan.check_signature import port_problems, tree_problems
from pathways.dialect.plan.check_types import computation_problems, layout_problem
from pathways.dialect.plan.instructions import Branch, Copy, Instruction, Run
from pathways.dialect.plan.limits import check_amounts, check_work
from pathways.dialect.plan.nouns import BufferKind, Layout, Plan, Stream
from pathways.dialect.plan.signature import parameter_problem
from pathways.dialect.sharding import Dims

_valid: WeakValueDictionary[int, Plan] = WeakValueDictionary()
"""Plans that are known to be valid, by `id`. Plans never change, and are validated when read and again when loaded."""


class At(NamedTuple):
    """The position of an instruction: its body (-1: the program), its island, and its index in that stream."""

    body: int
    island: str
    number: int


class Problem(NamedTuple):
    """A broken rule: the subject, what is wrong with it, and the rule."""

    subject: str
    what: str
    rule: str
    at: At | None = None


def validate(plan: Plan, path: str = "plan") -> None:
    """Raises PWC0604 with the first broken rule, or PWC0613 for a plan that exceeds the limits on time and memory."""
    if _valid.get(id(plan)) is plan:
        return
    check_amounts(plan, path)
    for found in _problems(plan):
        problem = f"{found.subject} {found.what}".strip()
        raise PathwaysError(UnsafePlan(path=path, problem=problem, rule=found.rule))
    check_work(plan, path)
    _valid[id(plan)] = plan


_Problems = Iterator[tuple[str, str]]


def _problems(plan: Plan) -> Iterator[Problem]:
    yield from _of_the_whole(place_problems(plan))
    yield from _of_the_whole(computation_problems(plan))
    yield from _of_the_whole(tree_problems(plan))
    if problem := parameter_problem(plan.parameters, len(plan.in_tree.children)):
        yield Problem("", problem, "one parameter per argument, each with a different name")
    for number in (*range(len(plan.bodies)), -1):  # a body must be valid before the branch that runs it is checked
        function = plan if number < 0 else plan.of_body(number)
        yield from _of_the_whole(buffer_problems(function))
        yield from _of_the_whole(port_problems(function))
        yield from stream_problems(function, number)


def _of_the_whole(problems: _Problems) -> Iterator[Problem]:
    return (Problem("", what, rule) for what, rule in problems)


def stream_problems(function: Plan, number: int = -1) -> Iterator[Problem]:
    """Finds problems in the streams of the program or of a body, whose buffers are already checked."""
    for stream in function.streams:
        yield from _stream(function, stream, number)
    yield from _of_the_whole(channel_problems(function))
    yield from _of_the_whole(branch_problems(function))


def buffer_problems(function: Plan) -> _Problems:
    """Finds problems in the buffers of the program or of a body."""
    for stream in function.streams:
        yield from _buffers(function, stream)


def _buffers(plan: Plan, stream: Stream) -> _Problems:
    for number, kind in enumerate(stream.kinds):
        yield from _kind(plan, f"kind {number} of the buffers of {stream.island}", stream.island, kind)
    for group in stream.groups:
        least, most = min(group.kinds, default=0), max(group.kinds, default=0)
        if len(group.kinds) != len(group.deaths) or (group.kinds and not 0 <= least <= most < len(stream.kinds)):
            have = f"buffers {group.name} of {stream.island} of kinds {group.kinds}, {len(group.deaths)} deaths"
            yield have, f"kinds 0 to {len(stream.kinds) - 1}, one death per buffer"
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


def _stream(plan: Plan, stream: Stream, function: int) -> Iterator[Problem]:
    """Checks the slots of each instruction in order. A slot is one value, so it is written once."""
    kept = {c.slot for c in plan.constant_buffers if c.island == stream.island}
    inputs = [p for p in plan.inputs if p.island == stream.island and p.slot >= 0]
    results = {p.slot for p in plan.results if p.island == stream.island}
    alive = kept | {p.slot for p in inputs}
    written = set(alive)
    borrowed = {p.slot for p in inputs if not p.donated}
    known = _KnownMatches(plan, stream)
    are_sound = _are_slots_sound(stream, alive, kept | results)
    for number, instruction in enumerate(stream.instructions):
        if are_sound:
            problems = _match(known, instruction, borrowed)
        else:
            problems = _instruction(known, instruction, alive, written, borrowed, kept | results)
        broken = False
        for what, rule in problems:
            broken = True
            name, at = f"step {instruction.step} of {stream.island}", At(function, stream.island, number)
            yield Problem(name, what, rule, at)
        if broken:
            return
        if not are_sound:
            _, writes, drops = instruction.effects
            alive.difference_update(drops)
            alive.update(writes)
            written.update(writes)
    if not are_sound and (missing := results - alive):
        have = f"results in slots {sorted(missing)} of {stream.island} that are empty"
        yield Problem("", have, "results that are written")


def _are_slots_sound(stream: Stream, alive: set[int], protected: set[int]) -> bool:
    """Whether no instruction breaks a rule about slots (see `_instruction`), found for all instructions at once.

    A slot that is written once and dropped at most once is alive between the two instructions. Protected slots are
    alive at the end.
    """
    if any(isinstance(i, Run | Branch) and _donation(i) is not None for i in stream.instructions):
        return False
    effects = [instruction.effects for instruction in stream.instructions]
    if not effects:
        return protected <= alive
    count, end = len(stream.kind_of), len(effects)
    try:
        first, last = (np.fromiter(slots, np.intp, len(slots)) for slots in (alive, protected))
        slots = [np.fromiter(chain.from_iterable(side), np.intp) for side in zip(*effects, strict=True)]
    except (OverflowError, TypeError, ValueError):
        return False
    reads, writes, drops = slots
    if any(len(each) and not 0 <= each.min() <= each.max() < count for each in (first, last, *slots)):
        return False
    at = [np.repeat(np.arange(end), [len(side[which]) for side in effects]) for which in range(3)]
    written_at, dropped_at = np.full(count, end), np.full(count, end)
    written_at[writes], dropped_at[drops] = at[1], at[2]
    written_at[first] = -1
    is_single = all(np.bincount(each, minlength=1).max() <= 1 for each in (np.concatenate([first, writes]), drops))
    is_alive = ((written_at[reads] < at[0]) & (dropped_at[reads] >= at[0])).all()
    return bool(is_single and is_alive and ((written_at[last] < end) & (dropped_at[last] == end)).all())


def _instruction(
    known: "_KnownMatches", instruction: Instruction, alive: set[int], written: set[int], borrowed: set[int],
    protected: set[int],
) -> _Problems:  # fmt: skip
    """Finds problems in one instruction, given the slots that are alive, already written, and never to be dropped."""
    stream = known.stream
    count = len(stream.kind_of)
    if isinstance(instruction, Run | Branch) and (problem := _donation(instruction)) is not None:
        yield problem, "positions in its inputs, each at most once"
        return
    reads, writes, drops = instruction.effects
    if not alive.issuperset(reads):
        slot = next(s for s in reads if s not in alive)
        yield f"reads slot {slot}, which is empty", "buffers that are written before and not freed"
        return
    named = (*writes, *drops)
    if named and (min(named) < 0 or max(named) >= count):
        bad = [s for s in named if not 0 <= s < count]
        yield f"names slots {bad} of {count}", f"slots that exist: 0 to {count - 1}"
        return
    if not written.isdisjoint(writes) or len(set(writes)) != len(writes):
        again = [s for s, times in Counter(writes).items() if times > 1 or s in written]
        yield f"writes {again}", "slots that were never written"
    if not protected.isdisjoint(drops):
        yield f"drops slots {[s for s in drops if s in protected]}", "constants and results that are kept"
    if len(set(drops)) != len(drops):
        yield f"drops slots {drops}", "each slot once"
    yield from _match(known, instruction, borrowed)


def _match(known: "_KnownMatches", instruction: Instruction, borrowed: set[int]) -> _Problems:
    """Finds buffers that do not match an instruction, whose slots exist."""
    stream = known.stream
    match instruction:
        case Run():
            yield from _run(known, instruction, borrowed)
        case Branch() if bad := borrowed & set(instruction.effects.drops):
            yield f"donates {sorted(bad)}", "slots that are not the caller's"
        case Copy():
            source, target = stream.kind_of[instruction.source], stream.kind_of[instruction.target]
            if source.type != target.type:
                yield f"copies {source.type} to {target.type}", "equal types"
        case _:
            pass


def _donation(instruction: Run | Branch) -> str | None:
    donated, count = instruction.donated, len(instruction.inputs)
    if donated and (len(set(donated)) != len(donated) or not 0 <= min(donated) <= max(donated) < count):
        return f"donates {donated} of {count} inputs"
    return None


class _KnownMatches:
    """Remembers which runs match their buffers, since many runs of a stream are equal."""

    def __init__(self, plan: Plan, stream: Stream) -> None:
        self.plan = plan
        self.stream = stream
        self._numbers = tuple([number for group in stream.groups for number in group.kinds])
        self._known: set[tuple[int, int, tuple[int, ...], tuple[int, ...]]] = set()

    def problems(self, run: Run) -> list[tuple[str, str]]:
        """Returns the operands and results whose buffers are not as the computation needs them, and the need."""
        number = self._numbers.__getitem__
        key = run.computation, run.mesh, tuple(map(number, run.inputs)), tuple(map(number, run.outputs))
        if key in self._known:
            return []
        computation = self.plan.computations[run.computation]
        sides = (
            ("input", run.inputs, computation.inputs, computation.in_layouts),
            ("output", run.outputs, computation.outputs, computation.out_layouts),
        )
        found: list[tuple[str, str]] = []
        for side, slots, types, layouts in sides:
            if len(slots) != len(types):
                return [*found, (f"has {len(slots)} {side}s", f"{len(types)}")]
            for i, (slot, type_, dims) in enumerate(zip(slots, types, layouts, strict=True)):
                kind = self.stream.kind_of[slot]
                if not _fits(self.plan, kind, type_, dims, run.mesh):
                    have, need = f"{kind.type} as {kind.layout}", f"{type_} as {dims} on mesh {run.mesh}"
                    found.append((f"{side} {i} is {have}", need))
        if not found:
            self._known.add(key)
        return found


def _run(known: _KnownMatches, run: Run, borrowed: set[int]) -> _Problems:
    plan, stream = known.plan, known.stream
    if not (0 <= run.computation < len(plan.computations) and 0 <= run.mesh < len(plan.meshes)):
        yield f"runs computation {run.computation} on mesh {run.mesh}", "a computation and a mesh of the plan"
        return
    computation, mesh = plan.computations[run.computation], plan.meshes[run.mesh]
    name = f"({run.name or computation.name})"
    if mesh.axes != computation.axes or mesh.island != stream.island:
        yield f"{name} runs on {mesh.axes} of {mesh.island}", f"{computation.axes} on {stream.island}"
    if run.donated != computation.donated:
        yield f"{name} donates {run.donated}", f"{computation.donated}, as the computation was compiled"
    if run.temporaries < 0:
        yield f"{name} needs {run.temporaries} bytes", "bytes from 0"
    given = [run.inputs[position] for position in run.donated]
    taken = Counter(run.inputs if given and len(set(run.inputs)) < len(run.inputs) else given)
    for position in run.donated:
        if taken[run.inputs[position]] > 1 or run.inputs[position] in borrowed:
            yield f"{name} donates slot {run.inputs[position]}", "a slot used once, and not the caller's"
    for problem, rule in known.problems(run):
        yield f"{name} {problem}", rule
    for part in run.parts:
        try:
            read_part(part)
        except ValueError as error:
            yield f"{name}: {error}", "parts of the form ACTION NAME FILE:LINE FUNCTION"


def _fits(plan: Plan, buffer: BufferKind, type_: ArrayType, dims: Dims, mesh: int) -> bool:
    """Returns whether a buffer has the layout that a computation needs: same devices, order and shard on each."""
    if buffer.type is not type_ and buffer.type != type_:
        return False
    if buffer.layout.mesh == mesh and buffer.layout.dims == dims:
        return True
    return plan.sharding(buffer.layout).same_layout(plan.sharding(Layout(mesh, dims)), type_.shape)
