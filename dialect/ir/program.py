"""Holds a program: its slices, meshes, islands and computations as MLIR, and each function as records (`flow.py`).
Passes and front ends use it.

A function has one of three forms. A module from outside has *ops*; the first use of `flow` reads them. Then the
function has *records*, which passes change, and its op in the module may be out of date. `module` writes all functions
as ops and *links* the records to them: a change of an op is visible in its record, and the reverse. The pass manager
ends the links before the next pass (`take_back`), which reads the ops again.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from pathways.dialect.diagnostics import InternalError, Where
from pathways.dialect.ir import pw
from pathways.dialect.ir.arguments import Argument, FunctionSignature
from pathways.dialect.ir.flow import Flow
from pathways.dialect.ir.materialize import Contents, read_ends, read_function, write_anew, write_function
from pathways.dialect.ir.records import ControlFlowRecord, NodeRecord
from pathways.dialect.mlir import Module, Operation, bytecode, ir, parse, where_of
from pathways.dialect.phases import Phase
from pathways.dialect.sdy import Placed
from pathways.dialect.sharding import MeshSpec, Sharding
from pathways.dialect.symbols import free_symbol

ORDERED = "pw.ordered"
"""The attribute of a module whose order of calls is fixed: no schedule changes it."""
PER_DEVICE_OF = "pw.per_device_of"
"""Marks a module for one device, and names the computation whose work on one device it does."""


class UnwrittenStreams(Protocol):
    """Instruction streams that a pass has planned. They become ops when the module is printed or changed."""

    def write(self, program: "ProgramIR") -> None:
        """Writes the `pw.plan` ops of all functions. `ProgramIR.plans` then has them."""
        ...


class ProgramIR:
    """A program in a module. `built` are the contents of its functions that are not in the module, by symbol."""

    def __init__(self, module: Module, built: Mapping[str, Contents] | None = None) -> None:
        self.base = module
        """The module, in which functions may be out of date, and which lacks `unwritten`."""
        self.unwritten: UnwrittenStreams | None = None
        """The streams of all functions, from the pass that plans them until their ops may be changed."""
        self._is_written = False
        self.whole: ProgramIR = self
        """The program that contains this body. For the main program: itself."""
        self.is_handed_out = False
        """Whether other code may change the ops of the module."""
        self.is_verified = False
        """Whether all rules were checked after the last change."""
        self.context: Any = module.context
        self.slices: dict[str, pw.SliceOp] = {}
        self.meshes: dict[str, pw.MeshOp] = {}
        self.islands: dict[str, pw.IslandOp] = {}
        self._plans: dict[str, pw.PlanOp] = {}
        self.computations: dict[str, Operation] = {}
        self.per_device: dict[str, Operation] = {}
        """The module for one device of each computation whose devices do not communicate, by computation."""
        self.bodies: dict[str, ProgramIR] = {}
        """The functions that control flow runs, as programs of their own; inner ones first."""
        self._specs: dict[str, MeshSpec] = {}
        self._slices: dict[str, str] = {}
        self._func: Any = None
        self._was_linked = False
        """Whether other code may hold ops of the function: they were handed out since they were written."""
        self.detached: list[Operation] = []
        """Former ops of functions, kept alive because other code may hold them or their values."""
        self._forget()
        bodies: list[Any] = []
        plans: list[pw.PlanOp] = []
        for op in module.body.operations:
            if isinstance(op, pw.PlanOp):
                plans.append(op)
            elif op.operation.name == "func.func" and "pw.body" in op.operation.attributes:
                bodies.append(op)
            else:
                self._read(op)
        built = built or {}
        if self._func is not None and self.name in built:
            self._fill(built[self.name])
        for op in bodies:
            body = BodyIR(self, op, built)
            self.bodies[body.name] = body
        for op in plans:
            self.bodies.get(op.body or "", self).add_plan(op)

    def _read(self, op: Any) -> None:
        match op:
            case pw.SliceOp():
                self.slices[op.sym_name] = op
            case pw.MeshOp():
                self.meshes[op.sym_name] = op
            case pw.IslandOp():
                self.islands[op.name] = op
            case _ if op.operation.name == "builtin.module":
                attributes = op.operation.attributes
                if PER_DEVICE_OF in attributes:
                    self.per_device[attributes[PER_DEVICE_OF].value] = op.operation
                else:
                    self.computations[attributes["sym_name"].value] = op.operation
            case _ if op.operation.name == "func.func" and "pw.program" in op.operation.attributes:
                self._func = op
            case _:
                pass

    def _forget(self) -> None:
        """Drops the records: the ops are read again."""
        self._flow: Flow | None = None
        self._signature: FunctionSignature | None = None
        self._is_linked = False

    def _fill(self, contents: Contents) -> None:
        self._signature = contents.signature
        self._flow = Flow(self, contents.types, contents.nodes, contents.returned)

    def _records(self) -> tuple[FunctionSignature, Flow]:
        """Returns signature and flow. Reads the ops at first use."""
        signature, flow = self._signature, self._flow
        if signature is None or flow is None:
            contents, operations = read_function(self._func)
            self._fill(contents)
            if self.whole.is_handed_out:
                self._link(operations)
            return self._records()
        return signature, flow

    def _write(self) -> list[Operation]:
        """Writes the records to the op of the function. Returns the op of each node."""
        signature, flow = self._records()
        contents = Contents(signature, flow.types, flow.nodes, flow.returned)
        if not self._was_linked or self._is_linked:
            return write_function(self._func, contents)
        self.whole.detached.append(self._func.operation)
        self._was_linked, (self._func, operations) = False, write_anew(self._func, contents)
        self.whole.detached[-1].detach_from_parent()
        return operations

    def _link(self, operations: Sequence[Operation]) -> None:
        for node, operation in zip(self.flow.nodes, operations, strict=True):
            node.op.link(operation)
        self._is_linked = True

    @property
    def has_ops(self) -> bool:
        """Whether the op of the function in the module is up to date."""
        return self._flow is None or self._is_linked

    def link(self) -> None:
        """Writes all functions as ops, and links their records to the ops until `take_back`."""
        self.whole.is_handed_out = True
        self.whole.is_verified = False
        for function in self.functions:
            if not function.has_ops:
                function._link(function._write())
            function._was_linked = True

    def take_back(self) -> None:
        """Ends the links. The next use of a function reads its op again."""
        self.whole.is_handed_out = False
        for function in self.functions:
            if function._is_linked:
                function._forget()

    @property
    def module(self) -> Module:
        """The whole module, which the caller may change. From then on the plan is read from the ops."""
        self.write_streams()
        self.link()
        return self.base

    def read_module(self) -> Module:
        """Returns the whole module, to read it only."""
        for function in self.functions:
            if not function.has_ops:
                function._write()
        self.whole._write_streams()
        return self.base

    def write_streams(self) -> None:
        """Writes planned streams as ops, which may be changed from then on."""
        self.whole._write_streams()
        self.whole.unwritten = None

    def _write_streams(self) -> None:
        if self.unwritten is not None and not self._is_written:
            self._is_written = True
            self.unwritten.write(self)

    def copy(self) -> "ProgramIR":
        """Returns a program with the same content that shares nothing with this one but the context."""
        if self.is_handed_out or self.unwritten is not None:
            return ProgramIR(parse(bytecode(self.read_module().operation), self.context))
        built = {f.name: f._copied() for f in self.functions if not f.has_ops}
        return ProgramIR(parse(bytecode(self.base.operation), self.context), built)

    def _copied(self) -> Contents:
        signature, flow = self._records()
        return Contents(signature, list(flow.types), [node.copy() for node in flow.nodes], list(flow.returned))

    @property
    def plans(self) -> Mapping[str, pw.PlanOp]:
        """The stream of each island that has values of this function, from phase `plan` on, as ops."""
        self.write_streams()
        return self._plans

    def add_plan(self, plan: pw.PlanOp) -> None:
        self._plans[plan.island] = plan

    @property
    def attributes(self) -> Any:
        """The attributes of the module."""
        return self.base.operation.attributes

    @property
    def functions(self) -> "list[ProgramIR]":
        """The bodies, each after those inside it, and the program itself."""
        return [*self.bodies.values(), self]

    def bodies_of(self, op: ControlFlowRecord) -> "list[ProgramIR]":
        return [self.bodies[symbol] for symbol in op.bodies]

    @property
    def flow(self) -> Flow:
        """The nodes and values of the function."""
        return self._records()[1]

    @flow.setter
    def flow(self, flow: Flow) -> None:
        self._records()
        self._flow = flow
        if self._is_linked:
            self._link(self._write())
        else:
            for node in flow:
                node.op.unlink()

    def changed(self) -> None:
        """Updates what depends on the nodes, after a pass has changed them."""
        if self._is_linked:
            self._forget()
        elif self._flow is not None:
            self._flow.refresh()

    @property
    def func(self) -> Any:
        """The op of the function. As `NodeRecord.operation`, it writes the whole program as ops."""
        self.link()
        return self._op

    @property
    def _op(self) -> Any:
        if self._func is None:
            raise InternalError("the module has no pw.program function")
        return self._func

    def before(self) -> Any:
        """Returns the insertion point before the function, where its computations are."""
        return ir.InsertionPoint(self._op.operation)

    @property
    def where(self) -> Where | None:
        """The user's line of the function."""
        return where_of(self._op.operation)

    @property
    def operation(self) -> Operation:
        """The op of the function, as `func`, for messages."""
        return self.func.operation

    @property
    def has_program(self) -> bool:
        return self._func is not None

    @property
    def name(self) -> str:
        return self._op.operation.attributes["sym_name"].value

    @property
    def phase(self) -> Phase:
        return Phase(self.attributes["pw.phase"].value)

    @phase.setter
    def phase(self, phase: Phase) -> None:
        self.attributes["pw.phase"] = ir.StringAttr.get(phase.value, self.context)

    @property
    def ordered(self) -> bool:
        """Whether the order of the calls is fixed: no schedule changes it."""
        return ORDERED in self.attributes

    @property
    def platform(self) -> str:
        return self.attributes["pw.platform"].value

    @property
    def signature(self) -> FunctionSignature:
        signature, _ = self._records()
        return read_ends(self._func) if self._is_linked else signature

    @signature.setter
    def signature(self, signature: FunctionSignature) -> None:
        _, flow = self._records()
        self._signature = signature
        flow.forget_places()
        if self._is_linked:
            with self.context:
                for key, attribute in signature.attributes().items():
                    self._func.operation.attributes[key] = attribute

    @property
    def arguments(self) -> list[Argument]:
        return list(self.signature.arguments)

    @arguments.setter
    def arguments(self, arguments: list[Argument]) -> None:
        self.signature = self.signature.replaced(arguments)

    @property
    def results(self) -> list[Argument]:
        return list(self.signature.results)

    @property
    def inputs(self) -> list[int]:
        """The numbers of the arguments that a caller passes, without constants."""
        return [i for i, argument in enumerate(self.arguments) if not argument.is_constant]

    def nodes(self) -> Iterator[NodeRecord]:
        """Yields calls, transfers and control flow, in program order."""
        return (node.op for node in self.flow)

    def calls(self) -> Iterator[Any]:
        """Yields the calls, in program order."""
        return (node.op for node in self.flow.calls())

    def mesh(self, symbol: str) -> MeshSpec:
        if symbol not in self._specs:
            op = self.meshes[symbol]
            self._specs[symbol] = MeshSpec(op.axes, op.devices)
        return self._specs[symbol]

    def slice_of(self, mesh: str) -> str:
        if mesh not in self._slices:
            self._slices[mesh] = self.meshes[mesh].slice
        return self._slices[mesh]

    def island_of(self, mesh: str) -> str:
        """Returns the island of a mesh, from phase `place` on."""
        return self.slices[self.slice_of(mesh)].island or ""

    def sharding(self, placed: Placed) -> Sharding:
        return placed.on(self.mesh(placed.mesh))

    def unique_symbol(self, name: str) -> str:
        """Returns the first of `name`, `name_1`, ... that no computation of the module has."""
        symbols = {op.attributes["sym_name"].value for op in self.per_device.values()}
        functions = self.functions
        return free_symbol(name, lambda n: n in symbols or any(n in f.computations for f in functions))


class BodyIR(ProgramIR):
    """A function that control flow runs: a program with its own computations, on the slices and meshes of the whole."""

    def __init__(self, whole: ProgramIR, function: Any, built: Mapping[str, Contents]) -> None:
        self.base, self.context = whole.base, whole.context
        self.slices, self.meshes, self.islands = whole.slices, whole.meshes, whole.islands
        self.per_device = whole.per_device
        self.whole, self.bodies = whole, whole.bodies
        self._plans: dict[str, pw.PlanOp] = {}
        self._specs: dict[str, MeshSpec] = {}
        self._slices: dict[str, str] = {}
        self._func, self._was_linked = function, False
        self._forget()
        if self.name in built:
            self._fill(built[self.name])
        called = {node.callee for node in self.flow.calls()}
        self.computations = {s: whole.computations.pop(s) for s in [*whole.computations] if s in called}

    @property
    def functions(self) -> list[ProgramIR]:
        return self.whole.functions
