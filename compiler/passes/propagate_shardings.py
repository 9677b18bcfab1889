"""Every value gets a sharding: the user's, or Shardy's, inside computations and across their borders."""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeAlias

from pathways.compiler.passes.base import Pass, Session
from pathways.compiler.shardy import Known, Ranks, Signature, propagate, ranks_of, read_signature, write_signature
from pathways.dialect import pw
from pathways.dialect.mlir import Module, Operation, Value, ir, where_of
from pathways.dialect.phases import Phase
from pathways.dialect.program import Program, array_type
from pathways.dialect.reshard import plan_reshard
from pathways.dialect.sdy import Placed
from pathways.dialect.sharding import Dims, Sharding, replicated


@dataclass(frozen=True)
class PropagateShardings(Pass):
    """Decide the sharding of every value, and specialize each computation to the shardings it is used with.

    Shardy propagates inside each computation; between them, forward and backward, until nothing more is learned.
    Where the user left a value open and its users want different shardings, it gets the one that moves least bytes.

    Requires: phase trace.
    Ensures: phase shard: every argument and call states its shardings; each nested module has them on @main.
    """

    name: ClassVar[str] = "propagate-shardings"
    requires: ClassVar[Phase] = Phase.TRACE
    ensures: ClassVar[Phase] = Phase.SHARD

    def apply(self, program: Program, session: Session) -> None:
        propagate_shardings(program)


_Key: TypeAlias = tuple[str, str, Signature]


@dataclass
class _State:
    """What is known so far. A value's sharding is on the mesh where the value lives."""

    program: Program
    lives: dict[Value, str] = field(default_factory=dict[Value, str])
    known: dict[Value, Dims] = field(default_factory=dict[Value, Dims])
    ranks: dict[str, Ranks] = field(default_factory=dict[str, Ranks])
    written: dict[tuple[str, str], Signature] = field(default_factory=dict[tuple[str, str], Signature])
    results: dict[_Key, Signature] = field(default_factory=dict[_Key, Signature])
    wants: dict[Value, list[Dims]] = field(default_factory=dict[Value, list[Dims]])
    """The shardings in which the user's own signatures take a value, where it lives."""

    def user(self, call: pw.CallOp) -> Signature:
        """What the user's own shardings say of a call."""
        callee, mesh = call.callee, call.mesh
        if (callee, mesh) not in self.written:
            axes = self.program.mesh(mesh).axes
            self.written[callee, mesh] = read_signature(
                self.program.computations[callee], axes, where_of(call.operation)
            )
        return self.written[callee, mesh]

    def infer(self, call: pw.CallOp) -> Signature:
        """The call's signature as far as its surroundings determine it now."""
        callee, mesh = call.callee, call.mesh
        axes = self.program.mesh(mesh).axes
        computation = self.program.computations[callee]
        user = self.user(call)
        ins = tuple(self._around(v, mesh, known) for v, known in zip(call.operands, user.ins, strict=True))
        outs = tuple(self._around(v, mesh, known) for v, known in zip(call.results, user.outs, strict=True))
        given = Signature(ins, outs)
        key = (callee, str(axes), given)
        if key not in self.results:
            self.results[key] = propagate(computation, axes, given, where_of(call.operation))
        return self.results[key]

    def _around(self, value: Value, mesh: str, user: Known) -> Known:
        if 0 in array_type(value).shape:  # jaxlib 0.10 does not split what is empty
            return replicated(len(array_type(value).shape))
        if user is not None:
            return user
        return self.known.get(value) if self.lives.get(value) == mesh else None

    def rank(self, callee: str) -> Ranks:
        if callee not in self.ranks:
            self.ranks[callee] = ranks_of(self.program.computations[callee])
        return self.ranks[callee]


def propagate_shardings(program: Program) -> None:
    with program.context, ir.Location.unknown():
        state = _State(program)
        _start(state)
        calls = list(program.calls())
        while _sweep(state, calls) or _sweep(state, calls[::-1]) or _follow_moves(state):
            pass
        _close(state)
        _write(state)
    program.phase = Phase.SHARD


def _start(state: _State) -> None:
    for value, argument in zip(state.program.block.arguments, state.program.arguments, strict=True):
        if argument.mesh is not None:
            state.lives[value] = argument.mesh
    for op in state.program.nodes():
        for result in op.results:
            state.lives[result] = op.mesh
        if isinstance(op, pw.TransferOp) and op.sharding is not None:
            state.known[op.results[0]] = _fit(op.sharding[0].dims, array_type(op.results[0]).shape)
    for call in state.program.calls():
        for value, dims in zip(call.operands, state.user(call).ins, strict=True):
            if dims is not None and state.lives.get(value) == call.mesh and 0 not in array_type(value).shape:
                state.wants.setdefault(value, []).append(dims)


def _fit(dims: Dims, shape: tuple[int, ...]) -> Dims:
    """The storage of PRNG keys has a dimension that the user's sharding does not name; what is empty is not split."""
    if 0 in shape:
        return replicated(len(shape))
    return dims + ((),) * (len(shape) - len(dims))


def _sweep(state: _State, calls: list[pw.CallOp]) -> bool:
    """One pass over the calls; whether anything new was learned."""
    before = len(state.known)
    for call in calls:
        found, user = state.infer(call), state.user(call)
        for value, dims, pinned in zip(call.results, found.outs, user.outs, strict=True):
            if dims is not None and value not in state.known:
                state.known[value] = dims if pinned is not None else cheapest(state, value, dims, made_so=True)
        for value, dims in zip(call.operands, found.ins, strict=True):
            if dims is not None and value not in state.known and state.lives.get(value) == call.mesh:
                state.known[value] = cheapest(state, value, dims, made_so=False)
    return len(state.known) > before


def cheapest(state: _State, value: Value, suggested: Dims, *, made_so: bool) -> Dims:
    """Of what is suggested and what users of the value want, the sharding that moves least bytes.

    `made_so`: propagation suggests that the value is made like this, else that somebody takes it like this. Of equal
    ones that with fewest reshards between calls: one inside a computation is fused into it.
    """
    wants = list(dict.fromkeys(state.wants.get(value, [])))  # users that want the same share one reshard
    candidates = list(dict.fromkeys((suggested, *wants)))
    if len(candidates) == 1:
        return suggested
    mesh, type_ = state.program.mesh(state.lives[value]), array_type(value)

    def moved(source: Dims, target: Dims) -> int:
        a, b = Sharding(mesh, source), Sharding(mesh, target)
        return 0 if source == target else plan_reshard(type_.shape, a, b, mesh.devices, mesh.devices).moved

    def cost(candidate: Dims) -> tuple[int, int]:
        inside = moved(suggested, candidate) if made_so else moved(candidate, suggested) * (suggested not in wants)
        return inside + sum(moved(candidate, w) for w in wants), sum(candidate != w for w in wants)

    divisible = [c for c in candidates if not Sharding(mesh, c).undivided(type_.shape)]
    return min(divisible, key=cost, default=suggested)


def _follow_moves(state: _State) -> bool:
    """A value whose sharding nothing else determines lies as it is first moved: then there is no move."""
    before = len(state.known)
    for op in state.program.nodes():
        if isinstance(op, pw.TransferOp) and state.lives.get(op.operands[0]) == op.mesh:
            state.known.setdefault(op.operands[0], state.known[op.results[0]])
    return len(state.known) > before


def _close(state: _State) -> None:
    """What nothing determines is replicated."""
    for value in state.lives:
        state.known.setdefault(value, replicated(len(array_type(value).shape)))


def _write(state: _State) -> None:
    program = state.program
    arguments = program.arguments
    for i, value in enumerate(program.block.arguments):
        mesh = arguments[i].mesh
        if mesh is not None:
            arguments[i] = replace(arguments[i], sharding=Placed(mesh, state.known[value]))
    program.arguments = arguments
    # All signatures first: specializing overwrites what inference reads.
    signatures = {op: state.infer(op).closed(state.rank(op.callee)) for op in program.calls()}
    special: dict[tuple[str, str, Signature], str] = {}
    sources = _Sources()
    for op in program.nodes():
        if isinstance(op, pw.TransferOp):
            op.sharding = (Placed(op.mesh, state.known[op.results[0]]),)
            continue
        signature = signatures[op]
        op.in_shardings = tuple(Placed(op.mesh, d or ()) for d in signature.ins)
        op.out_shardings = tuple(Placed(op.mesh, d or ()) for d in signature.outs)
        key = (op.callee, str(program.mesh(op.mesh).axes), signature)
        if key not in special:
            special[key] = _specialize(program, op, signature, sources)
        op.callee = special[key]


class _Sources:
    """Computations as they were before any signature was written, kept alive with the modules that hold them."""

    def __init__(self) -> None:
        self._modules: dict[str, Module] = {}

    def first(self, callee: str, computation: Operation) -> bool:
        """Keeps a copy at the first request for `callee`; whether this was it."""
        if callee in self._modules:
            return False
        self._modules[callee] = ir.Module.create()
        computation.clone(ir.InsertionPoint(self._modules[callee].body))
        return True

    def clone(self, callee: str, ip: Any) -> Operation:
        return self._modules[callee].body.operations[0].operation.clone(ip)


def _specialize(program: Program, call: pw.CallOp, signature: Signature, sources: _Sources) -> str:
    """The symbol of the call's computation with this signature: the original at its first use, then clones."""
    callee = call.callee
    axes = program.mesh(call.mesh).axes
    original = program.computations[callee]
    if sources.first(callee, original):
        write_signature(original, axes, signature)
        return callee
    symbol = program.unique_symbol(callee)
    clone = sources.clone(callee, ir.InsertionPoint(original))
    clone.attributes["sym_name"] = ir.StringAttr.get(symbol)
    write_signature(clone, axes, signature)
    program.computations[symbol] = clone
    return symbol
