"""Builds the compiler's first IR for any front end. The IR of a program is a graph of calls of StableHLO modules, each
on a mesh of virtual devices. The JAX and MPMD front ends call it.

The builder chooses symbols, result types and the order of the module. It stores equal computations once per function.
The verifier reports parts that do not match, at the source line that the front end gave.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from pathways.compiler.frontends.called import CalledComputation as CalledComputation
from pathways.compiler.frontends.draft import ModuleDraft, printable_name
from pathways.compiler.frontends.draft import SliceSpec as SliceSpec
from pathways.compiler.frontends.draft import symbol_of as symbol_of
from pathways.dialect.diagnostics import PathwaysError, Where
from pathways.dialect.dtypes import ArrayType
from pathways.dialect.errors import InvalidIR
from pathways.dialect.ir.arguments import INLINE_LIMIT, Argument, FunctionSignature, constant_name
from pathways.dialect.ir.flow import Node, node_of
from pathways.dialect.ir.materialize import Contents
from pathways.dialect.ir.program import ORDERED, ProgramIR
from pathways.dialect.ir.records import CallRecord, CondRecord, NodeRecord, TransferRecord, WhileRecord
from pathways.dialect.ir.verify import verify
from pathways.dialect.mlir import Module, func, ir
from pathways.dialect.phases import Phase
from pathways.dialect.plan.signature import PARAMETERS, Parameter, write_parameters
from pathways.dialect.sdy import Placed
from pathways.dialect.sharding import Dims, MeshSpec
from pathways.dialect.sources import Sources
from pathways.dialect.trees import Tree, write_tree

Value: TypeAlias = int
"""A value of a function under construction. It is valid in that function only."""
_FUNCTION_BITS = 40
Taken: TypeAlias = Sequence[tuple[Argument, ArrayType]]
"""The parameters of a function: each argument's name and attributes, and the type in which its value is stored.

Arguments of the main function may also state their shardings.
"""


@dataclass(frozen=True)
class Built:
    """A verified program, its constants that are too large for the module, by digest, and its slices by symbol."""

    program: ProgramIR
    constants: dict[str, bytes]
    slices: dict[str, SliceSpec]

    @property
    def module(self) -> Module:
        return self.program.module


class ProgramBuilder:
    """Builds the IR of one program: meshes and constants, then the main function, then the finished module.

    `where` is the source line of the program. Operations without a line of their own get this line. `sources` names the
    files of source lines. By default, names are relative to the program's own file.
    """

    def __init__(self, name: str, platform: str, *, where: Where | None = None, sources: Sources | None = None) -> None:
        self._platform = platform
        self._symbol = symbol_of(name)
        self._draft = ModuleDraft(self._symbol, where, sources or Sources("" if where is None else where.file))
        self._constants: dict[str, bytes] = {}

    def mesh(self, slice_: SliceSpec, mesh: MeshSpec) -> str:
        """Returns the symbol of a mesh on a slice. Creates the mesh and the slice at their first use."""
        return self._draft.mesh(slice_, mesh)

    def constant(self, name: str, raw: bytes, *, dtype: str | None = None, mesh: str | None = None) -> Argument:
        """Returns an argument whose bytes are known. Bytes over `INLINE_LIMIT` are kept outside the module."""
        if len(raw) <= INLINE_LIMIT:
            return Argument(name, dtype=dtype, mesh=mesh, value=raw.hex())
        digest = constant_name(raw)
        self._constants[digest] = raw
        return Argument(name, dtype=dtype, mesh=mesh, constant=digest)

    def main(self, taken: Taken) -> "FunctionBuilder":
        """Begins the main function, which takes these arguments."""
        return FunctionBuilder(self._draft, self._symbol, "pw.program", taken, None)

    def finish(
        self, in_tree: Tree, out_tree: Tree, parameters: tuple[Parameter, ...] = (), *, ordered: bool = False
    ) -> Built:
        """Returns the program as a verified module. All its functions must have returned.

        `in_tree` and `out_tree` are the pytrees of its arguments and results. If `ordered`, no schedule changes its
        order.

        Raises PWC0701, with source lines, if parts of the program do not match.
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
        program = ProgramIR(draft.module, draft.functions)
        verify(program)
        return Built(program, self._constants, slices)


class FunctionBuilder:
    """Builds one function, the main function or a body: calls, transfers and control flow in order, then its return.

    `arguments` are the values that the function takes. Other operands are results of earlier methods. `where` is the
    user's source line.
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
        self._types = [type_ for _, type_ in taken]
        self._returned: list[int] = []
        self._nodes: list[Node] = []
        self._first = draft.begun << _FUNCTION_BITS
        """The first value of the function. Values of other functions are in other ranges."""
        draft.begun += 1
        with draft.here:
            at = draft.at(where, symbol)
            self._function: Any = func.FuncOp(symbol, ir.FunctionType.get([], []), ip=draft.before, loc=at)
            self._function.operation.attributes[kind] = ir.UnitAttr.get()
            self._block = self._function.operation.regions[0].blocks.append()
            inside = ir.InsertionPoint(self._function)
        self._outer = inside if kind == "pw.program" else draft.before
        draft.before = inside
        self.arguments: list[Value] = list(range(self._first, self._first + len(taken)))

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
        """Adds a call of a computation on a mesh, and returns its results.

        If `gathered`, the call is made of unplaced operations, and its data chose the mesh. `name` is the name of the
        call; by default it is the computation's name. `action` is the call's action in a pipeline, such as `2F3`. The
        compiler does not infer an action that is given here. Raises PWC0702 and PWC0701 if the computation is invalid.
        """
        draft = self._draft
        symbol, parsed = draft.callee(computation, self._symbol, where)
        at = draft.at(where, printable_name(name or computation.name))
        op = CallRecord(at, callee=symbol, mesh=mesh, gathered=gathered or None, action=action)
        return self._add(op, operands, parsed.types, where)

    def transfer(self, value: Value, mesh: str, dims: Dims | None = None, *, where: Where | None = None) -> Value:
        """Moves a value to a mesh, split as `dims` say. Without `dims`, the consumers' shardings decide the split."""
        sharding = None if dims is None else (Placed(mesh, dims),)
        op = TransferRecord(self._draft.at(where, "moved"), mesh=mesh, user=True, sharding=sharding)
        (number,) = self._numbers([value], op, where)
        return self._add(op, [value], [self._types[number]], where)[0]

    def body(self, name: str, taken: Taken, *, where: Where | None = None) -> "FunctionBuilder":
        """Begins a control-flow body. It must return before another body begins, and before it is used."""
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
        """Runs bodies depending on data, and returns results, one on each of `meshes`. All bodies take the same values.

        `cond`: the first operand is the number of the body to run. `while`: the second body runs as long as the first
        body returns true; the last operands are carried.
        """
        record = CondRecord if kind == "cond" else WhileRecord
        symbols = tuple(body._symbol for body in bodies)
        op = record(self._draft.at(where, kind), bodies=symbols, meshes=tuple(meshes))
        made = [bodies[-1]._types[v] for v in bodies[-1]._returned] if bodies else []
        return self._add(op, operands, made, where)

    def returns(
        self, values: Sequence[Value], results: Sequence[Argument], meshes: Iterable[str | None] | None = None
    ) -> None:
        """Ends the function: returned values, their names, and the meshes of arguments if `main` did not state them."""
        draft, arguments = self._draft, self._taken
        draft.before = self._outer
        if meshes is not None:
            arguments = [replace(a, mesh=m) for a, m in zip(arguments, meshes, strict=True)]
        with draft.here:
            end = func.ReturnOp([], ip=ir.InsertionPoint(self._block))
        self._returned = self._numbers(values, end, None)
        locations = [draft.at(None, printable_name(a.name)) for a in arguments]
        signature = FunctionSignature(arguments, results, locations, draft.here)
        draft.functions[self._symbol] = Contents(signature, self._types, self._nodes, self._returned)

    def _add(
        self, op: NodeRecord, operands: Sequence[Value], types: Sequence[ArrayType], where: Where | None
    ) -> list[Value]:
        """Adds a node and its results, and returns them."""
        start = len(self._types)
        made = range(start, start + len(types))
        self._nodes.append(node_of(len(self._nodes), op, self._numbers(operands, op, where), made))
        self._types += types
        return list(range(self._first + start, self._first + made.stop))

    def _numbers(self, values: Sequence[Value], op: Any, where: Where | None) -> list[int]:
        """Returns the numbers of values in this function. Raises PWC0701 if one belongs to another function."""
        first = self._first
        if values and not first <= min(values) <= max(values) < first + len(self._types):
            rule, have = "values of the function under construction", f"a value that @{self._symbol} does not make"
            problem = "takes a value of another function"
            raise PathwaysError(InvalidIR(op=op.OPERATION_NAME, problem=problem, have_=have, rule=rule, where=where))
        return [value - first for value in values] if first else list(values)
