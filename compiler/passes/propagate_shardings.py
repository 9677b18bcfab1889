"""Every value gets a sharding: the user's, or Shardy's, inside computations and across their borders."""

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
from pathways.compiler.passes.arrivals import Taken, find_taken
from pathways.compiler.passes.base import Pass, Session
from pathways.compiler.passes.shard_bodies import Ends, settle_bodies
from pathways.compiler.passes.specialize import Originals, Special, specialize
from pathways.dialect.ir import pw
from pathways.dialect.ir.flow import Flow, Node
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.mlir import ir, where_of
from pathways.dialect.phases import Phase
from pathways.dialect.reshard import plan_reshard
from pathways.dialect.sdy import Placed, write_shardings
from pathways.dialect.sharding import Dims, Sharding, replicated


@dataclass(frozen=True)
class PropagateShardings(Pass):
    """Decide the sharding of every value, and specialize each computation to the shardings it is used with.

    Shardy propagates inside each computation; between them, forward and backward, until nothing more is learned.
    What the calls of a mesh leave open then lies there as on the mesh that it comes from, if that has the same axes,
    and what is still open lies as the mesh that it goes to takes it.
    Where the user left a value open and its users want different shardings, it gets the one that moves least bytes.
    What is known then goes into bodies of control flow, which are decided on their own, and what they take and make
    goes on from there.

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
"""What is known of the arguments and of the results of a call."""
_Key: TypeAlias = tuple[str, Any, _Around]
"""A computation, its mesh, and the shardings of its arguments and results."""
_NOTHING: dict[int, Dims] = {}


@dataclass
class _State:
    """What is known so far, by number of value or arrival. A sharding is on the mesh where the value is."""

    program: ProgramIR
    flow: Flow
    taken: Taken
    weak: dict[int, Dims] = field(default_factory=dict[int, Dims])
    """How values lie outside of this body, on meshes of equal axes: for those that nothing inside determines."""
    known: dict[int, Dims] = field(default_factory=dict[int, Dims])
    here: dict[str, dict[int, Dims]] = field(default_factory=dict[str, dict[int, Dims]])
    """The same for what is on each mesh: a call looks at nothing else."""
    swept: dict[int, _Around] = field(default_factory=dict[int, _Around])
    """What was known around each call when it last taught all that it can."""
    ranks: dict[str, Ranks] = field(default_factory=dict[str, Ranks])
    written: dict[tuple[str, str], SignatureShardings] = field(
        default_factory=dict[tuple[str, str], SignatureShardings]
    )
    results: dict[_Key, SignatureShardings] = field(default_factory=dict[_Key, SignatureShardings])
    wants: dict[int, list[Dims]] = field(default_factory=dict[int, list[Dims]])
    """The shardings in which the user's own signatures take a value, where it is."""
    empty: frozenset[int] = frozenset()
    """Values without elements."""
    branches: dict[int, Ends] = field(default_factory=dict[int, Ends])
    """What control flow takes and makes, by node."""

    def user(self, call: Node) -> SignatureShardings:
        """What the user's own shardings say of a call."""
        callee, mesh = call.callee, call.mesh
        if (callee, mesh) not in self.written:
            axes = self.program.mesh(mesh).axes
            self.written[callee, mesh] = read_signature(
                self.program.computations[callee], axes, where_of(call.op.operation)
            )
        return self.written[callee, mesh]

    def learn(self, value: int, dims: Dims) -> None:
        """Notes the sharding of a value of which none is known."""
        if value not in self.known:
            self.known[value] = dims
            self.here.setdefault(self.taken.lives[value] or "", {})[value] = dims

    def infer(self, call: Node, around: _Around) -> SignatureShardings:
        """The call's signature as far as its surroundings determine it."""
        axes = self.program.mesh(call.mesh).axes
        key = (call.callee, axes, around)
        if key not in self.results:
            computation = self.program.computations[call.callee]
            self.results[key] = propagate(computation, axes, SignatureShardings(*around), where_of(call.op.operation))
        return self.results[key]

    def around(self, call: Node) -> _Around:
        """What is known of a call now: first what the user says, then what is known of the values on its mesh."""
        user = self.user(call)
        here = self.here.get(call.mesh, _NOTHING)
        return self._side(self.taken.operands[call.number], user.ins, here), self._side(call.results, user.outs, here)

    def _side(self, values: Sequence[int], pinned: tuple[Known, ...], here: dict[int, Dims]) -> tuple[Known, ...]:
        found: list[Known] = list(map(here.get, values))
        if pinned.count(None) < len(pinned):
            found = [f if p is None else p for f, p in zip(found, pinned, strict=True)]
        if not self.empty.isdisjoint(values):  # jaxlib 0.10 does not split what is empty
            types = self.taken.types
            found = [
                replicated(len(types[v].shape)) if v in self.empty else f for v, f in zip(values, found, strict=True)
            ]
        return tuple(found)

    def rank(self, callee: str) -> Ranks:
        if callee not in self.ranks:
            self.ranks[callee] = ranks_of(self.program.computations[callee])
        return self.ranks[callee]


def propagate_shardings(program: ProgramIR) -> None:
    with program.context, ir.Location.unknown():
        arguments = program.arguments
        stated = ((v, arguments[v].sharding) for v in program.flow.arguments)
        shapes = [type_.shape for type_ in program.flow.types]
        _propagate(program, {v: Placed(p.mesh, _fit(p.dims, shapes[v])) for v, p in stated if p is not None})
    program.phase = Phase.SHARD


def _propagate(program: ProgramIR, given: dict[int, Placed]) -> set[int]:
    """Decides everything in one function. What is given of a value counts where it is on the mesh where it lives.

    On another mesh of equal axes it counts where nothing inside determines the value.
    The arguments that something determines; others are replicated because nothing does.
    """
    flow = program.flow
    lives = [a.mesh for a in program.arguments]
    for node in flow.nodes:
        lives += node.op.meshes if isinstance(node.op, pw.ControlFlowOp) else [node.mesh] * len(node.results)
    taken = find_taken(program, lives)
    state = _State(program, flow, taken, empty=frozenset(i for i, t in enumerate(taken.types) if 0 in t.shape))
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
    """Learns all that there is to learn on each mesh before anything crosses from one to another.

    `last`: control flow is decided, so that it has no say any more.
    """
    calls = list(state.flow.calls())
    while (
        _sweep(state, calls)
        or _sweep(state, calls[::-1])
        or _stay(state)
        or _arrive(state, last)
        or (last and _go_back(state))
    ):
        pass


def _branch(state: _State, node: Node) -> None:
    """Decides the bodies of control flow, with what is known around them; then what is around learns of them."""

    def decide(body: ProgramIR, given: dict[int, Placed]) -> set[int]:
        determined = _propagate(body, given)
        body.changed()
        return determined

    def outside(value: int) -> Placed | None:
        found = next((v for v in (value, sources.get(value)) if v in state.known), None)
        return None if found is None else Placed(state.taken.lives[found] or "", state.known[found])

    operands = state.taken.operands[node.number]
    taken = operands[len(operands) - len(state.program.bodies_of(node.op)[0].inputs) :]
    sources = {move.made: move.source for move in state.taken.moves}
    ends = settle_bodies(state.program, node.op, list(map(outside, taken)), decide)
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
    """The storage of PRNG keys has a dimension that the user's sharding does not name; what is empty is not split."""
    if 0 in shape:
        return replicated(len(shape))
    return dims + ((),) * (len(shape) - len(dims))


def _sweep(state: _State, calls: list[Node]) -> bool:
    """One pass over the calls; whether anything new was learned."""
    known = state.known
    before = len(known)
    for call in calls:
        around = state.around(call)
        if state.swept.get(call.number) == around:
            continue
        state.swept[call.number] = around
        found, user = state.infer(call, around), state.user(call)
        for value, dims, pinned in zip(call.results, found.outs, user.outs, strict=True):
            if dims is not None and value not in known:
                state.learn(value, dims if pinned is not None else cheapest(state, value, dims, made_so=True))
        for value, dims in zip(state.taken.operands[call.number], found.ins, strict=True):
            if dims is not None and value not in known:
                state.learn(value, cheapest(state, value, dims, made_so=False))
    return len(known) > before


def cheapest(state: _State, value: int, suggested: Dims, *, made_so: bool) -> Dims:
    """Of what is suggested and what users of the value want, the sharding that moves least bytes.

    `made_so`: propagation suggests that the value is made like this, else that one of its users takes it like this. Of
    equal ones that with fewest reshards between calls: one inside a computation is fused into it. What arrives from
    another mesh comes in all the shardings that users want; another one would let it come once more.
    """
    wants = list(dict.fromkeys(state.wants.get(value, [])))  # users that want the same share one reshard
    arrives = bool(wants) and value in state.taken.arrivals
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


def _stay(state: _State) -> bool:
    """A value whose sharding nothing else determines lies as it is first moved on its mesh: then there is no move.

    So does the result of a move that states no sharding.
    """
    known = state.known
    before = len(known)
    for move in state.taken.moves:
        for given, open_ in ((move.made, move.source), (move.source, move.made)):
            if move.stays and given in known:
                state.learn(open_, known[given])
    return len(known) > before


def _arrive(state: _State, last: bool) -> bool:
    """What nothing on its mesh determines lies there as it was made elsewhere.

    What control flow alone takes waits until that is decided: its bodies know better.
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
    """What nothing determines at all is made as the mesh takes it that it is first moved to."""
    known = state.known
    before = len(known)
    for move in state.taken.moves:
        if move.made in known:
            state.learn(move.source, known[move.made])
    return len(known) > before


def _drop_unused(program: ProgramIR) -> None:
    """Removes computations that nothing calls: a dump may have some, and nothing is decided for them."""
    called = {node.callee for node in program.flow.nodes}
    for symbol in [s for s in program.computations if s not in called]:
        program.computations.pop(symbol).erase()


def _close(state: _State) -> None:
    """What nothing determines is replicated."""
    ranks = [len(type_.shape) for type_ in state.taken.types]
    for value, (mesh, rank) in enumerate(zip(state.taken.lives, ranks, strict=True)):
        if mesh is not None and value not in state.known:
            state.learn(value, replicated(rank))


def _write(state: _State) -> None:
    program = state.program
    arguments = program.arguments
    for i in state.flow.arguments:
        mesh = arguments[i].mesh
        if mesh is not None:
            arguments[i] = replace(arguments[i], sharding=Placed(mesh, state.known[i]))
    program.arguments = arguments
    # All signatures first: specializing overwrites what inference reads.
    keys = [(n.callee, n.mesh, state.around(n)) if n.callee else None for n in state.flow.nodes]
    signatures: dict[_Key, SignatureShardings] = {}
    for node, key in zip(state.flow.nodes, keys, strict=True):
        if key is not None and key not in signatures:
            signatures[key] = state.infer(node, key[2]).closed(state.rank(node.callee))
    special: dict[_Key, Special] = {}
    originals = Originals()
    for node, key in zip(state.flow.nodes, keys, strict=True):
        if key is None:
            _write_node(state, node)
            continue
        if key not in special:
            signature = signatures[key]
            symbol = specialize(program, node, signature, originals)
            sides = (tuple(Placed(node.mesh, d or ()) for d in side) for side in (signature.ins, signature.outs))
            special[key] = Special(symbol, *(write_shardings(side) for side in sides))
        chosen, attributes = special[key], node.op.operation.attributes
        attributes["in_shardings"], attributes["out_shardings"] = chosen.ins, chosen.outs
        if chosen.callee != node.callee:
            node.op.callee = chosen.callee
    state.flow.specialized()


def _write_node(state: _State, node: Node) -> None:
    """The shardings of a transfer or of control flow."""
    if node.is_transfer:
        node.op.sharding = (Placed(node.mesh, state.known[node.results[0]]),)
        return
    ends = state.branches[node.number]
    # What decides is read where it lies.
    deciding = node.operands[: len(node.operands) - len(ends.taken)]
    here = [Placed(state.taken.lives[v] or "", state.known[v]) for v in deciding]
    node.op.in_shardings, node.op.out_shardings = (*here, *ends.taken), ends.made
