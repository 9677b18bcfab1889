"""What a front end needs to make a program, whatever IR it comes from: calls of StableHLO over meshes on slices.

`ProgramBuilder` makes a module of phase `trace`; the driver compiles it from there. Symbols, types of results and the
order of the module are its own affair; computations that are equal are there once for each function. What does not fit
together is told by the verifier, at the line that the front end gave.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from pathways.compiler.frontends.called import CalledComputation as CalledComputation
from pathways.compiler.frontends.called import ParsedComputation, parse_called
from pathways.dialect.diagnostics import Where
from pathways.dialect.dtypes import ArrayType, from_mlir
from pathways.dialect.ir import pw
from pathways.dialect.ir.flow import Flow, FlowParts, Node
from pathways.dialect.ir.program import INLINE_LIMIT, Argument, ProgramIR, constant_name
from pathways.dialect.ir.verify import verify
from pathways.dialect.mlir import Module, Value, func, ir, location, make_context
from pathways.dialect.phases import Phase
from pathways.dialect.plan.signature import PARAMETERS, Parameter, write_parameters
from pathways.dialect.sdy import Placed
from pathways.dialect.sharding import Dims, MeshSpec
from pathways.dialect.sources import Sources, remember_sources
from pathways.dialect.trees import Tree, write_tree


@dataclass(frozen=True)
class SliceSpec:
    """Devices with fast links that a program asks for. `number` tells slices apart; their names are in its order.

    `near` is a slice whose island it shares, `pin` the name of its island; the others are as of `pw.slice`.
    """

    number: int
    devices: int
    prefer: str | None = None
    kind: str | None = None
    near: "SliceSpec | None" = None
    pin: str | None = None
    shape: tuple[int, ...] | None = None
    where: Where | None = None


Taken: TypeAlias = Sequence[tuple[Argument, ArrayType]]
"""What a function takes: names, and what else is known, and the types in which values are stored."""


@dataclass(frozen=True)
class Built:
    """The program, verified; constants too large for its module by digest; and the slices by symbol."""

    program: ProgramIR
    constants: dict[str, bytes]
    slices: dict[str, SliceSpec]

    @property
    def module(self) -> Module:
        return self.program.module


class ProgramBuilder:
    """A program on its way to IR: it has meshes and constants, a main function, and an end.

    `where` is the program's line, and that of all for which a front end gives none. `sources` names the files of lines;
    default: from the program's own file.
    """

    def __init__(self, name: str, platform: str, *, where: Where | None = None, sources: Sources | None = None) -> None:
        self._platform = platform
        self._symbol = symbol_of(name)
        self._draft = _Draft(self._symbol, where, sources or Sources("" if where is None else where.file))
        self._constants: dict[str, bytes] = {}

    def mesh(self, slice_: SliceSpec, mesh: MeshSpec) -> str:
        """The symbol of a mesh on a slice; both are made where they are first used."""
        return self._draft.mesh(slice_, mesh)

    def constant(self, name: str, raw: bytes, *, dtype: str | None = None, mesh: str | None = None) -> Argument:
        """An argument whose bytes are known; large ones lie beside the module."""
        if len(raw) <= INLINE_LIMIT:
            return Argument(name, dtype=dtype, mesh=mesh, value=raw.hex())
        digest = constant_name(raw)
        self._constants[digest] = raw
        return Argument(name, dtype=dtype, mesh=mesh, constant=digest)

    def main(self, taken: Taken) -> "FunctionBuilder":
        """Begins the program's own function, which takes these arguments."""
        return FunctionBuilder(self._draft, self._symbol, "pw.program", taken, None)

    def finish(self, in_tree: Tree, out_tree: Tree, parameters: tuple[Parameter, ...] = ()) -> Built:
        """The program as a module, when its functions have returned; the trees hold its arguments and results.

        Raises PWC0701, with lines, for what does not fit together.
        """
        draft = self._draft
        texts = {
            "pw.phase": Phase.TRACE.value,
            "pw.platform": self._platform,
            "pw.in_tree": write_tree(in_tree),
            "pw.out_tree": write_tree(out_tree),
            PARAMETERS: write_parameters(parameters),
        }
        with draft.here:
            for name, text in texts.items():
                draft.module.operation.attributes[name] = ir.StringAttr.get(text)
            slices = draft.number_slices()
            draft.insert_computations()
        program = ProgramIR(draft.module)
        if draft.flow is not None:
            program.flow = Flow(program, *draft.flow)
            program.flow.types = draft.types
        verify(program)
        return Built(program, self._constants, slices)


class FunctionBuilder:
    """A function on its way, the program's own or a body: calls, moves and control flow in their order, and an end.

    `arguments` are the values that it takes. Values are what other verbs gave; `where` is the user's line.
    """

    def __init__(
        self,
        draft: "_Draft",
        symbol: str,
        kind: str,
        taken: Taken,
        where: Where | None,
    ) -> None:
        self._draft = draft
        self._symbol = symbol
        self._taken = [argument for argument, _ in taken]
        self._made: list[Any] = []
        """The types of its results, once it has returned."""
        with draft.here:
            types = [draft.type_of(t) for _, t in taken]
            at = draft.at(where, symbol)
            self._function: Any = func.FuncOp(symbol, ir.FunctionType.get(types, []), ip=draft.before, loc=at)
            self._function.operation.attributes[kind] = ir.UnitAttr.get()
            shown = [draft.at(None, _shown(a.name)) for a in self._taken]
            block = self._function.operation.regions[0].blocks.append(*types, arg_locs=shown)
            self._end = ir.InsertionPoint(block)
            inside = ir.InsertionPoint(self._function)
        self._main = kind == "pw.program"
        self._outer = inside if self._main else draft.before
        draft.before = inside
        self.arguments: list[Value] = list(block.arguments)
        self._values = list(self.arguments)
        self._types = [type_ for _, type_ in taken]
        self._numbers = {id(value): i for i, value in enumerate(self._values)}
        """Values by identity, which `_values` keeps: to hash one of MLIR takes longer."""
        self._nodes: list[Node] = []
        self._own = True
        """Whether it uses no values but its own, so that its dataflow is known: reading it off MLIR takes longer."""

    def call(
        self,
        computation: CalledComputation,
        operands: Sequence[Value],
        mesh: str,
        *,
        name: str = "",
        gathered: bool = False,
        where: Where | None = None,
    ) -> list[Value]:
        """Runs a computation on a mesh; gives its results. `gathered`: its place is free, chosen by its data.

        `name` is what the call is called, if not as its computation. Raises PWC0702 and PWC0701 for one that is none.
        """
        draft = self._draft
        symbol, parsed = draft.callee(computation, self._symbol, where)
        with draft.here:
            op = pw.CallOp.create(
                ip=self._end,
                loc=draft.at(where, _shown(name or computation.name)),
                operands=operands,
                results=parsed.results,
                callee=symbol,
                mesh=mesh,
                gathered=gathered,
            )
        return self._add(op, operands, parsed.types, symbol, mesh)

    def transfer(self, value: Value, mesh: str, dims: Dims | None = None, *, where: Where | None = None) -> Value:
        """Moves a value to a mesh, split as `dims` say; without them, as those who take it want it."""
        draft = self._draft
        with draft.here:
            op = pw.TransferOp.create(
                ip=self._end,
                loc=draft.at(where, "moved"),
                operands=[value],
                results=[value.type],
                mesh=mesh,
                user=True,
                sharding=None if dims is None else (Placed(mesh, dims),),
            )
        return self._add(op, [value], [from_mlir(value.type)], "", mesh)[0]

    def body(self, name: str, taken: Taken, *, where: Where | None = None) -> "FunctionBuilder":
        """Begins a body of control flow in this function; it ends before another begins, and before it is used."""
        draft = self._draft
        return FunctionBuilder(draft, draft.unique(name), "pw.body", taken, where)

    def branch(
        self,
        kind: Literal["cond", "while"],
        operands: Sequence[Value],
        bodies: "Sequence[FunctionBuilder]",
        meshes: Sequence[str],
        *,
        where: Where | None = None,
    ) -> list[Value]:
        """Runs bodies as data say; gives results, one on each of `meshes`. All bodies take the same values.

        `cond`: the first operand is the number of the body to run. `while`: the second body runs for as long as the
        first says so; the last operands are carried.
        """
        draft = self._draft
        cls = pw.CondOp if kind == "cond" else pw.WhileOp
        with draft.here:
            op = cls.create(
                ip=self._end,
                loc=draft.at(where, kind),
                operands=operands,
                results=bodies[-1]._made if bodies else [],
                bodies=tuple(body._symbol for body in bodies),
                meshes=tuple(meshes),
            )
        return self._add(op, operands, [from_mlir(v.type) for v in op.results], "", "")

    def returns(
        self, values: Sequence[Value], results: Sequence[Argument], meshes: Iterable[str | None] | None = None
    ) -> None:
        """Ends the function: what it returns, what that is called, and, if not said before, where arguments live."""
        draft, function = self._draft, self._function
        draft.before = self._outer
        self._made = [value.type for value in values]
        arguments = self._taken
        if meshes is not None:
            arguments = [replace(a, mesh=m) for a, m in zip(arguments, meshes, strict=True)]
        with draft.here:
            func.ReturnOp(values, ip=self._end)
            type_ = ir.FunctionType.get(function.type.inputs, self._made)
            function.operation.attributes["function_type"] = ir.TypeAttr.get(type_)
            function.arg_attrs = ir.ArrayAttr.get([a.write() for a in arguments])
            if results:
                function.result_attrs = ir.ArrayAttr.get([r.write() for r in results])
        returned = self._numbered(values)
        if self._main and self._own:
            draft.flow, draft.types = (self._values, self._nodes, list(returned)), self._types

    def _add(
        self, op: Any, operands: Sequence[Value], types: Sequence[ArrayType], callee: str, mesh: str
    ) -> list[Value]:
        """Notes an op and the types of its results in the dataflow; gives its results."""
        taken, results = self._numbered(operands), list(op.results)
        made = range(len(self._values), len(self._values) + len(results))
        self._values += results
        self._types += types
        self._numbers.update(zip(map(id, results), made, strict=True))
        self._nodes.append(Node(len(self._nodes), op, callee, mesh, taken, made))
        return results

    def _numbered(self, values: Sequence[Value]) -> tuple[int, ...]:
        numbers = self._numbers
        found = tuple([numbers.get(id(value), -1) for value in values])
        self._own = self._own and -1 not in found
        return found


class _Draft:
    """A module on its way: what all functions of a program share."""

    def __init__(self, symbol: str, where: Where | None, sources: Sources) -> None:
        self.context = make_context()
        self.here = ir.Location.unknown(self.context)
        self.module: Module = ir.Module.create(self.here)
        self.before: Any = ir.InsertionPoint(self.module.body)
        """Where symbols are made: before the innermost function that has not returned."""
        self.flow: FlowParts | None = None
        """The dataflow of the program, once it has returned, where it is known."""
        self.types: list[ArrayType] = []
        """The types of its values."""
        self._where, self._sources = where, sources
        self._slices: dict[SliceSpec, str] = {}
        self._meshes: dict[tuple[SliceSpec, MeshSpec], str] = {}
        self._types: dict[ArrayType, Any] = {}
        self._symbols = {symbol}
        self._parsed: dict[str | bytes, ParsedComputation] = {}
        self._called: dict[tuple[str, str], tuple[str, ParsedComputation]] = {}
        remember_sources(self.context, sources)

    def at(self, where: Where | None, name: str) -> Any:
        """`name` at a line of the user's; at the program's where there is none."""
        for place in (where, self._where):
            file = None if place is None else self._sources.stored(place.file)
            if place is not None and file is not None:
                return location(Where(file, place.line, place.function), name, self.context)
        return location(None, name, self.context)

    def type_of(self, type_: ArrayType) -> Any:
        if type_ not in self._types:
            self._types[type_] = ir.Type.parse(type_.mlir, self.context)
        return self._types[type_]

    def unique(self, name: str) -> str:
        """A symbol that nothing else has."""
        symbol = symbol_of(name)
        taken, number = symbol, 0
        while taken in self._symbols:
            number += 1
            taken = f"{symbol}_{number}"
        self._symbols.add(taken)
        return taken

    def mesh(self, slice_: SliceSpec, mesh: MeshSpec) -> str:
        key = slice_, mesh
        if key not in self._meshes:
            owner = self._slice(slice_)
            symbol = self._meshes[key] = f"m{len(self._meshes)}"
            at = self.at(slice_.where, symbol)
            with self.here:
                pw.MeshOp.create(
                    ip=self.before, loc=at, sym_name=symbol, slice=owner, axes=mesh.axes, devices=mesh.devices
                )
        return self._meshes[key]

    def _slice(self, spec: SliceSpec) -> str:
        if spec not in self._slices:
            symbol = self._slices[spec] = f"s{len(self._slices)}"
            near = None if spec.near is None else self._slice(spec.near)
            with self.here:
                pw.SliceOp.create(
                    ip=self.before,
                    loc=self.at(spec.where, symbol),
                    sym_name=symbol,
                    devices=spec.devices,
                    prefer=spec.prefer,
                    kind=spec.kind,
                    near=near,
                    pin=spec.pin,
                    shape=spec.shape,
                )
        return self._slices[spec]

    def number_slices(self) -> dict[str, SliceSpec]:
        """Slices are named in the order of their numbers, wherever they were first used: the first stage is s0."""
        specs = {f"s{i}": spec for i, spec in enumerate(sorted(self._slices, key=lambda s: s.number))}
        names = {self._slices[spec]: new for new, spec in specs.items()}
        if list(names) == list(names.values()):
            return specs
        operations = [op for op in self.module.body.operations if isinstance(op, (pw.SliceOp, pw.MeshOp))]
        slices = {op.sym_name: op for op in operations if isinstance(op, pw.SliceOp)}
        for old, new in reversed(names.items()):
            op, first = slices[old], self.module.body.operations[0]
            if op.operation != first.operation:
                op.operation.move_before(first.operation)
            op.sym_name, op.near = new, None if op.near is None else names[op.near]
            op.operation.location = self.at(specs[new].where, new)
        for op in operations:
            if isinstance(op, pw.MeshOp):
                op.slice = names[op.slice]
        return specs

    def callee(
        self, computation: CalledComputation, function: str, where: Where | None
    ) -> tuple[str, ParsedComputation]:
        """The computation as this function calls it: each function has its own."""
        source = computation.source
        if source not in self._parsed:
            self._parsed[source] = parse_called(computation, where, self.context, self._sources)
        parsed = self._parsed[source]
        key = function, parsed.digest
        if key not in self._called:
            self._called[key] = self.unique(computation.name), parsed
        return self._called[key]

    def insert_computations(self) -> None:
        for symbol, parsed in self._called.values():
            nested = parsed.module.operation.clone(self.before)
            nested.attributes["sym_name"] = ir.StringAttr.get(symbol)


def symbol_of(name: str) -> str:
    """A readable symbol: `<lambda>` becomes `lambda`. `s0` and `m0` are slices and meshes."""
    readable = re.sub(r"\W+", "_", name).strip("_") or "computation"
    return f"{readable}_fn" if re.fullmatch(r"[sm]\d+", readable) else readable


def _shown(name: str) -> str:
    """The name that printed values carry."""
    return re.sub(r"\W+", "_", name).strip("_") or "value"
