"""Makes the list of instructions that each island executes. It also gives every value a buffer, and decides when the
buffer is freed or donated. The pass `plan-islands` calls it. Pure functions.

The pass `plan_islands` calls `plan_streams`; `rematerialize` calls `device_peaks`.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

import numpy as np

from pathways.compiler.buffers.liveness import BEFORE, Donated, donations, lifetimes
from pathways.compiler.buffers.owners import owners
from pathways.dialect.dtypes import ArrayType
from pathways.dialect.ir.flow import Node
from pathways.dialect.ir.places import number_slots, physical_devices
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.ir.records import CondRecord, WhileRecord, shown_name
from pathways.dialect.mlir import where_of
from pathways.dialect.plan.instructions import Branch, Copy, Free, Instruction, Recv, Run, Send
from pathways.dialect.plan.memory import Peak, peak_of, peaks
from pathways.dialect.plan.nouns import BufferKind, Buffers, Layout, PlanMesh, Stream
from pathways.dialect.sdy import Placed


@dataclass
class _Draft:
    """One island's stream while it is built."""

    kinds: dict[BufferKind, int] = field(default_factory=dict[BufferKind, int])
    groups: list[Buffers] = field(default_factory=list[Buffers])
    instructions: list[Instruction] = field(default_factory=list[Instruction])


def plan_streams(
    program: ProgramIR,
    *,
    donated: Mapping[str, Donated] | None = None,
    temporaries: Mapping[str, int] | None = None,
    donate: bool = True,
) -> tuple[tuple[Stream, Peak], ...]:
    """Plans the instructions of each island, in program order, and finds the peak of its memory.

    `donated` maps computations to the operands that they overwrite; by default, as many as possible. `temporaries` maps
    computations to the bytes on a device that their executables need while they run. If `donate`, loops may overwrite
    the values that they carry.
    """
    return _Planner(program, donated, temporaries or {}, donate).run()


def device_peaks(program: ProgramIR, *, temporaries: Mapping[str, int]) -> dict[tuple[str, int], int]:
    """Returns the maximum live bytes on each device, by island name and device number in the island."""
    planner, meshes = _Planner(program, None, temporaries, True), plan_meshes(program)
    found: dict[tuple[str, int], int] = {}
    for stream, _ in planner.run():
        high = peaks(stream, meshes, planner.borrowed(stream.island))
        found |= {(stream.island, device): size for device, size in high.items()}
    return found


class _Planner:
    def __init__(
        self,
        program: ProgramIR,
        donated: Mapping[str, Donated] | None,
        temporaries: Mapping[str, int],
        donates: bool,
    ) -> None:
        self.program = program
        self.flow = program.flow
        self.temporaries = temporaries
        self.owners = owners(program)
        self.slots = number_slots(program)
        self.alive = lifetimes(program)
        self.given, self.donates = donated, donates
        self.donated = donations(program, self.alive) if donated is None else donated
        self.arguments = program.arguments
        self.computations = {symbol: i for i, symbol in enumerate(program.computations)}
        self.meshes = {symbol: i for i, symbol in enumerate(program.meshes)}
        self.islands = {symbol: program.island_of(symbol) for symbol in program.meshes}
        self.drafts: defaultdict[str, _Draft] = defaultdict(_Draft)
        self.bodies: list[PlannedBody] = []
        """The bodies of the branches so far."""
        self._kinds: dict[tuple[ArrayType, Placed], BufferKind] = {}
        self._numbered: dict[tuple[Any, ...], tuple[int, ...]] = {}
        """The kind numbers of a group of results of a computation on a mesh."""

    def run(self) -> tuple[tuple[Stream, Peak], ...]:
        for value in self.flow.arguments:
            if self.flow.places[value] is not None:
                argument = self.arguments[value]
                role = "constant" if argument.is_constant else "input"
                self._make(range(value, value + 1), argument.name, role, (value,))
        for node in self.flow.nodes:
            if node.is_call:
                self._run(node)
            elif node.is_transfer:
                self._move(node)
            else:
                self._branch(node)
        meshes = plan_meshes(self.program)
        streams: list[tuple[Stream, Peak]] = []
        for island, draft in self.drafts.items():
            made = Stream(island, 0, tuple(draft.kinds), tuple(draft.groups), tuple(draft.instructions))
            peak = peak_of(made, meshes, self.borrowed(island))
            streams.append((replace(made, peak_bytes=peak.bytes), peak))
        return tuple(streams)

    def bytes_of(self, values: list[int]) -> dict[str, dict[int, int]]:
        """Counts the bytes of some values on each device, by island."""
        found: dict[str, dict[int, int]] = {}
        for value in values:
            placed = self.flow.places[value]
            if placed is not None:
                devices = physical_devices(self.program, placed.mesh)[1]
                held = found.setdefault(self._island(value), {})
                held.update((d, held.get(d, 0) + self._kind(value).bytes) for d in devices)
        return found

    def borrowed(self, island: str) -> frozenset[int]:
        """Returns the slots of values that the caller keeps, which therefore stay in memory."""
        return frozenset(
            self.slots[v]
            for v in self.flow.arguments
            if self.flow.places[v] is not None and self._island(v) == island and not self.alive.owned[v]
        )

    def _island(self, value: int) -> str:
        return self.islands[self.flow.place(value).mesh]

    def _kind(self, value: int) -> BufferKind:
        key = self.flow.types[value], self.flow.place(value)
        if key not in self._kinds:
            type_, placed = key
            shard = self.program.sharding(placed).shard_shape(type_.shape)
            layout = Layout(self.meshes[placed.mesh], placed.dims)
            self._kinds[key] = BufferKind(type_, layout, type_.shard_bytes(shard))
        return self._kinds[key]

    def _make(self, values: range, name: str, role: str, alike: tuple[Any, ...]) -> None:
        """Adds buffers for values that are born together, one group per owner.

        Values of other calls with an equal `alike` have the same kinds.
        """
        start = values.start
        for _, group in groupby(self.owners[values.start : values.stop]):
            stop = start + sum(1 for _ in group)
            self._group(range(start, stop), values, name, role, alike)
            start = stop

    def _group(self, values: range, together: range, name: str, role: str, alike: tuple[Any, ...]) -> None:
        draft, alive = self.drafts[self._island(values.start)], self.alive
        key = (*alike, values.start - together.start, len(values))
        if key not in self._numbered:
            found = [draft.kinds.setdefault(self._kind(v), len(draft.kinds)) for v in values]
            self._numbered[key] = tuple(found)
        kinds, deaths = self._numbered[key], tuple(alive.ends[values.start : values.stop].tolist())
        shown = name
        if len(values) < len(together):  # a part of the call's results
            at = values.start - together.start
            shown = f"{name}#{at}" + (".." if len(values) > 1 else "")
        birth = int(alive.births[values.start])
        draft.groups.append(Buffers(shown, role, self.owners[values.start], kinds, birth, deaths))

    def _run(self, node: Node) -> None:
        op, slots = node.op, self.slots
        draft = self.drafts[op.island]
        step, name = op.step, shown_name(op)
        donated = tuple(self.donated.get(node.callee, ()))
        if node.results:
            shardings = id(op.out_shardings)
            self._make(node.results, name, "value", (node.callee, node.mesh, shardings))
        run = Run(
            step,
            self.computations[node.callee],
            self.meshes[node.mesh],
            tuple(map(slots.__getitem__, node.operands)),
            tuple(slots[node.results.start : node.results.stop]),
            donated,
            name,
            where_of(op),
            self.temporaries.get(node.callee, 0),
            op.action or "",
            op.parts or (),
        )
        draft.instructions.append(run)
        donated_values = {node.operands[i] for i in donated}
        values = np.concatenate([self.flow.operands_of(node), np.arange(node.results.start, node.results.stop)])
        ending = values[self.alive.ends[values] == step].tolist()
        self._free(draft, step, [v for v in dict.fromkeys(ending) if v not in donated_values])

    def _move(self, node: Node) -> None:
        op, step = node.op, node.op.step
        (value,), (result,) = node.operands, node.results
        here, there = self._island(value), self._island(result)
        self._make(node.results, f"{self._shown(value)} moved", "copy", (result,))
        source, target, where = self.slots[value], self.slots[result], where_of(op)
        if here == there:
            self.drafts[here].instructions.append(Copy(step, source, target, where))
        else:
            self.drafts[here].instructions.append(Send(step, step, source, there, where))
            self.drafts[there].instructions.append(Recv(step, step, target, here, where))
        for island, moved in ((here, value), (there, result)):
            self._free(self.drafts[island], step, [moved] if self.alive.ends[moved] == step else [])

    def _branch(self, node: Node) -> None:
        """Adds one instruction to the streams of all islands that take part in the branch."""
        op, step, name = node.op, node.op.step, shown_name(node.op)
        for i, value in enumerate(node.results):
            self._make(range(value, value + 1), f"{name}#{i}" if len(node.results) > 1 else name, "value", (value,))
        bodies = [planned_body(self, b) for b in self.program.bodies_of(op)]
        self.bodies += bodies
        numbers = [list(self.program.bodies).index(symbol) for symbol in op.bodies]
        homes = [self._island(v) for v in node.operands], [self._island(v) for v in node.results]
        used = _cover(self.program, [m for body in bodies for m in body.meshes])
        given = self._given_up(node)
        left = [v for v in dict.fromkeys((*node.operands, *node.results)) if v not in given]
        dead = [v for v in left if self.alive.ends[v] == step]
        for island in dict.fromkeys((*homes[0], *homes[1], *(self.islands[m] for m in used))):
            taken = tuple(i for i, home in enumerate(homes[0]) if home == island)
            made = tuple(i for i, home in enumerate(homes[1]) if home == island)
            branch = Branch(
                step,
                "cond" if isinstance(op, CondRecord) else "while",
                tuple(numbers),
                tuple(self.slots[node.operands[i]] for i in taken),
                taken,
                tuple(self.slots[node.results[i]] for i in made),
                made,
                tuple(self.meshes[m] for m in used if self.islands[m] == island),
                name,
                where_of(op),
                max((body.beside(island, isinstance(op, CondRecord)) for body in bodies), default=0),
                tuple(at for at, i in enumerate(taken) if node.operands[i] in given),
            )
            self.drafts[island].instructions.append(branch)
            self._free(self.drafts[island], step, [v for v in dead if self._island(v) == island])

    def _given_up(self, node: Node) -> set[int]:
        """Returns the carried values that a loop may overwrite, since they are not needed afterwards."""
        if not isinstance(node.op, WhileRecord) or not self.donates:
            return set()
        carried = node.operands[len(node.operands) - len(node.results) :]
        alive, count = self.alive, Counter(node.operands)
        return {v for v in carried if alive.ends[v] == (node.op.step or 0) and alive.owned[v] and count[v] == 1}

    def _free(self, draft: _Draft, step: int, dead: list[int]) -> None:
        if dead:
            draft.instructions.append(Free(step, tuple([self.slots[v] for v in dead])))

    def _shown(self, value: int) -> str:
        maker = self.flow.makers[value]
        return self.arguments[value].name if maker == BEFORE else shown_name(self.flow.nodes[maker].op)


@dataclass(frozen=True)
class PlannedBody:
    """The needs of a body. `meshes` cover all its devices, largest first; bytes are per device."""

    meshes: list[str]
    peaks: dict[str, dict[int, int]]
    inputs: dict[str, dict[int, int]]
    outputs: dict[str, dict[int, int]]

    def beside(self, island: str, once: bool) -> int:
        """Returns the maximum bytes that the body needs on a device besides the memory counted outside.

        Values that a loop carries are counted once more. The values given to it stay, besides those that it carries and
        makes.
        """
        ins, outs = self.inputs.get(island, {}), self.outputs.get(island, {}) if once else {}
        found = (n - ins.get(d, 0) - outs.get(d, 0) for d, n in self.peaks.get(island, {}).items())
        return max((0, *found))


def planned_body(around: _Planner, body: ProgramIR) -> PlannedBody:
    """Plans a body with the settings of the surrounding function, to find the memory that it needs."""
    planner = _Planner(body, around.given, around.temporaries, around.donates)
    streams = [stream for stream, _ in planner.run()]
    flow, meshes = body.flow, plan_meshes(body)
    found = [*(p.mesh for p in flow.places if p is not None), *(n.mesh for n in flow.calls())]
    found += [m for b in planner.bodies for m in b.meshes]
    high = {s.island: peaks(s, meshes, planner.borrowed(s.island)) for s in streams}
    ins, outs = (planner.bytes_of(side) for side in (body.inputs, list(dict.fromkeys(flow.returned))))
    return PlannedBody(_cover(body, found), high, ins, outs)


def _cover(program: ProgramIR, meshes: list[str]) -> list[str]:
    """Selects some of these meshes, largest first, that together have all of their devices."""
    covered: set[tuple[str, int]] = set()
    chosen: list[str] = []
    for mesh in sorted(dict.fromkeys(meshes), key=lambda m: -program.mesh(m).size):
        devices = {(program.slice_of(mesh), d) for d in program.mesh(mesh).devices}
        if not devices <= covered:
            covered |= devices
            chosen.append(mesh)
    return chosen


def plan_meshes(program: ProgramIR) -> tuple[PlanMesh, ...]:
    """Returns the meshes of a program on the devices to which their slices are bound."""
    found: list[PlanMesh] = []
    for symbol, op in program.meshes.items():
        owner = program.slices[op.slice]
        ids = owner.device_ids or ()
        found.append(PlanMesh(symbol, op.slice, owner.island or "", op.axes, tuple(ids[i] for i in op.devices)))
    return tuple(found)
