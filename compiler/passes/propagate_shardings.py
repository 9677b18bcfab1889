"""Defines the pass `propagate-shardings`. It decides the sharding of every value: the user's, or the one that Shardy's
propagation finds. Shardings spread inside computations and between them.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, TypeAlias

from pathways.compiler.computations.shardy import SignatureShardings
from pathways.compiler.passes.base import Pass, Session
from pathways.compiler.passes.inbound_moves import find_taken
from pathways.compiler.passes.known_shardings import KnownShardings, Numbers, cheapest
from pathways.compiler.passes.shard_bodies import settle_bodies
from pathways.compiler.passes.specialize import Originals, Special, specialize
from pathways.dialect.diagnostics import InternalError
from pathways.dialect.ir.flow import Node
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.mlir import ir
from pathways.dialect.phases import Phase
from pathways.dialect.sdy import Placed, shared_sharding
from pathways.dialect.sharding import Dims, replicated


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


_Key: TypeAlias = tuple[str, str, Numbers, Numbers]
"""A computation, its mesh, and the numbers of the shardings of its arguments and results."""


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
        lives += node.op.meshes if node.is_branch else [node.mesh] * len(node.results)
    state = KnownShardings(program, find_taken(program, lives))
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
    determined = {v for v in flow.arguments if v in state}
    state.close()
    _write(state)
    _drop_unused(program)
    return determined


def _settle(state: KnownShardings, *, last: bool = False) -> None:
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


def _branch(state: KnownShardings, node: Node) -> None:
    """Decides the bodies of control flow from the shardings around it, and records the results outside."""

    def outside(value: int) -> Placed | None:
        ends = (value, sources.get(value, value))
        return next((shared_sharding(state.taken.lives[v] or "", d) for v in ends if (d := state[v]) is not None), None)

    operands = state.taken.operands[node.number]
    taken = operands[len(operands) - len(state.program.bodies_of(node.op)[0].inputs) :]
    sources = {move.made: move.source for move in state.taken.moves}
    ends = settle_bodies(state.program, node, list(map(outside, taken)), _propagate)
    state.branches[node.number] = ends
    for value, placed in (*zip(taken, ends.taken, strict=True), *zip(node.results, ends.made, strict=True)):
        if placed.mesh == state.taken.lives[value]:
            state.learn(value, placed.dims)


def _start(state: KnownShardings) -> None:
    types = state.taken.types
    for node in state.flow.nodes:
        if node.is_transfer and node.op.sharding is not None:
            (result,) = node.results
            state.learn(result, _fit(node.op.sharding[0].dims, types[result].shape))
    for call in state.flow.calls():
        state.note_wants(call)


def _fit(dims: Dims, shape: tuple[int, ...]) -> Dims:
    """Adds the dimension of PRNG key storage that the user's sharding does not name. Empty arrays are not split."""
    if 0 in shape:
        return replicated(len(shape))
    return dims + ((),) * (len(shape) - len(dims))


def _sweep(state: KnownShardings, calls: list[Node]) -> bool:
    """Makes one pass over the calls that are due. Returns whether it found a new sharding."""
    before = state.known_count
    for call in calls:
        if call.number in state.due:
            state.due.remove(call.number)
            state.learn_from(call)
    return state.known_count > before


def _learn_from_own_mesh(state: KnownShardings) -> bool:
    """Gives an undetermined value the sharding of its first move on its own mesh, which makes the move unnecessary.

    The result of a move that states no sharding gets the sharding of its operand.
    """
    before = state.known_count
    for move in state.taken.moves:
        for given, open_ in ((move.made, move.source), (move.source, move.made)):
            if move.is_on_one_mesh and (dims := state[given]) is not None:
                state.learn(open_, dims)
    return state.known_count > before


def _arrive(state: KnownShardings, last: bool) -> bool:
    """Gives an undetermined inbound value the sharding with which it is made elsewhere.

    A value that only control flow takes waits until control flow is decided: the bodies determine it better.
    """
    before = state.known_count
    for move in state.taken.moves:
        if (last or move.called) and move.made not in state and (dims := state[move.source]) is not None:
            state.learn(move.made, cheapest(state, move.made, dims, made_so=False))
    for value, dims in state.weak.items():
        state.learn(value, dims)
    return state.known_count > before


def _go_back(state: KnownShardings) -> bool:
    """Gives a value that nothing determines the sharding in which the first mesh that it moves to takes it."""
    before = state.known_count
    for move in state.taken.moves:
        if (dims := state[move.made]) is not None:
            state.learn(move.source, dims)
    return state.known_count > before


def _drop_unused(program: ProgramIR) -> None:
    """Removes computations without calls: a dump may have some, and their shardings are not decided."""
    called = {node.callee for node in program.flow.nodes}
    for symbol in [s for s in program.computations if s not in called]:
        program.computations.pop(symbol).erase()


def _write(state: KnownShardings) -> None:
    program = state.program
    arguments = program.arguments
    for i in state.flow.arguments:
        mesh = arguments[i].mesh
        if mesh is not None:
            arguments[i] = replace(arguments[i], sharding=_placed(state, i))
    program.arguments = arguments
    # Infer all signatures first: specializing overwrites the computations that inference reads.
    keys: list[_Key | None] = []
    signatures: dict[_Key, SignatureShardings] = {}
    for node in state.flow.nodes:
        if not node.callee:
            keys.append(None)
            continue
        ins, outs = state.around(node)
        key = node.callee, node.mesh, ins, outs
        keys.append(key)
        if key not in signatures:
            signatures[key] = state.closed_signature(node, (ins, outs))
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
        node.op.update(callee=chosen.callee, in_shardings=chosen.ins, out_shardings=chosen.outs)
    state.flow.refresh()


def _write_node(state: KnownShardings, node: Node) -> None:
    """Writes the shardings of a transfer or of control flow."""
    if node.is_transfer:
        node.op.sharding = (_placed(state, node.results[0]),)
        return
    ends = state.branches[node.number]
    # The deciding operands are read on their own mesh.
    deciding = node.operands[: len(node.operands) - len(ends.taken)]
    here = [_placed(state, v) for v in deciding]
    node.op.in_shardings, node.op.out_shardings = (*here, *ends.taken), ends.made


def _placed(state: KnownShardings, value: int) -> Placed:
    """Returns the mesh and the sharding of a value."""
    mesh, dims = state.taken.lives[value], state[value]
    if mesh is None or dims is None:
        raise InternalError(f"nothing decides the sharding of value {value}")
    return shared_sharding(mesh, dims)
