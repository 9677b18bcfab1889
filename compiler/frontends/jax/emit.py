"""From units in program order to a module of phase `trace`."""

import re
from dataclasses import dataclass, field
from typing import Any

from pathways.compiler.frontends.jax import compat
from pathways.compiler.frontends.jax.constants import read_constant
from pathways.compiler.frontends.jax.devices import VirtualSlice
from pathways.compiler.frontends.jax.gather import Group, gather
from pathways.compiler.frontends.jax.graph import Call, Constant, ControlFlow, ExplicitMove, TracedGraph, TracedValue
from pathways.compiler.frontends.jax.homes import Homes
from pathways.compiler.frontends.jax.lower import Lowering, load_into, symbol_of
from pathways.compiler.frontends.jax.meshes import SliceMesh
from pathways.compiler.frontends.jax.order import order
from pathways.dialect.diagnostics import Where
from pathways.dialect.dtypes import ArrayType, is_stored_as_named
from pathways.dialect.ir import pw
from pathways.dialect.ir.flow import FlowParts, Node
from pathways.dialect.ir.program import INLINE_LIMIT, Argument, constant_name
from pathways.dialect.memo import remembered_by_identity
from pathways.dialect.mlir import Module, func, ir, location
from pathways.dialect.phases import Phase
from pathways.dialect.plan.signature import PARAMETERS, Parameter, write_parameters
from pathways.dialect.sdy import Placed
from pathways.dialect.sources import remember_sources
from pathways.dialect.trees import Tree, write_tree


@dataclass(frozen=True)
class Names:
    """What the user calls the program, its arguments and its results, and how these are structured.

    `donated` are positions of arguments.
    """

    program: str
    arguments: list[str]
    results: list[str]
    donated: frozenset[int]
    where: Where | None
    in_tree: Tree
    out_tree: Tree
    parameters: tuple[Parameter, ...] = ()


@dataclass
class Emitted:
    """The module, the constants too large for it by digest, and the slices by symbol."""

    module: Module
    constants: dict[str, bytes] = field(default_factory=dict[str, bytes])
    slices: dict[str, VirtualSlice] = field(default_factory=dict[str, VirtualSlice])
    timing: dict[str, float] = field(default_factory=dict[str, float])
    """Seconds of JAX's own tracing, of its lowering, and of the rest of phase `trace`."""


def emit(graph: TracedGraph, homes: Homes, names: Names, lowering: Lowering, context: Any) -> tuple[Emitted, FlowParts]:
    """The module, and the dataflow of the program as it was written."""
    remember_sources(context, lowering.sources)
    with context, ir.Location.unknown(context):
        return _Emitter(names, lowering, context).run(graph, homes)


class _Emitter:
    def __init__(self, names: Names, lowering: Lowering, context: Any) -> None:
        self.names = names
        self.lowering = lowering
        self.context = context
        self.module: Module = ir.Module.create()
        self.out = Emitted(self.module)
        self.symbols_ip: Any = None
        self._slices: dict[int, str] = {}
        self._meshes: dict[SliceMesh, str] = {}
        self._types: dict[ArrayType, Any] = {}
        self._results: dict[str, list[Any]] = {}
        """The types of what each computation makes."""

    def run(self, graph: TracedGraph, homes: Homes) -> tuple[Emitted, FlowParts]:
        attributes = self.module.operation.attributes
        attributes["pw.phase"] = ir.StringAttr.get(Phase.TRACE.value)
        attributes["pw.platform"] = ir.StringAttr.get(self.lowering.platform)
        attributes["pw.in_tree"] = ir.StringAttr.get(write_tree(self.names.in_tree))
        attributes["pw.out_tree"] = ir.StringAttr.get(write_tree(self.names.out_tree))
        attributes[PARAMETERS] = ir.StringAttr.get(write_parameters(self.names.parameters))
        symbol = symbol_of(self.names.program)
        constants = list(graph.constants())
        with ir.InsertionPoint(self.module.body):
            function = self._function(graph, constants, symbol, "pw.program", self.names.where)
        self.symbols_ip = ir.InsertionPoint(function)
        flow = self._fill(function, graph, homes, constants, self.names.arguments, symbol)
        self._signature(function, constants, graph, homes)
        self._number_slices()
        for lowered in self.lowering.computations:
            load_into(lowered, self.context, self.symbols_ip)
        return self.out, flow

    def _function(
        self, graph: TracedGraph, constants: list[Constant], symbol: str, kind: str, where: Where | None
    ) -> Any:
        types = [self.type_of(v) for v in (*constants, *graph.inputs)]
        results = [self.type_of(v) for v in graph.outputs]
        type_ = ir.FunctionType.get(types, results)
        function = func.FuncOp(symbol, type_, loc=self.at(where, symbol))
        function.operation.attributes[kind] = ir.UnitAttr.get()
        return function

    def _fill(
        self, function: Any, graph: TracedGraph, homes: Homes, constants: list[Constant], names: list[str], symbol: str
    ) -> FlowParts:
        """Everything that a function does. Gives the dataflow as it is known here: reading it off MLIR takes longer."""
        shown = [_prefix(n) for n in (*(c.name for c in constants), *names)]
        locations = [self.at(self.names.where, n) for n in shown]
        types = function.type.inputs
        block = function.operation.regions[0].blocks.append(*types, arg_locs=locations)
        values = list(block.arguments)
        numbers: dict[TracedValue, int] = {v: i for i, v in enumerate((*constants, *graph.inputs))}
        nodes: list[Node] = []
        with ir.InsertionPoint(block):
            for unit in order(graph, gather(graph, homes)):
                taken = tuple(map(numbers.__getitem__, unit.inputs))
                operands = list(map(values.__getitem__, taken))
                if isinstance(unit, ControlFlow):
                    op, callee, mesh = self._branch(unit, operands, homes, ir.InsertionPoint(block)), "", ""
                else:
                    op, callee, mesh = self._unit(unit, operands, ir.InsertionPoint(block), symbol)
                results = list(op.results)
                made = range(len(values), len(values) + len(results))
                values += results
                numbers.update(zip(unit.outputs, made, strict=True))
                nodes.append(Node(len(nodes), op, callee, mesh, taken, made))
            returned = [numbers[v] for v in graph.outputs]
            func.ReturnOp([values[v] for v in returned])
        return values, nodes, returned

    def _branch(self, unit: ControlFlow, operands: list[Any], homes: Homes, ip: Any) -> pw.ControlFlowOp:
        """Control flow, its bodies as functions before the program."""
        cls = pw.CondOp if unit.kind == "cond" else pw.WhileOp
        bodies = [self._body(unit, i, homes.bodies[body]) for i, body in enumerate(unit.bodies)]
        return cls.create(
            ip=ip,
            loc=self.at(unit.where, unit.kind),
            operands=operands,
            results=[self.type_of(v) for v in unit.outputs],
            bodies=tuple(bodies),
            meshes=tuple(self.mesh(homes.values[v]) for v in unit.outputs),
        )

    def _body(self, unit: ControlFlow, number: int, homes: Homes) -> str:
        body = unit.bodies[number]
        role = ("cond", "body")[number] if unit.kind == "while" else f"branch_{number}"
        symbol = self.lowering.reserve(f"{self.names.program}_{unit.kind}_{role}")
        names = [f"operand {i}" for i in range(len(body.inputs))]
        constants = list(body.constants())
        after = self.symbols_ip
        with after:
            function = self._function(body, constants, symbol, "pw.body", unit.where)
        self.symbols_ip = ir.InsertionPoint(function)  # what is inside goes before it
        self._fill(function, body, homes, constants, names, symbol)
        self.symbols_ip = after
        used = body.used()
        arguments = [self._constant(c, self._home(c, homes)) for c in constants]
        carried = body.inputs[-len(body.outputs) :] if role == "body" and body.outputs else []
        for value, name in zip(body.inputs, names, strict=True):
            mesh = self._home(value, homes) if value in used else None
            arguments.append(Argument(name, mesh=mesh, donate=value in carried))
        function.arg_attrs = ir.ArrayAttr.get([a.write() for a in arguments])
        if body.outputs:
            results = (Argument(f"result {i}") for i in range(len(body.outputs)))
            function.result_attrs = ir.ArrayAttr.get([r.write() for r in results])
        return symbol

    def at(self, where: Where | None, name: str) -> Any:
        """`name` at a line of the user's; at the program's where there is none."""
        for place in (where, self.names.where):
            file = None if place is None else self.lowering.sources.stored(place.file)
            if place is not None and file is not None:
                return location(Where(file, place.line, place.function), name, self.context)
        return location(None, name, self.context)

    def type_of(self, value: TracedValue) -> Any:
        stored = stored_type(value.aval)
        if stored not in self._types:
            self._types[stored] = ir.Type.parse(stored.mlir, self.context)
        return self._types[stored]

    def _signature(self, function: Any, constants: list[Constant], graph: TracedGraph, homes: Homes) -> None:
        arguments = [self._constant(c, self._home(c, homes)) for c in constants]
        for i, (value, name) in enumerate(zip(graph.inputs, self.names.arguments, strict=True)):
            arguments.append(
                Argument(
                    name,
                    dtype=_user_dtype(value.aval),
                    weak=bool(getattr(value.aval, "weak_type", False)),
                    mesh=self._home(value, homes),
                    donate=i in self.names.donated,
                )
            )
        function.arg_attrs = ir.ArrayAttr.get([a.write() for a in arguments])
        results = [
            Argument(name, dtype=_user_dtype(v.aval), weak=bool(getattr(v.aval, "weak_type", False)))
            for v, name in zip(graph.outputs, self.names.results, strict=True)
        ]
        if results:
            function.result_attrs = ir.ArrayAttr.get([r.write() for r in results])

    def _home(self, value: TracedValue, homes: Homes) -> str | None:
        home = homes.values.get(value)
        return None if home is None else self.mesh(home)

    def _constant(self, constant: Constant, mesh: str | None) -> Argument:
        array = read_constant(constant.array, stored_type(constant.aval))
        dtype = _user_dtype(constant.aval)
        raw = array.tobytes()
        if len(raw) <= INLINE_LIMIT:
            return Argument(constant.name, dtype=dtype, mesh=mesh, value=raw.hex())
        digest = constant_name(raw)
        self.out.constants[digest] = raw
        return Argument(constant.name, dtype=dtype, mesh=mesh, constant=digest)

    def _unit(
        self, unit: Call | ExplicitMove | Group, operands: list[Any], ip: Any, function: str
    ) -> tuple[pw.CallOp | pw.TransferOp, str, str]:
        """Writes a call or a move; gives it with its computation and its mesh."""
        mesh = self.mesh(unit.mesh)
        if isinstance(unit, ExplicitMove):
            moved = pw.TransferOp.create(
                ip=ip,
                loc=self.at(unit.where, "moved"),
                operands=operands,
                results=[self.type_of(unit.output)],
                mesh=mesh,
                user=True,
                sharding=(Placed(mesh, unit.dims),),
            )
            return moved, "", mesh
        lowered = self.lowering.of(unit, function)
        if lowered.symbol not in self._results:
            self._results[lowered.symbol] = [self.type_of(v) for v in unit.outputs]
        name = unit.name if isinstance(unit, Group) else unit.callee.name
        call = pw.CallOp.create(
            ip=ip,
            loc=self.at(unit.where, _prefix(name)),
            operands=operands,
            results=self._results[lowered.symbol],
            callee=lowered.symbol,
            mesh=mesh,
            gathered=isinstance(unit, Group),
        )
        return call, lowered.symbol, mesh

    def mesh(self, mesh: SliceMesh) -> str:
        """The symbol of a mesh, made where it is first used."""
        if mesh not in self._meshes:
            slice_ = self.slice(mesh.slice)
            symbol = f"m{len(self._meshes)}"
            self._meshes[mesh] = symbol
            pw.MeshOp.create(
                ip=self.symbols_ip,
                loc=self.at(mesh.slice.where, symbol),
                sym_name=symbol,
                slice=slice_,
                axes=mesh.spec.axes,
                devices=mesh.spec.devices,
            )
        return self._meshes[mesh]

    def slice(self, virtual: VirtualSlice) -> str:
        if virtual.number not in self._slices:
            symbol = f"s{len(self._slices)}"
            self._slices[virtual.number] = symbol
            self.out.slices[symbol] = virtual
            near = self.slice(virtual.island) if isinstance(virtual.island, VirtualSlice) else None
            pw.SliceOp.create(
                ip=self.symbols_ip,
                loc=self.at(virtual.where, symbol),
                sym_name=symbol,
                devices=len(virtual.devices),
                prefer=virtual.prefer,
                kind=virtual.kind,
                near=near,
                pin=virtual.island if isinstance(virtual.island, str) else None,
                shape=virtual.topology,
            )
        return self._slices[virtual.number]

    def _number_slices(self) -> None:
        """Slices are numbered as the user made them, wherever they were first used: the first stage is s0."""
        names = {self._slices[number]: f"s{i}" for i, number in enumerate(sorted(self._slices))}
        if list(names) == list(names.values()):
            return
        operations = [op for op in self.module.body.operations if isinstance(op, (pw.SliceOp, pw.MeshOp))]
        slices = {op.sym_name: op for op in operations if isinstance(op, pw.SliceOp)}
        for old, new in reversed(names.items()):
            op, first = slices[old], self.module.body.operations[0]
            if op.operation != first.operation:
                op.operation.move_before(first.operation)
            op.sym_name, op.near = new, None if op.near is None else names[op.near]
            op.operation.location = self.at(self.out.slices[old].where, new)
        for op in operations:
            if isinstance(op, pw.MeshOp):
                op.slice = names[op.slice]
        self.out.slices = {new: self.out.slices[old] for old, new in names.items()}


@remembered_by_identity
def stored_type(aval: compat.Aval) -> ArrayType:
    """How a value is stored: keys as their data, float0 as booleans of the same shape."""
    if compat.is_key(aval):
        data = compat.key_data_aval(aval)
        return ArrayType(tuple(data.shape), str(data.dtype))
    dtype = str(aval.dtype)
    return ArrayType(tuple(aval.shape), dtype if is_stored_as_named(dtype) else "bool")


def _user_dtype(aval: compat.Aval) -> str | None:
    dtype = str(aval.dtype)
    if compat.is_key(aval) or not is_stored_as_named(dtype):
        return "float0" if "float0" in dtype or dtype.startswith("[") else dtype
    return None


def _prefix(name: str) -> str:
    """The name that printed values carry."""
    return re.sub(r"\W+", "_", name).strip("_") or "value"
