"""Reads and writes the program in an MLIR module: symbols, calls, arguments, results. Passes and front ends use it.

Attributes of the program's arguments (`pw.program` func.func):

| attribute | meaning |
|---|---|
| `pw.name` | parameter name and key path, `params['w']`; of a constant, a readable form |
| `pw.dtype` | the element type that the user sees, where it is not the stored one: `key<fry>`, `float0` |
| `pw.weak` | the type is weak (a Python number) |
| `pw.mesh` | the mesh where the value lives |
| `pw.sharding` | its sharding there (the user's, or from phase `shard`; of a body's only from there) |
| `pw.donate` | the caller gives it up |
| `pw.piece` | it is one buffer of an array in several: `[name, axis, start, size of the axis]`, as JSON |
| `pw.value` | a constant of at most 1 KiB: its raw bytes in hexadecimal |
| `pw.constant` | a larger constant: the digest under which its bytes lie beside the module |

Results carry `pw.name`, `pw.dtype`, `pw.weak` and `pw.piece`. The same attributes are on bodies (`pw.body`), where
`pw.donate` says that a loop may overwrite what it carries.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from pathways.dialect.diagnostics import InternalError
from pathways.dialect.dtypes import ArrayType, from_mlir
from pathways.dialect.ir import pw
from pathways.dialect.ir.flow import Flow, read_flow
from pathways.dialect.memo import remembered
from pathways.dialect.mlir import Attribute, Module, Operation, Value, ir
from pathways.dialect.phases import Phase
from pathways.dialect.pieces import LeafPiece, read_piece, write_piece
from pathways.dialect.sdy import Placed, read_sharding, write_sharding
from pathways.dialect.sharding import MeshSpec, Sharding
from pathways.dialect.symbols import free_symbol

ORDERED = "pw.ordered"
"""The attribute of a module whose order of calls is fixed: no schedule changes it."""
INLINE_LIMIT = 1024
"""The largest constant, in bytes, that is stored in the IR itself."""


def constant_name(raw: bytes) -> str:
    """Returns the name of a constant that is stored outside the module."""
    return hashlib.sha256(raw).hexdigest()[:16]


@dataclass(frozen=True)
class Argument:
    """The attributes of one argument or result of the program."""

    name: str
    dtype: str | None = None
    weak: bool = False
    mesh: str | None = None
    sharding: Placed | None = None
    donate: bool = False
    value: str | None = None
    constant: str | None = None
    piece: LeafPiece | None = None

    @property
    def is_constant(self) -> bool:
        return self.value is not None or self.constant is not None

    def shown(self, number: int) -> str:
        """Returns its name for a message, or its number if it has no name."""
        return self.name or f"argument {number}"

    def write(self) -> Attribute:
        """Converts it to a dictionary attribute. Call it inside an MLIR context."""
        written: dict[str, Any] = {"pw.name": ir.StringAttr.get(self.name)}
        piece = None if self.piece is None else write_piece(self.piece)
        for key, text in (("dtype", self.dtype), ("value", self.value), ("constant", self.constant), ("piece", piece)):
            if text is not None:
                written[f"pw.{key}"] = ir.StringAttr.get(text)
        for key, flag in (("weak", self.weak), ("donate", self.donate)):
            if flag:
                written[f"pw.{key}"] = ir.UnitAttr.get()
        if self.mesh is not None:
            written["pw.mesh"] = ir.FlatSymbolRefAttr.get(self.mesh)
        if self.sharding is not None:
            written["pw.sharding"] = write_sharding(self.sharding)
        return ir.DictAttr.get(written)


@remembered
def _read_argument(attribute: Any) -> Argument:
    def get(key: str) -> Any:
        return attribute[f"pw.{key}"] if f"pw.{key}" in attribute else None  # noqa: SIM401

    def text(key: str) -> str | None:
        found = get(key)
        return None if found is None else found.value

    sharding = get("sharding")
    return Argument(
        name=text("name") or "",
        dtype=text("dtype"),
        weak=get("weak") is not None,
        mesh=text("mesh"),
        sharding=None if sharding is None else read_sharding(sharding),
        donate=get("donate") is not None,
        value=text("value"),
        constant=text("constant"),
        piece=None if (piece := text("piece")) is None else read_piece(piece),
    )


PER_DEVICE_OF = "pw.per_device_of"
"""Marks a module for one device, and names the computation whose work on one device it does."""


class UnwrittenStreams(Protocol):
    """Instruction streams that a pass has planned. They become ops when the module is printed or changed."""

    def write(self, program: "ProgramIR") -> None:
        """Writes the `pw.plan` ops of all functions. `ProgramIR.plans` then has them."""
        ...


class ProgramIR:
    """A view of a module. It is cheap to make. Its only state are the symbol tables that it read, and the instruction
    streams that are not yet ops.
    """

    def __init__(self, module: Module) -> None:
        self.base = module
        """The module without `unwritten`. Only code that reads no streams may use it."""
        self.unwritten: UnwrittenStreams | None = None
        """The streams of all functions, from the pass that plans them until their ops may be changed."""
        self._is_written = False
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
        self._flow: Flow | None = None
        bodies: list[Any] = []
        plans: list[pw.PlanOp] = []
        for op in module.body.operations:
            if isinstance(op, pw.PlanOp):
                plans.append(op)
            elif op.operation.name == "func.func" and "pw.body" in op.operation.attributes:
                bodies.append(op)
            else:
                self._read(op)
        for op in bodies:
            body = BodyIR(self, op)
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

    @property
    def module(self) -> Module:
        """The whole module. From then on the plan is read from the ops, since they may be changed."""
        module = self.read_module()
        self.unwritten = None
        return module

    def read_module(self) -> Module:
        """Returns the whole module, to read it only."""
        if self.unwritten is not None and not self._is_written:
            self._is_written = True
            self.unwritten.write(self)
        return self.base

    @property
    def plans(self) -> Mapping[str, pw.PlanOp]:
        """The stream of each island that has values of this function, from phase `plan` on. Like `module`, this drops
        the streams that are not ops.
        """
        _ = self.module
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

    def bodies_of(self, op: pw.ControlFlowOp) -> "list[ProgramIR]":
        return [self.bodies[symbol] for symbol in op.bodies]

    @property
    def flow(self) -> Flow:
        """The dataflow as numbers, a snapshot. A pass that changes the program must call `changed`."""
        if self._flow is None:
            self._flow = read_flow(self)
        return self._flow

    @flow.setter
    def flow(self, flow: Flow) -> None:
        self._flow = flow

    def changed(self) -> None:
        """Drops the snapshot `flow`, after a pass has changed calls, transfers or arguments."""
        self._flow = None

    @property
    def func(self) -> Any:
        if self._func is None:
            raise InternalError("the module has no pw.program function")
        return self._func

    @property
    def has_program(self) -> bool:
        return self._func is not None

    @property
    def name(self) -> str:
        return self.func.operation.attributes["sym_name"].value

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
    def block(self) -> Any:
        return self.func.operation.regions[0].blocks[0]

    @property
    def arguments(self) -> list[Argument]:
        return [_read_argument(a) for a in described(self.func, "arg_attrs", len(self.block.arguments))]

    @arguments.setter
    def arguments(self, arguments: list[Argument]) -> None:
        with self.context:
            self.func.arg_attrs = ir.ArrayAttr.get([a.write() for a in arguments])

    @property
    def results(self) -> list[Argument]:
        if not self.returned:
            return []
        return [_read_argument(a) for a in described(self.func, "res_attrs", len(self.returned))]

    @property
    def inputs(self) -> list[int]:
        """The numbers of the arguments that a caller passes, without constants."""
        return [i for i, argument in enumerate(self.arguments) if not argument.is_constant]

    @property
    def returned(self) -> list[Value]:
        """The values that the program returns, in order."""
        operations = self.block.operations
        return list(operations[len(operations) - 1].operation.operands)

    def nodes(self) -> Iterator[pw.CallOp | pw.TransferOp | pw.ControlFlowOp]:
        """Yields calls, transfers and control flow, in program order."""
        for op in self.block.operations:
            if isinstance(op, pw.CallOp | pw.TransferOp | pw.ControlFlowOp):
                yield op

    def calls(self) -> Iterator[pw.CallOp]:
        for op in self.nodes():
            if isinstance(op, pw.CallOp):
                yield op

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

    def __init__(self, whole: ProgramIR, function: Any) -> None:
        self.base, self.context = whole.base, whole.context
        self.slices, self.meshes, self.islands = whole.slices, whole.meshes, whole.islands
        self.per_device = whole.per_device
        self.whole, self.bodies = whole, whole.bodies
        self._plans: dict[str, pw.PlanOp] = {}
        self._specs: dict[str, MeshSpec] = {}
        self._slices: dict[str, str] = {}
        self._func, self._flow = function, None
        called = {op.callee for op in self.calls()}
        self.computations = {s: whole.computations.pop(s) for s in [*whole.computations] if s in called}

    @property
    def functions(self) -> list[ProgramIR]:
        return self.whole.functions

    @property
    def module(self) -> Module:
        return self.whole.module

    def read_module(self) -> Module:
        return self.whole.read_module()


def array_type(value: Value) -> ArrayType:
    return from_mlir(value.type)


def functions_of(computation: Operation) -> dict[str, Operation]:
    """Finds the functions of a nested module, by symbol."""
    operations = (op.operation for op in computation.regions[0].blocks[0].operations)
    return {op.attributes["sym_name"].value: op for op in operations if op.name == "func.func"}


def main_of(computation: Operation) -> Any:
    """Returns the public @main of a nested module."""
    for op in computation.regions[0].blocks[0].operations:
        if op.operation.name == "func.func" and op.operation.attributes["sym_name"].value == "main":
            return op
    raise InternalError("a computation has no @main")


def described(main: Any, key: str, count: int) -> list[Any]:
    """Returns the `arg_attrs` or `res_attrs` of a function, one dictionary each. MLIR omits a list of empty ones."""
    attributes = main.operation.attributes
    if key in attributes:
        return list(attributes[key])
    with main.operation.context:
        return [ir.DictAttr.get({})] * count
