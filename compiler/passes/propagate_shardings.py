"""Defines the pass `propagate-shardings`. It decides the sharding of every value: the user's, or the one that Shardy's
propagation finds. Shardings spread inside computations and between them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeAlias

from pathways.compiler.computations.shardy import (
    Known,
    Ranks,
    SignatureShardings,
    propagate,
    ranks_of,
    read_signature,
)
from pathways.compiler.passes.base import Pass, Session
from pathways.compiler.passes.inbound_moves import Taken, find_taken
from pathways.compiler.passes.shard_bodies import Ends, settle_bodies
from pathways.compiler.passes.specialize import Originals, Special, specialize
from pathways.dialect.ir.flow import Flow, Node
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.ir.records import ControlFlowRecord
from pathways.dialect.memo import map_by_identity
from pathways.dialect.mlir import ir, where_of
from pathways.dialect.phases import Phase
from pathways.dialect.reshard import plan_reshard
from pathways.dialect.sdy import Placed, shared_sharding
from pathways.dialect.sharding import Dims, Sharding, replicated


@dataclass(frozen=True)
class PropagateShardings(Pass):
    """Decides the sharding of every value, and specializes each computation to the shardings of its calls.

    Shardy propagates inside each computation. Between computations, shardings spread forward and backward to a
    fixpoint. A value still open on a mesh then takes its sharding on the mesh that it comes from, if both have the same
    axes. If still open, it takes the sharding that its target mesh needs. If users of an open value want different
    shardings, it gets the one that moves least bytes. Bodies of control flow are decided next, separately, from the
    known shardings. The shardings of their operands and results then spread further.

    Requires: phase trace.
    Ensures: phase shard: every argument and call states its shardings; each nested module has them on @main.
    """

    name: ClassVar[str] = "propagate-shardings"
    requires: ClassVar[Phase] = Phase.TRACE
    ensures: ClassVar[Phase] = Phase.SHARD
    keeps_flow: ClassVar[bool] = True
    writes: ClassVar[frozenset[str] | None] = frozenset(
        {"callee", "in_shardings", "out_shardings", "sharding", "arguments"}
    )

    def apply(self, program: ProgramIR, session: Session) -> None:
        propagate_shardings(program)


_Around: TypeAlias = tuple[tuple[Known, ...], tuple[Known, ...]]
"""The known shardings of the arguments and of the results of a call."""
_Key: TypeAlias = tuple[str, Any, int, int]
"""A computation, its mesh or axes, and the identities of the shared lists of shardings of its arguments and results."""


@dataclass
class _State:
    """The shardings known so far, by number of value or inbound value. A sharding is on the mesh of its value."""

    program: ProgramIR
    flow: Flow
    taken: Taken
    weak: dict[int, Dims] = field(default_factory=dict[int, Dims])
    """Shardings outside of this body, on meshes of equal axes, for values that nothing inside determines."""
    known: dict[int, Dims] = field(default_factory=dict[int, Dims])
    due: set[int] = field(default_factory=set[int])
    """The nodes to propagate: all at first, then those with a newly known sharding of an operand or result."""
    ranks: dict[str, Ranks] = field(default_factory=dict[str, Ranks])
    written: dict[tuple[str, str], SignatureShardings] = field(
        default_factory=dict[tuple[str, str], SignatureShardings]
    )
    results: dict[_Key, SignatureShardings] = field(default_factory=dict[_Key, SignatureShardings])
    wants: dict[int, list[Dims]] = field(default_factory=dict[int, list[Dims]])
    """The shardings in which the user's own signatures take a value, on the mesh of the value."""
    empty: frozenset[int] = frozenset()
    """Values without elements."""
    branches: dict[int, Ends] = field(default_factory=dict[int, Ends])
    """The locations of operands and results of control flow, by node."""
    shared: dict[Dims, Dims] = field(default_factory=dict[Dims, Dims])
    sides: dict[tuple[int, ...], tuple[Known, ...]] = field(default_factory=dict[tuple[int, ...], tuple[Known, ...]])
    """One object for all equal lists of shardings, by the identities of their entries."""

    def user(self, call: Node) -> SignatureShardings:
        """Returns the user's own shardings for a call."""
        callee, mesh = call.callee, call.mesh
        if (callee, mesh) not in self.written:
            axes = self.program.mesh(mesh).axes
            found = read_signature(self.program.computations[callee], axes, where_of(call.op))
            sides = found.ins, found.outs
            ins, outs = (tuple([None if d is None else self.share(d) for d in side]) for side in sides)
            self.written[callee, mesh] = SignatureShardings(ins, outs)
        return self.written[callee, mesh]

    def share(self, dims: Dims) -> Dims:
        """Returns one object for all equal shardings."""
        return self.shared.setdefault(dims, dims)

    def learn(self, value: int, dims: Dims) -> None:
        """Records the sharding of a value if none is known."""
        if value not in self.known:
            self.known[value] = self.share(dims)
            original = self.taken.originals[value]
            self.due.add(self.flow.makers[original])
            self.due.update(self.flow.users[original])

    def infer(self, call: Node, around: _Around) -> SignatureShardings:
        """Infers the signature of a call as far as the shardings around it determine it."""
        axes = self.program.mesh(call.mesh).axes
        ins, outs = around
        key = call.callee, axes, id(ins), id(outs)
        if key not in self.results:
            computation = self.program.computations[call.callee]
            self.results[key] = propagate(computation, axes, SignatureShardings(*around), where_of(call.op))
        return self.results[key]

    def around(self, call: Node) -> _Around:
        """Returns the known shardings of a call: the user's first, then those of its values."""
        user = self.user(call)
        return self._side(self.taken.operands[call.number], user.ins), self._side(call.results, user.outs)

    def _side(self, values: Sequence[int], pinned: tuple[Known, ...]) -> tuple[Known, ...]:
        found: list[Known] = list(map(self.known.get, values))
        if _are_any(pinned):
            found = [f if p is None else p for f, p in zip(found, pinned, strict=True)]
        if self.empty and not self.empty.isdisjoint(values):  # jaxlib 0.10 does not split empty arrays
            whole = [self.share(replicated(len(self.taken.types[v].shape))) for v in values]
            found = [w if v in self.empty else f for v, f, w in zip(values, found, whole, strict=True)]
        key = tuple(map(id, found))
        side = self.sides.get(key)
        if side is None:
            side = self.sides[key] = tuple(found)
        return side

    def rank(self, callee: str) -> Ranks:
        if callee not in self.ranks:
            self.ranks[callee] = ranks_of(self.program.computations[callee])
        return self.ranks[callee]


def propagate_shardings(program: ProgramIR) -> None:
    with program.context, ir.Location.unknown():
        arguments = program.arguments
        stated = ((v, arguments[v].sharding) for v in program.flow.arguments)
        shapes = [type_.shape for type_ in program.flow.types]
        _propagate(program, {v: shared_sharding(p.mesh, _fit(p.dims, shapes[v])) for v, p in stated if p is not None})
    program.phase = Phase.SHARD


def _propagate(program: ProgramIR, given: dict[int, Placed]) -> set[int]:
    """Decides all shardings in one function. Returns the arguments that something determines; others are replicated.

    A given sharding counts if it is on the mesh of its value. On another mesh of equal axes it counts only if nothing
    inside determines the value.
    """
    flow = program.flow
    lives = [a.mesh for a in program.arguments]
    for node in flow.nodes:
        lives += node.op.meshes if isinstance(node.op, ControlFlowRecord) else [node.mesh] * len(node.results)
    taken = find_taken(program, lives)
    empty = frozenset(i for i, t in enumerate(taken.types) if 0 in t.shape)
    state = _State(program, flow, taken, due=set(range(len(flow))), empty=empty)
    for value, placed in given.items():
        mesh = lives[value]
        if mesh == placed.mesh:
            state.learn(value, placed.dims)
        elif mesh is not None and program.mesh(mesh).axes == program.mesh(placed.mesh).axes:
            state.weak[value] = placed.dims
    _start(state)
    _settle(state)
    for node in flow.branches():
        _branch(state, node)
        _settle(state)
    _settle(state, last=True)
    determined = {v for v in flow.arguments if v in state.known}
    _close(state)
    _write(state)
    _drop_unused(program)
    return determined


def _settle(state: _State, *, last: bool = False) -> None:
    """Propagates on each mesh to a fixpoint before any sharding crosses to another mesh.

    `last`: all control flow is decided.
    """
    calls = list(state.flow.calls())
    while (
        _sweep(state, calls)
        or _sweep(state, calls[::-1])
        or _learn_from_own_mesh(state)
        or _arrive(state, last)
        or (last and _go_back(state))
    ):
        pass


def _branch(state: _State, node: Node) -> None:
    """Decides the bodies of control flow from the shardings around it, and records the results outside."""

    def outside(value: int) -> Placed | None:
        found = next((v for v in (value, sources.get(value)) if v in state.known), None)
        return None if found is None else shared_sharding(state.taken.lives[found] or "", state.known[found])

    operands = state.taken.operands[node.number]
    taken = operands[len(operands) - len(state.program.bodies_of(node.op)[0].inputs) :]
    sources = {move.made: move.source for move in state.taken.moves}
    ends = settle_bodies(state.program, node, list(map(outside, taken)), _propagate)
    state.branches[node.number] = ends
    for value, placed in (*zip(taken, ends.taken, strict=True), *zip(node.results, ends.made, strict=True)):
        if placed.mesh == state.taken.lives[value]:
            state.learn(value, placed.dims)


def _start(state: _State) -> None:
    types = state.taken.types
    for node in state.flow.nodes:
        if node.is_transfer and node.op.sharding is not None:
            (result,) = node.results
            state.learn(result, _fit(node.op.sharding[0].dims, types[result].shape))
    for call in state.flow.calls():
        for value, dims in zip(state.taken.operands[call.number], state.user(call).ins, strict=True):
            if dims is not None and 0 not in types[value].shape:
                state.wants.setdefault(value, []).append(dims)


def _fit(dims: Dims, shape: tuple[int, ...]) -> Dims:
    """Adds the dimension of PRNG key storage that the user's sharding does not name. Empty arrays are not split."""
    if 0 in shape:
        return replicated(len(shape))
    return dims + ((),) * (len(shape) - len(dims))


def _sweep(state: _State, calls: list[Node]) -> bool:
    """Makes one pass over the calls that are due. Returns whether it found a new sharding."""
    known = state.known
    before = len(known)
    for call in calls:
        if call.number not in state.due:
            continue
        state.due.remove(call.number)
        found, operands = state.infer(call, state.around(call)), state.taken.operands[call.number]
        if _are_any(found.outs) and None in map(known.get, call.results):
            for value, dims, pinned in zip(call.results, found.outs, state.user(call).outs, strict=True):
                if dims is not None and value not in known:
                    state.learn(value, dims if pinned is not None else cheapest(state, value, dims, made_so=True))
        if _are_any(found.ins) and None in map(known.get, operands):
            for value, dims in zip(operands, found.ins, strict=True):
                if dims is not None and value not in known:
                    state.learn(value, cheapest(state, value, dims, made_so=False))
    return len(known) > before


def _are_any(side: Sequence[Known]) -> bool:
    """Whether any of these shardings is known."""
    return side.count(None) < len(side)


def cheapest(state: _State, value: int, suggested: Dims, *, made_so: bool) -> Dims:
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


def _learn_from_own_mesh(state: _State) -> bool:
    """Gives an undetermined value the sharding of its first move on its own mesh, which makes the move unnecessary.

    The result of a move that states no sharding gets the sharding of its operand.
    """
    known = state.known
    before = len(known)
    for move in state.taken.moves:
        for given, open_ in ((move.made, move.source), (move.source, move.made)):
            if move.is_on_one_mesh and given in known:
                state.learn(open_, known[given])
    return len(known) > before


def _arrive(state: _State, last: bool) -> bool:
    """Gives an undetermined inbound value the sharding with which it is made elsewhere.

    A value that only control flow takes waits until control flow is decided: the bodies determine it better.
    """
    known = state.known
    before = len(known)
    for move in state.taken.moves:
        if move.source in known and move.made not in known and (last or move.called):
            state.learn(move.made, cheapest(state, move.made, known[move.source], made_so=False))
    for value, dims in state.weak.items():
        state.learn(value, dims)
    return len(known) > before


def _go_back(state: _State) -> bool:
    """Gives a value that nothing determines the sharding in which the first mesh that it moves to takes it."""
    known = state.known
    before = len(known)
    for move in state.taken.moves:
        if move.made in known:
            state.learn(move.source, known[move.made])
    return len(known) > before


def _drop_unused(program: ProgramIR) -> None:
    """Removes computations without calls: a dump may have some, and their shardings are not decided."""
    called = {node.callee for node in program.flow.nodes}
    for symbol in [s for s in program.computations if s not in called]:
        program.computations.pop(symbol).erase()


def _close(state: _State) -> None:
    """Replicates every value that nothing determines."""
    types, lives = state.taken.types, state.taken.lives
    whole = map_by_identity(lambda type_: state.share(replicated(len(type_.shape))), types)
    unknown = sorted(set(range(len(lives))) - state.known.keys())
    state.known.update((v, whole[v]) for v in unknown if lives[v] is not None)


def _write(state: _State) -> None:
    program = state.program
    arguments = program.arguments
    for i in state.flow.arguments:
        mesh = arguments[i].mesh
        if mesh is not None:
            arguments[i] = replace(arguments[i], sharding=shared_sharding(mesh, state.known[i]))
    program.arguments = arguments
    # Infer all signatures first: specializing overwrites the computations that inference reads.
    keys: list[_Key | None] = []
    signatures: dict[_Key, SignatureShardings] = {}
    for node in state.flow.nodes:
        if not node.callee:
            keys.append(None)
            continue
        ins, outs = state.around(node)
        key = node.callee, node.mesh, id(ins), id(outs)
        keys.append(key)
        if key not in signatures:
            signatures[key] = state.infer(node, (ins, outs)).closed(state.rank(node.callee))
    special: dict[_Key, Special] = {}
    originals = Originals()
    for node, key in zip(state.flow.nodes, keys, strict=True):
        if key is None:
            _write_node(state, node)
            continue
        if key not in special:
            signature = signatures[key]
            symbol = specialize(program, node, signature, originals)
            sides = (
                tuple(shared_sharding(node.mesh, d or ()) for d in side) for side in (signature.ins, signature.outs)
            )
            special[key] = Special(symbol, *sides)
        chosen = special[key]
        node.op.callee, node.op.in_shardings, node.op.out_shardings = chosen.callee, chosen.ins, chosen.outs
    state.flow.refresh()


def _write_node(state: _State, node: Node) -> None:
    """Writes the shardings of a transfer or of control flow."""
    if node.is_transfer:
        node.op.sharding = (shared_sharding(node.mesh, state.known[node.results[0]]),)
        return
    ends = state.branches[node.number]
    # The deciding operands are read on their own mesh.
    deciding = node.operands[: len(node.operands) - len(ends.taken)]
    here = [shared_sharding(state.taken.lives[v] or "", state.known[v]) for v in deciding]
    node.op.in_shardings, node.op.out_shardings = (*here, *ends.taken), ends.made
