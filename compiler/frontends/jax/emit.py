"""Writes the compiler's first IR from the graph of a traced program. It puts the nodes in order, lowers each to
StableHLO, and calls the program builder. It is the last step of the JAX front end.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pathways.compiler.frontends.builder import FunctionBuilder, ProgramBuilder, SliceSpec
from pathways.compiler.frontends.jax import compat
from pathways.compiler.frontends.jax.constants import read_constant
from pathways.compiler.frontends.jax.devices import VirtualSlice
from pathways.compiler.frontends.jax.gather import gather
from pathways.compiler.frontends.jax.graph import Call, Constant, ControlFlow, ExplicitMove, TracedGraph, TracedValue
from pathways.compiler.frontends.jax.groups import Group
from pathways.compiler.frontends.jax.homes import Homes
from pathways.compiler.frontends.jax.lower import Lowering
from pathways.compiler.frontends.jax.meshes import SliceMesh
from pathways.compiler.frontends.jax.order import order
from pathways.compiler.frontends.jax.pieces import InPieces
from pathways.compiler.frontends.jax.piecewise import Partition
from pathways.dialect.activities import Activity
from pathways.dialect.diagnostics import Where
from pathways.dialect.dtypes import ArrayType, is_stored_as_named, shared_type
from pathways.dialect.ir.arguments import Argument
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.memo import remembered_by_identity
from pathways.dialect.pieces import LeafPiece
from pathways.dialect.plan.signature import Parameter
from pathways.dialect.trees import Tree


@dataclass(frozen=True)
class Names:
    """The user's names of the program, its arguments and its results, and their pytree structures.

    `donated` are positions of arguments. `cut` states which arguments and results are in pieces; each piece is a value.
    """

    program: str
    arguments: list[str]
    results: list[str]
    donated: frozenset[int]
    where: Where | None
    in_tree: Tree
    out_tree: Tree
    parameters: tuple[Parameter, ...] = ()
    cut: InPieces = field(default_factory=InPieces)


@dataclass
class Emitted:
    """The program, its constants that are too large for the module, by digest, and its slices by symbol."""

    program: ProgramIR
    constants: dict[str, bytes]
    slices: dict[str, VirtualSlice]


def emit(graph: TracedGraph, homes: Homes, names: Names, lowering: Lowering) -> Emitted:
    return _Emitter(names, lowering).run(graph, homes)


class _Emitter:
    def __init__(self, names: Names, lowering: Lowering) -> None:
        self.names = names
        self.lowering = lowering
        self.builder = ProgramBuilder(names.program, lowering.platform, where=names.where, sources=lowering.sources)
        self._slices: dict[int, SliceSpec] = {}
        self._virtual: dict[int, VirtualSlice] = {}

    def run(self, graph: TracedGraph, homes: Homes) -> Emitted:
        constants = list(graph.constants())
        taken = [self._constant(c) for c in constants]
        names = self.names
        for argument, value in _named(names.arguments, names.cut.inputs, graph.inputs, names.donated):
            taken.append((argument, stored_type(value.aval)))
        function = self.builder.main(taken)
        returned = self._fill(function, graph, homes, constants)
        results = [result for result, _ in _named(names.results, names.cut.outputs, graph.outputs)]
        function.returns(returned, results, (self._home(v, homes) for v in (*constants, *graph.inputs)))
        built = self.builder.finish(self.names.in_tree, self.names.out_tree, self.names.parameters)
        slices = {symbol: self._virtual[spec.number] for symbol, spec in built.slices.items()}
        return Emitted(built.program, built.constants, slices)

    def _fill(
        self, function: FunctionBuilder, graph: TracedGraph, homes: Homes, constants: list[Constant]
    ) -> list[Any]:
        """Adds all units of a graph to a function, and returns the function's results."""
        env: dict[TracedValue, Any] = dict(zip((*constants, *graph.inputs), function.arguments, strict=True))
        units = order(graph, gather(graph, homes))
        with Activity("lowering computations", len(units), "calls") as lowering:
            for lowering.done, unit in enumerate(units):
                operands = [env[v] for v in unit.inputs]
                if isinstance(unit, ControlFlow):
                    results = self._branch(function, unit, operands, homes)
                else:
                    results = self._unit(function, unit, operands)
                env.update(zip(unit.outputs, results, strict=True))
        return [env[v] for v in graph.outputs]

    def _branch(self, function: FunctionBuilder, unit: ControlFlow, operands: list[Any], homes: Homes) -> list[Any]:
        bodies = [self._body(function, unit, i, homes.bodies[body]) for i, body in enumerate(unit.bodies)]
        meshes = [self.mesh(homes.values[v]) for v in unit.outputs]
        kind = "while" if unit.kind == "while" else "cond"
        return function.branch(kind, operands, bodies, meshes, where=unit.where)

    def _body(self, function: FunctionBuilder, unit: ControlFlow, number: int, homes: Homes) -> FunctionBuilder:
        graph = unit.bodies[number]
        role = ("cond", "body")[number] if unit.kind == "while" else f"branch_{number}"
        constants = list(graph.constants())
        carried = graph.inputs[-len(graph.outputs) :] if role == "body" and graph.outputs else []
        taken = [self._constant(c) for c in constants]
        for i, value in enumerate(graph.inputs):
            taken.append((Argument(f"operand {i}", donate=value in carried), stored_type(value.aval)))
        body = function.body(f"{self.names.program}_{unit.kind}_{role}", taken, where=unit.where)
        returned = self._fill(body, graph, homes, constants)
        results = [Argument(f"result {i}") for i in range(len(graph.outputs))]
        used = {*constants, *graph.used()}
        meshes = (self._home(v, homes) if v in used else None for v in (*constants, *graph.inputs))
        body.returns(returned, results, meshes)
        return body

    def _unit(self, function: FunctionBuilder, unit: Call | ExplicitMove | Group, operands: list[Any]) -> list[Any]:
        mesh = self.mesh(unit.mesh)
        if isinstance(unit, ExplicitMove):
            return [function.transfer(operands[0], mesh, unit.dims, where=unit.where)]
        gathered = isinstance(unit, Group)
        name = unit.name if isinstance(unit, Group) else unit.callee.name
        computation = self.lowering.of(unit)
        return function.call(computation, operands, mesh, name=name, gathered=gathered, where=unit.where)

    def _constant(self, constant: Constant) -> tuple[Argument, ArrayType]:
        type_ = stored_type(constant.aval)
        raw = read_constant(constant.array, type_).tobytes()
        return self.builder.constant(constant.name, raw, dtype=_user_dtype(constant.aval)), type_

    def _home(self, value: TracedValue, homes: Homes) -> str | None:
        home = homes.values.get(value)
        return None if home is None else self.mesh(home)

    def mesh(self, mesh: SliceMesh) -> str:
        return self.builder.mesh(self._slice(mesh.slice), mesh.spec)

    def _slice(self, virtual: VirtualSlice) -> SliceSpec:
        if virtual.number not in self._slices:
            island = virtual.island
            self._virtual[virtual.number] = virtual
            self._slices[virtual.number] = SliceSpec(
                virtual.number,
                len(virtual.devices),
                prefer=virtual.prefer,
                kind=virtual.kind,
                near=self._slice(island) if isinstance(island, VirtualSlice) else None,
                pin=island if isinstance(island, str) else None,
                shape=virtual.topology,
                where=virtual.where,
            )
        return self._slices[virtual.number]


def _named(
    names: Sequence[str],
    cuts: Sequence[Partition | None],
    values: Sequence[TracedValue],
    donated: frozenset[int] = frozenset(),
) -> Iterator[tuple[Argument, TracedValue]]:
    """Yields each argument or result that the user sees, with its value; one entry per piece if it is in pieces."""
    left = iter(values)
    for number, name in enumerate(names):
        cut = cuts[number] if cuts else None
        for start, stop in [(0, 0)] if cut is None else cut.intervals:
            value = next(left)
            piece = None if cut is None else LeafPiece(name, cut.axis, start, sum(cut.sizes))
            weak = bool(getattr(value.aval, "weak_type", False))
            argument = Argument(name if piece is None else piece.named(stop - start), _user_dtype(value.aval), weak)
            yield replace(argument, donate=number in donated, piece=piece), value


@remembered_by_identity
def stored_type(aval: compat.Aval) -> ArrayType:
    """Returns the type in which a value is stored: keys as their data, float0 as booleans of the same shape."""
    if compat.is_key(aval):
        data = compat.key_data_aval(aval)
        return shared_type(tuple(data.shape), str(data.dtype))
    dtype = str(aval.dtype)
    return shared_type(tuple(aval.shape), dtype if is_stored_as_named(dtype) else "bool")


def _user_dtype(aval: compat.Aval) -> str | None:
    dtype = str(aval.dtype)
    if compat.is_key(aval) or not is_stored_as_named(dtype):
        return "float0" if "float0" in dtype or dtype.startswith("[") else dtype
    return None
