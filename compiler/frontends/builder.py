"""What a front end needs to make a program, whatever IR it comes from: calls of StableHLO over meshes on slices.

`ProgramBuilder` makes a module of phase `trace`; the driver compiles it from there. Symbols, types of results and the
order of the module are its own affair; computations that are equal are there once for each function. What does not fit
together is told by the verifier, at the line that the front end gave.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from pathways.compiler.frontends.called import CalledComputation as CalledComputation
from pathways.compiler.frontends.draft import ModuleDraft, printable_name
from pathways.compiler.frontends.draft import SliceSpec as SliceSpec
from pathways.compiler.frontends.draft import symbol_of as symbol_of
from pathways.dialect.diagnostics import Where
from pathways.dialect.dtypes import ArrayType, from_mlir
from pathways.dialect.ir import pw
from pathways.dialect.ir.flow import Flow, Node
from pathways.dialect.ir.program import INLINE_LIMIT, ORDERED, Argument, ProgramIR, constant_name
from pathways.dialect.ir.verify import verify
from pathways.dialect.mlir import Module, Value, func, ir
from pathways.dialect.phases import Phase
from pathways.dialect.plan.signature import PARAMETERS, Parameter, write_parameters
from pathways.dialect.sdy import Placed
from pathways.dialect.sharding import Dims, MeshSpec
from pathways.dialect.sources import Sources
from pathways.dialect.trees import Tree, write_tree

Taken: TypeAlias = Sequence[tuple[Argument, ArrayType]]
"""What a function takes: names, and what else is known, and the types in which values are stored. The program's own
may state how they lie on their meshes."""


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
        self._draft = ModuleDraft(self._symbol, where, sources or Sources("" if where is None else where.file))
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

    def finish(
        self, in_tree: Tree, out_tree: Tree, parameters: tuple[Parameter, ...] = (), *, ordered: bool = False
    ) -> Built:
        """The program as a module, when its functions have returned. `ordered`: no schedule changes its order.

        The trees hold its arguments and results.

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
            if ordered:
                draft.module.operation.attributes[ORDERED] = ir.UnitAttr.get()
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
        draft: ModuleDraft,
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
            shown = [draft.at(None, printable_name(a.name)) for a in self._taken]
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
        action: str | None = None,
        where: Where | None = None,
    ) -> list[Value]:
        """Runs a computation on a mesh; gives its results. `gathered`: its place is free, chosen by its data.

        `name` is what the call is called, if not as its computation; `action` what it does in a pipeline: `2F3`. Where
        a call says that, none is recognized. Raises PWC0702 and PWC0701 for a computation that is none.
        """
        draft = self._draft
        symbol, parsed = draft.callee(computation, self._symbol, where)
        with draft.here:
            op = pw.CallOp.create(
                ip=self._end,
                loc=draft.at(where, printable_name(name or computation.name)),
                operands=operands,
                results=parsed.results,
                callee=symbol,
                mesh=mesh,
                gathered=gathered,
                action=action,
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
