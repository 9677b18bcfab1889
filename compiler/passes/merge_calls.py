"""Defines the pass `merge-calls`. It merges consecutive calls on the same devices into one executable, if no other
devices wait for a result in between. Each call costs time to start, so fewer calls are faster.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import ClassVar, NamedTuple

import numpy as np

from pathways.compiler.buffers.owners import action_of_call
from pathways.compiler.computations.flops import flops_of
from pathways.compiler.computations.merge import PartCall, PartOperand, Whole, count_operations, merge, mergeable
from pathways.compiler.passes.base import Pass, Session
from pathways.compiler.passes.order_calls import number_nodes
from pathways.dialect.activities import Activity
from pathways.dialect.call_labels import PartLabel, write_part
from pathways.dialect.ir.flow import Draft, Flow, Node, Rewriting, renumbered
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.ir.records import CallRecord, shown_name
from pathways.dialect.mlir import ir, location, where_of
from pathways.dialect.phases import Phase
from pathways.dialect.sdy import Placed, shared_sharding
from pathways.dialect.sharding import Dims

_DONE = "pw.merged"
"""Attribute of a merged module. Merging a dump again would give a different plan, so it is not repeated."""
LARGE = 64
"""Computations with more operations take so long to compile that they are not repeated without need."""
MAX_OPERATIONS_WITH_REPEATS = 2048
"""Maximum operations of an executable that contains one computation more than once."""
MAX_LOOSE_WORK_FRACTION = 0.05
"""Maximum work of a loose call, as a fraction of the calls before it, that does not delay other slices."""


@dataclass(frozen=True)
class MergeCalls(Pass):
    """Merges consecutive calls of a slice into one call, if each takes a value from those before it.

    Merging delays no island: only the last call of a merged one may make values that another slice takes. Only the
    first may take values that another slice makes. A loose call of almost no time (adding up a gradient) may follow the
    last. A large computation is not repeated inside one executable. It is merged only with the computation that follows
    it at most of its calls: if that followed at half of them, the large computation would be compiled twice.

    Requires: phase schedule.
    Ensures: phase schedule: names, actions and lines of the parts are on the call; running it again changes nothing.
    """

    name: ClassVar[str] = "merge-calls"
    requires: ClassVar[Phase] = Phase.SCHEDULE
    ensures: ClassVar[Phase] = Phase.SCHEDULE
    keeps_flow: ClassVar[bool] = True
    limit: int = 128
    """Maximum parts of one call."""

    def apply(self, program: ProgramIR, session: Session) -> None:
        attributes = program.attributes
        if _DONE in attributes:
            return
        for function in program.functions:
            groups = find_groups(function, self.limit)
            if not groups:
                continue
            attributes[_DONE] = ir.UnitAttr.get(program.context)
            writer = _Writer(function)
            with program.context, ir.Location.unknown():
                with Activity("merging", sum(map(len, groups)), "calls") as merging:
                    for group in groups:
                        writer.merge(group)
                        merging.done += len(group)
                function.flow = writer.flow_now()
                writer.drop_unused()
            number_nodes(function)


@dataclass
class _Group:
    """Calls to merge into one, in order."""

    nodes: list[Node] = field(default_factory=list[Node])
    parts: int = 0
    numbers: set[int] = field(default_factory=set[int])
    """The numbers of the nodes."""
    callees: Counter[str] = field(default_factory=Counter[str])
    operations: int = 0
    flops: float = 0.0
    taken: bool = False
    """Whether a transfer reads a value that the group makes."""


def find_groups(program: ProgramIR, limit: int) -> list[list[Node]]:
    """Returns the groups of two or more calls, in order. Pure, and linear in calls and operands."""
    return _Finder(program, limit).run()


class _Finder:
    def __init__(self, program: ProgramIR, limit: int) -> None:
        self.program = program
        self.flow: Flow = program.flow
        self.limit = limit
        self.sizes: dict[str, int] = {}
        self.work: dict[str, float] = {}
        self.calls: Counter[str] = Counter()
        self.follows: Counter[tuple[str, str]] = Counter()
        """Counts the calls of one computation that directly follow a call of another on the same slice."""
        others = (waits for node, waits in zip(self.flow, self.flow.waits, strict=True) if not node.is_call)
        self.moved = frozenset(chain.from_iterable(others))
        """The nodes from which a transfer or control flow takes a value."""
        last: dict[str, Node] = {}
        for node in self.flow.calls():
            self.calls[node.callee] += 1
            slice_ = program.slice_of(node.mesh)
            if slice_ in last:
                self.follows[last[slice_].callee, node.callee] += 1
            last[slice_] = node

    def run(self) -> list[list[Node]]:
        groups: dict[str, _Group] = {}
        found: list[_Group] = []
        for node in self.flow.calls():
            slice_ = self.program.slice_of(node.mesh)
            group = groups.get(slice_)
            if group is None or not self._joins(group, node):
                group = groups[slice_] = _Group()
                found.append(group)
            group.nodes.append(node)
            group.parts += len(node.op.parts or (None,))
            group.numbers.add(node.number)
            group.callees[node.callee] += 1
            group.operations += self._size(node.callee)
            group.flops += self._flops(node.callee)
            group.taken |= node.number in self.moved
        return [g.nodes for g in found if len(g.nodes) > 1]

    def _joins(self, group: _Group, node: Node) -> bool:
        last = group.nodes[-1]
        if last.mesh != node.mesh or not self._takes_from(group, node):
            return False
        if group.taken and not (node.op.gathered and self._flops(node.callee) <= MAX_LOOSE_WORK_FRACTION * group.flops):
            return False
        if group.parts + len(node.op.parts or (None,)) > self.limit or not self._is_worth_it(group, node):
            return False
        computations = self.program.computations
        known = node.callee in group.callees and len(group.callees) > 1
        return known or mergeable([computations[c] for c in (*group.callees, node.callee)])

    def _takes_from(self, group: _Group, node: Node) -> bool:
        """Whether a call takes a value from the group, and none that another slice or a transfer makes in between."""
        flow, makers = self.flow, self.flow.waits[node.number]
        for maker in makers:
            while maker >= 0 and not flow.nodes[maker].is_call:  # transfers of arguments do not delay the group
                if not flow.nodes[maker].is_transfer:
                    return False
                maker = flow.makers[flow.nodes[maker].operands[0]]
                if maker >= 0:
                    return False
        return not group.numbers.isdisjoint(makers)

    def _is_worth_it(self, group: _Group, node: Node) -> bool:
        """Whether the compile time stays within bounds."""
        size, again = self._size(node.callee), node.callee in group.callees
        if again and (size > LARGE or group.operations + size > MAX_OPERATIONS_WITH_REPEATS):
            return False
        if group.parts > len(group.callees) and group.operations + size > MAX_OPERATIONS_WITH_REPEATS:
            return False
        together = self.follows[group.nodes[-1].callee, node.callee]
        large = (c for c in (*group.callees, node.callee) if self._size(c) > LARGE)
        return all(2 * together > self.calls[c] for c in large)

    def _flops(self, callee: str) -> float:
        if callee not in self.work:
            self.work[callee] = flops_of(self.program.computations[callee])
        return self.work[callee]

    def _size(self, callee: str) -> int:
        if callee not in self.sizes:
            self.sizes[callee] = count_operations(self.program.computations[callee])
        return self.sizes[callee]


class _Writer:
    def __init__(self, program: ProgramIR) -> None:
        self.program = program
        self.flow = program.flow
        self.forms: dict[_Key, _Form] = {}
        """The forms of the groups so far, by structure (`_Key`)."""
        self.uses: list[int] = np.bincount(self.flow.operands, minlength=len(self.flow.types)).tolist()
        """The number of uses of each value."""
        self.symbols: dict[Whole, str] = {}
        self.returned = set(self.flow.returned)
        self.rewriting = Rewriting()
        self.replaced: set[str] = set()

    def merge(self, group: Sequence[Node]) -> None:
        """Replaces a group by one call at the position of its first call."""
        taken, made, key = self._values(group)
        form = self.forms.get(key)
        if form is None:
            form = self.forms[key] = self._build(group, made, key.results)
        operands = [taken[i] for i in form.operands]
        results = [made[i] for i in key.results]
        mesh = group[0].mesh
        first = group[0].op
        self._hoist(operands, group)
        name = _shortened([shown_name(n.op) for n in group], "+")
        actions = [n.op.action for n in group if n.op.action is not None]
        op = CallRecord(
            location(where_of(first), name, self.program.context),
            callee=form.symbol,
            mesh=mesh,
            gathered=all(n.op.gathered for n in group) or None,
            in_shardings=form.ins,
            out_shardings=form.outs,
            island=first.island,
            action=actions[-1] if actions else None,
            dispatch=first.dispatch,
            step=first.step,
            parts=tuple(p for n in group for p in parts_of(n)),
            made_by=self._made_by(group, form.whole.results),
        )
        for node in group:
            self.replaced.add(node.callee)
            self.rewriting.instead[node.number] = None
        self.rewriting.instead[group[0].number] = Draft(op, form.symbol, mesh, operands, results)

    def _values(self, group: Sequence[Node]) -> "tuple[list[int], list[int], _Key]":
        """Returns the different operands of a group, the values that its calls make, and its key."""
        taken = list(chain.from_iterable(node.operands for node in group))
        made = list(chain.from_iterable(node.results for node in group))
        uses = Counter(taken)
        different = list(uses)
        number = dict(zip(different, range(len(different)), strict=True))
        place = dict(zip(made, range(len(made)), strict=True))
        results = tuple([i for i, v in enumerate(made) if v in self.returned or self.uses[v] > uses.get(v, 0)])
        calls = tuple([(n.callee, id(n.op.in_shardings), id(n.op.out_shardings)) for n in group])
        key = _Key(calls, tuple(map(number.__getitem__, taken)), tuple(map(place.get, different)), results)
        return different, made, key

    def _build(self, group: Sequence[Node], made: Sequence[int], chosen: Sequence[int]) -> "_Form":
        """Builds the computation, once for all meshes, and its shardings on the mesh of a group."""
        mesh = group[0].mesh
        whole, operands = self._whole(group, {made[i] for i in chosen})
        if whole not in self.symbols:
            self.symbols[whole] = self.program.unique_symbol(_shortened([n.callee for n in group], "_"))
            merge(self.program, self.symbols[whole], whole)
        outs = tuple(shared_sharding(mesh, whole.parts[at].outs[i]) for at, i in whole.results)
        ins = tuple(shared_sharding(mesh, d) for d in whole.arguments)
        return _Form(whole, self.symbols[whole], ins, outs, operands)

    def _hoist(self, operands: Sequence[int], group: Sequence[Node]) -> None:
        """Moves transfers of arguments for later members of a group before its first member."""
        makers, first = self.flow.makers, group[0].number
        for value in [v for v in operands if makers[v] > first]:
            path: list[Node] = []
            maker = makers[value]
            while maker > first:
                path.append(self.flow.nodes[maker])
                maker = makers[self.flow.nodes[maker].operands[0]]
            for node in reversed(path):
                self.rewriting.instead[node.number] = None
                self.rewriting.before.setdefault(first, []).append(node)

    def _whole(self, group: Sequence[Node], results: set[int]) -> tuple[Whole, tuple[int, ...]]:
        """Returns a description of the merged computation, and the positions of its operands (`_Form`)."""
        made: dict[int, PartOperand] = {}
        arguments: dict[int, Dims] = {}
        numbers: dict[int, int] = {}
        parts: list[PartCall] = []
        for at, node in enumerate(group):
            sources: list[PartOperand] = []
            ins = tuple(p.dims for p in node.op.in_shardings)
            for value, dims in zip(node.operands, ins, strict=True):
                if value not in made:
                    arguments.setdefault(value, dims)
                    numbers.setdefault(value, len(numbers))
                sources.append(made.get(value) or (-1, numbers[value]))
            parts.append(PartCall(node.callee, tuple(sources), ins, tuple(p.dims for p in node.op.out_shardings)))
            made.update((v, (at, i)) for i, v in enumerate(node.results))
        axes = self.program.mesh(group[0].mesh).axes
        whole = Whole(axes, tuple(parts), tuple(arguments.values()), tuple(made[v] for v in made if v in results))
        different = dict.fromkeys(chain.from_iterable(node.operands for node in group))
        return whole, tuple(i for i, v in enumerate(different) if v in arguments)

    def _made_by(self, group: Sequence[Node], results: Sequence[PartOperand]) -> tuple[int, ...]:
        """Returns the part that makes each result, with parts of parts counted."""
        first: list[int] = [0]
        for node in group:
            first.append(first[-1] + len(node.op.parts or (None,)))
        return tuple(
            first[at] + (group[at].op.made_by[i] if group[at].op.made_by is not None else 0) for at, i in results
        )

    def flow_now(self) -> Flow:
        flow, nodes = self.flow, self.rewriting.nodes(self.flow)
        return renumbered(self.program, flow.types, flow.arguments, nodes, flow.returned)

    def drop_unused(self) -> None:
        used = {op.callee for op in self.program.calls()}
        for symbol in sorted(self.replaced - used):
            self.program.computations.pop(symbol).erase()


class _Key(NamedTuple):
    """The structure of a group. One merged computation serves all groups of one structure."""

    calls: tuple[tuple[str, int, int], ...]
    """The computation of each call, and the identities of its shardings, which calls share."""
    taken: tuple[int, ...]
    """The number of each operand among the different operands of the group."""
    inside: tuple[int | None, ...]
    """For each different operand its position among the values that the group makes; None: made outside."""
    results: tuple[int, ...]
    """The positions of the values that are used outside of the group, among those that it makes."""


@dataclass(frozen=True)
class _Form:
    """The merged computation of groups of equal structure, on their mesh."""

    whole: Whole
    symbol: str
    ins: tuple[Placed, ...]
    outs: tuple[Placed, ...]
    operands: tuple[int, ...]
    """The positions of its operands among the different operands of a group."""


def parts_of(node: Node) -> tuple[str, ...]:
    """Returns the parts of a call: the parts that it was merged from, or itself."""
    if node.op.parts is not None:
        return node.op.parts
    name, where = shown_name(node.op), where_of(node.op)
    return (write_part(PartLabel(action_of_call(node) or "", name, where)),)


def _shortened(names: Sequence[str], sign: str) -> str:
    """Joins names as `a+b`. Consecutive equal names are counted, and at most four different parts are shown."""
    runs: list[tuple[str, int]] = []
    for name in names:
        if runs and runs[-1][0] == name:
            runs[-1] = name, runs[-1][1] + 1
        else:
            runs.append((name, 1))
    times = "x" if sign == "_" else "*"
    shown = [f"{name}{times}{count}" if count > 1 else name for name, count in runs[:4]]
    return sign.join((*shown, f"{len(runs) - 4}_more" if sign == "_" else "...") if len(runs) > 4 else shown)
