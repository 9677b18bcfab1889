"""Holds the shardings of the values of one function while `propagate_shardings.py` decides them.

Equal shardings have one number, and 0 is an unknown sharding. The shardings around a call are then tuples of small
integers. They are looked up several times per call and compared often.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TypeAlias

from pathways.compiler.computations.shardy import (
    Known,
    Ranks,
    SignatureShardings,
    propagate,
    ranks_of,
    read_signature,
)
from pathways.compiler.passes.inbound_moves import Taken
from pathways.compiler.passes.shard_bodies import Ends
from pathways.dialect.ir.flow import Flow, Node
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.mlir import where_of
from pathways.dialect.reshard import plan_reshard
from pathways.dialect.sharding import Axes, Dims, Sharding, replicated

Numbers: TypeAlias = tuple[int, ...]
"""The numbers of the shardings of several values."""
Around: TypeAlias = tuple[Numbers, Numbers]
"""The shardings of the arguments and of the results of a call."""

Found: TypeAlias = list[tuple[int, int]]
"""The positions of the values whose sharding is known, and the numbers of these shardings."""


@dataclass(frozen=True)
class Inferred:
    """The signature that Shardy's propagation finds for a call."""

    shardings: SignatureShardings
    found: tuple[Found, Found]
    """The shardings found for the arguments and for the results."""


class KnownShardings:
    """The shardings known so far, by number of value or inbound value. A sharding is on the mesh of its value."""

    def __init__(self, program: ProgramIR, taken: Taken) -> None:
        self.program = program
        self.flow: Flow = program.flow
        self.taken = taken
        self.weak: dict[int, Dims] = {}
        """Shardings outside of this body, on meshes of equal axes, for values that nothing inside determines."""
        self.due = set(range(len(self.flow)))
        """The nodes to propagate: all at first, then those with a newly known sharding of an operand or result."""
        self.wants: dict[int, list[Dims]] = {}
        """The shardings in which the user's own signatures take a value, on the mesh of the value."""
        self.branches: dict[int, Ends] = {}
        """The locations of operands and results of control flow, by node."""
        self.known_count = 0
        """The number of values whose sharding is known."""
        self._of_value = [0] * len(taken.types)
        self._empty = frozenset(i for i, t in enumerate(taken.types) if 0 in t.shape)
        """Values without elements."""
        self._dims: list[Known] = [None]
        self._numbers: dict[Dims, int] = {}
        self._ranks: dict[str, Ranks] = {}
        self._users: dict[tuple[str, str], Around] = {}
        self._wants: dict[tuple[str, str], list[tuple[int, Dims]]] = {}
        self._inferred: dict[tuple[str, Axes, Numbers, Numbers], Inferred] = {}

    def __getitem__(self, value: int) -> Known:
        return self._dims[self._of_value[value]]

    def __contains__(self, value: int) -> bool:
        return self._of_value[value] > 0

    def number(self, dims: Known) -> int:
        """Returns the number of a sharding."""
        if dims is None:
            return 0
        number = self._numbers.get(dims)
        if number is None:
            number = self._numbers[dims] = len(self._dims)
            self._dims.append(dims)
        return number

    def user(self, call: Node) -> Around:
        """Returns the user's own shardings for a call."""
        found = self._users.get((call.callee, call.mesh))
        if found is None:
            axes = self.program.mesh(call.mesh).axes
            read = read_signature(self.program.computations[call.callee], axes, where_of(call.op))
            found = self._users[call.callee, call.mesh] = self._numbered(read)
        return found

    def _numbered(self, signature: SignatureShardings) -> Around:
        return tuple(map(self.number, signature.ins)), tuple(map(self.number, signature.outs))

    def note_wants(self, call: Node) -> None:
        """Records the shardings in which the user's signature wants the operands of a call."""
        key = call.callee, call.mesh
        if key not in self._wants:
            wanted = [self._dims[number] for number in self.user(call)[0]]
            self._wants[key] = [(i, dims) for i, dims in enumerate(wanted) if dims is not None]
        operands = self.taken.operands[call.number]
        for i, dims in self._wants[key]:
            if operands[i] not in self._empty:
                self.wants.setdefault(operands[i], []).append(dims)

    def learn(self, value: int, dims: Dims) -> None:
        """Records the sharding of a value if none is known."""
        if not self._of_value[value]:
            self._of_value[value] = self.number(dims)
            self._mark_due((value,))

    def learn_from(self, call: Node) -> None:
        """Infers the signature of a call, and records the shardings that it suggests for values without one."""
        ins, outs = self.infer(call, self.around(call)).found
        self._learn_side(call.results, outs, self.user(call)[1], made_so=True)
        self._learn_side(self.taken.operands[call.number], ins, None, made_so=False)

    def _learn_side(self, values: Sequence[int], found: Found, pinned: Numbers | None, *, made_so: bool) -> None:
        of_value, new = self._of_value, list[int]()
        for i, number in found:
            value = values[i]
            if of_value[value]:
                continue
            if not (pinned and pinned[i]) and value in self.wants:
                dims = self._dims[number]
                number = self.number(cheapest(self, value, dims or (), made_so=made_so))
            of_value[value] = number
            new.append(value)
        if new:
            self._mark_due(new)

    def _mark_due(self, values: Sequence[int]) -> None:
        """Counts values as known. The nodes that make or take them become due."""
        originals, makers, users, due = self.taken.originals, self.flow.makers, self.flow.users, self.due
        self.known_count += len(values)
        for value in values:
            original = originals[value]
            due.add(makers[original])
            due.update(users[original])

    def infer(self, call: Node, around: Around) -> Inferred:
        """Infers the signature of a call as far as the shardings around it determine it."""
        axes = self.program.mesh(call.mesh).axes
        key = call.callee, axes, *around
        found = self._inferred.get(key)
        if found is None:
            given = SignatureShardings(*(tuple(map(self._dims.__getitem__, side)) for side in around))
            shardings = propagate(self.program.computations[call.callee], axes, given, where_of(call.op))
            sides = self._numbered(shardings)
            ins, outs = ([(i, number) for i, number in enumerate(side) if number] for side in sides)
            found = self._inferred[key] = Inferred(shardings, (ins, outs))
        return found

    def closed_signature(self, call: Node, around: Around) -> SignatureShardings:
        """Infers the signature of a call, with open shardings replicated."""
        if call.callee not in self._ranks:
            self._ranks[call.callee] = ranks_of(self.program.computations[call.callee])
        return self.infer(call, around).shardings.closed(self._ranks[call.callee])

    def around(self, call: Node) -> Around:
        """Returns the known shardings of a call: the user's first, then those of its values."""
        ins, outs = self.user(call)
        return self._pinned(self.taken.operands[call.number], ins), self._pinned(call.results, outs)

    def _pinned(self, values: Sequence[int], pinned: Numbers) -> Numbers:
        if all(pinned):
            found = pinned
        else:
            found = self._side(values)
            if any(pinned):
                found = tuple([p or f for f, p in zip(found, pinned, strict=True)])
        if self._empty and not self._empty.isdisjoint(values):  # jaxlib 0.10 does not split empty arrays
            types = self.taken.types
            whole = [self.number(replicated(len(types[v].shape))) for v in values]
            found = tuple([w if v in self._empty else f for v, f, w in zip(values, found, whole, strict=True)])
        return found

    def _side(self, values: Sequence[int]) -> Numbers:
        """Returns the numbers of the shardings of several values."""
        if isinstance(values, range):
            return tuple(self._of_value[values.start : values.stop])
        if len(values) < 2:
            return tuple([self._of_value[v] for v in values])
        return itemgetter(*values)(self._of_value)

    def close(self) -> None:
        """Replicates every value that nothing determines."""
        types, lives, of_value = self.taken.types, self.taken.lives, self._of_value
        whole: dict[int, int] = {}
        for value in [v for v, number in enumerate(of_value) if not number]:
            if lives[value] is not None:
                rank = len(types[value].shape)
                if rank not in whole:
                    whole[rank] = self.number(replicated(rank))
                of_value[value] = whole[rank]


def cheapest(state: KnownShardings, value: int, suggested: Dims, *, made_so: bool) -> Dims:
    """Returns the sharding that moves least bytes, of `suggested` and those that users of the value want.

    `made_so`: `suggested` is the sharding of the producer, else that of a user. A tie goes to the fewest reshards
    between calls, because a reshard inside a computation is fused. An inbound value is moved once for each sharding
    that users want. Any other sharding would add a move.
    """
    wants = list(dict.fromkeys(state.wants.get(value, [])))  # users that want the same share one reshard
    arrives = bool(wants) and value in state.taken.inbound
    candidates = wants if arrives else list(dict.fromkeys((suggested, *wants)))
    if candidates == [suggested]:
        return suggested
    mesh, type_ = state.program.mesh(state.taken.lives[value] or ""), state.taken.types[value]

    def moved(source: Dims, target: Dims) -> int:
        a, b = Sharding(mesh, source), Sharding(mesh, target)
        return 0 if source == target else plan_reshard(type_.shape, a, b, mesh.devices, mesh.devices).moved

    def cost(candidate: Dims) -> tuple[int, int]:
        if arrives:
            return moved(candidate, suggested), 0
        inside = moved(suggested, candidate) if made_so else moved(candidate, suggested) * (suggested not in wants)
        return inside + sum(moved(candidate, w) for w in wants), sum(candidate != w for w in wants)

    divisible = [c for c in candidates if not Sharding(mesh, c).undivided(type_.shape)]
    return min(divisible, key=cost, default=suggested)
