"""Converts IR of the last phase, `plan`, to the `Plan` data that the runtime loads. The driver calls it at the end of a
compilation, and the verifier to check a plan.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pathways.compiler.buffers.streams import plan_meshes
from pathways.compiler.computations.signature import signature_of
from pathways.compiler.decisions import decisions_of
from pathways.compiler.instruction_ops import read_instruction
from pathways.compiler.schedule.attribute import read_schedule
from pathways.compiler.stream_ops import planned_streams
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.errors import InvalidIR
from pathways.dialect.host_callbacks import hold, read_callbacks
from pathways.dialect.ir import pw
from pathways.dialect.ir.arguments import Argument, constant_name
from pathways.dialect.ir.places import number_slots
from pathways.dialect.ir.program import PER_DEVICE_OF, ProgramIR
from pathways.dialect.mlir import WITHOUT_USES, Operation, bytecode, ir, portable
from pathways.dialect.plan.instructions import Instruction, Run
from pathways.dialect.plan.nouns import (
    Body,
    BufferKind,
    Buffers,
    Computation,
    ConstantData,
    Layout,
    Plan,
    PlanSlice,
    Port,
    Stream,
)
from pathways.dialect.plan.signature import PARAMETERS, Parameter, read_parameters
from pathways.dialect.topology import CLUSTER_FIGURES, ISLAND_FIGURES, Island, Topology
from pathways.dialect.trees import read_tree


def extract_plan(program: ProgramIR, constants: Mapping[str, bytes]) -> Plan:
    """Reads everything that the runtime needs from the IR. `constants` are the bytes of arrays outside the IR."""
    return _extract(program, constants, with_bytes=True)


def outline_of_plan(program: ProgramIR) -> Plan:
    """Returns the plan without the bytes of its modules and constants. The verifier needs no more."""
    return _extract(program, {}, with_bytes=False)


def _extract(program: ProgramIR, constants: Mapping[str, bytes], *, with_bytes: bool) -> Plan:
    attributes = program.attributes
    raw: dict[str, bytes] = {}
    numbers = _Numbers(program)
    readers = [_Reader(f, numbers, constants, raw, with_bytes) for f in program.functions]
    planned = planned_streams(program) or [None] * len(readers)
    *bodies, main = [reader.body(streams) for reader, streams in zip(readers, planned, strict=True)]
    found = {c.name: c for reader in readers for c in reader.computations()}
    return Plan(
        name=program.name,
        platform=program.platform,
        topology=read_topology(program),
        slices=tuple(
            PlanSlice(symbol, op.island or "", op.device_ids or (), op.reason or "", op.prefer, op.runner_up or "")
            for symbol, op in program.slices.items()
        ),
        meshes=plan_meshes(program),
        computations=tuple(found[symbol] for symbol in numbers.computations),
        streams=main.streams,
        inputs=main.inputs,
        results=main.results,
        constant_buffers=main.constant_buffers,
        in_tree=read_tree(attributes["pw.in_tree"].value),
        out_tree=read_tree(attributes["pw.out_tree"].value),
        constants=raw,
        placement=attributes["pw.placement"].value if "pw.placement" in attributes else "",
        reproducible="pw.not_reproducible" not in attributes,
        decisions=decisions_of(program) if with_bytes else (),
        schedule=read_schedule(program),
        temporaries=attributes["pw.temporaries"].value if "pw.temporaries" in attributes else "",
        bodies=tuple(bodies),
        parameters=_parameters(attributes),
    )


def _parameters(attributes: Any) -> tuple[Parameter, ...]:
    """Reads the parameters of the program; none if an older dump does not state them. Raises PWC0701."""
    if PARAMETERS not in attributes:
        return ()
    try:
        return read_parameters(attributes[PARAMETERS].value)
    except (ValueError, AttributeError, RecursionError) as error:
        problem, rule = f"has an unreadable attribute {PARAMETERS}", "a list of [name, how it is passed, static value]"
        raise PathwaysError(InvalidIR(op="builtin.module", problem=problem, have_=str(error), rule=rule)) from None


def read_topology(program: ProgramIR) -> Topology:
    """Reads the islands that phase `place` wrote."""
    islands = tuple(
        Island(
            name,
            devices=op.devices,
            hosts=op.hosts,
            kind=op.kind,
            memory=op.memory,
            flops=op.flops,
            ici_gbps=op.ici_gbps or Island.__dataclass_fields__["ici_gbps"].default,
            **{figure: getattr(op, figure) for figure in ISLAND_FIGURES},
        )
        for name, op in program.islands.items()
    )
    attributes = program.attributes
    stated = {name: attributes[f"pw.{name}"].value for name in CLUSTER_FIGURES if f"pw.{name}" in attributes}
    return Topology(islands, **stated)


class _Numbers:
    """The index of each symbol in the plan. Computations keep the order of the module."""

    def __init__(self, program: ProgramIR) -> None:
        self.meshes = {symbol: i for i, symbol in enumerate(program.meshes)}
        operations = (op.operation for op in program.base.body.operations)
        modules = (op for op in operations if op.name == "builtin.module" and PER_DEVICE_OF not in op.attributes)
        symbols = (op.attributes["sym_name"].value for op in modules)
        self.computations = {symbol: i for i, symbol in enumerate(symbols)}
        bodies = {symbol: i for i, symbol in enumerate(program.bodies)}
        self.tables = {"meshes": self.meshes, "computations": self.computations, "bodies": bodies}


class _Reader:
    """Reads one function: the program, or a body. It adds the bytes of its constants to `raw`."""

    def __init__(
        self,
        program: ProgramIR,
        numbers: _Numbers,
        constants: Mapping[str, bytes],
        raw: dict[str, bytes],
        with_bytes: bool,
    ) -> None:
        self.program = program
        self.numbers = numbers
        self.constants = constants
        self.raw = raw
        self.with_bytes = with_bytes
        self.donated: dict[str, tuple[int, ...]] = {}
        self.slots = number_slots(program)

    def body(self, planned: Sequence[Stream] | None) -> Body:
        """Returns the function with its planned streams, or those that are ops."""
        plans = self.program.plans.values() if planned is None else ()
        streams = map(self.stream, plans) if planned is None else map(self.numbered, planned)
        inputs, held = self.arguments()
        return Body(self.program.name, tuple(streams), inputs, tuple(self.results()), held)

    def computations(self) -> Iterator[Computation]:
        """Yields the computations. Read the streams first: they determine which operands are donated."""
        return (self.computation(s, op) for s, op in self.program.computations.items())

    def island(self, value: int) -> str:
        return self.program.island_of(self.program.flow.place(value).mesh)

    def numbered(self, stream: Stream) -> Stream:
        """Returns a planned stream, which numbers the function's own computations, with the numbers of the plan."""
        symbols = list(self.program.computations)
        for instruction in stream.instructions:
            if isinstance(instruction, Run):
                self.donated[symbols[instruction.computation]] = instruction.donated
        numbers = [self.numbers.computations[symbol] for symbol in symbols]
        if numbers == list(range(len(numbers))):
            return stream
        renumbered = (
            replace(i, computation=numbers[i.computation]) if isinstance(i, Run) else i for i in stream.instructions
        )
        return replace(stream, instructions=tuple(renumbered))

    def stream(self, plan: pw.PlanOp) -> Stream:
        kinds: dict[BufferKind, int] = {}
        known: dict[tuple[Any, Any], tuple[int, ...]] = {}
        groups: list[Buffers] = []
        instructions: list[Instruction] = []
        for op in plan.operation.regions[0].blocks[0].operations:
            if not isinstance(op, pw.BuffersOp):
                instruction = read_instruction(op, self.numbers.tables)
                if isinstance(instruction, Run):
                    self.donated[op.callee] = instruction.donated
                instructions.append(instruction)
                continue
            attributes = op.operation.attributes
            key = attributes["types"], attributes["sharding"]
            if key not in known:
                made = (
                    BufferKind(type_, Layout(self.numbers.meshes[placed.mesh], placed.dims), size)
                    for type_, placed, size in zip(op.types, op.sharding, op.bytes, strict=True)
                )
                known[key] = tuple(kinds.setdefault(kind, len(kinds)) for kind in made)
            groups.append(Buffers(op.name, op.role, op.owner, known[key], op.birth, op.deaths))
        return Stream(plan.island, plan.peak_bytes, tuple(kinds), tuple(groups), tuple(instructions))

    def computation(self, symbol: str, op: Operation) -> Computation:
        own = signature_of(op)
        share = self.program.per_device.get(symbol)
        found = Computation(
            symbol,
            written(op) if self.with_bytes else b"",
            self.donated.get(symbol, ()),
            own.inputs,
            own.in_layouts,
            own.outputs,
            own.out_layouts,
            own.axes,
            read_callbacks(op),
            b"" if share is None or not self.with_bytes else _share_written(share),
        )
        hold(found, found.callbacks)
        return found

    def arguments(self) -> tuple[tuple[Port, ...], tuple[ConstantData, ...]]:
        """Returns the inputs, and the buffers that hold constants."""
        inputs: list[Port] = []
        held: list[ConstantData] = []
        for value, argument in enumerate(self.program.arguments):
            if not argument.is_constant:
                inputs.append(self.port(value, argument))
                continue
            inline = argument.value
            if not self.with_bytes:
                held.append(ConstantData(self.island(value), self.slots[value], argument.constant or ""))
                continue
            data = bytes.fromhex(inline) if inline is not None else self.constants[argument.constant or ""]
            member = constant_name(data)
            self.raw[member] = data
            held.append(ConstantData(self.island(value), self.slots[value], member))
        return tuple(inputs), tuple(held)

    def results(self) -> Iterator[Port]:
        for value, result in zip(self.program.flow.returned, self.program.results, strict=True):
            yield self.port(value, result)

    def port(self, value: int, argument: Argument) -> Port:
        flow = self.program.flow
        type_ = flow.types[value]
        placed = flow.places[value] is not None
        return Port(
            argument.name,
            type_,
            argument.dtype or type_.dtype,
            argument.weak,
            self.island(value) if placed else "",
            self.slots[value],
            argument.donate,
            argument.piece,
        )


def written(computation: Operation) -> bytes:
    """Returns the portable form of a computation. It is the same whether the IR was built or parsed from text.

    Text loses the locations of the values of a loop, the order of uses, and empty attributes of arguments and results.
    """
    for op in computation.regions[0].blocks[0].operations:
        for key in ("arg_attrs", "res_attrs"):
            if key in op.operation.attributes and not any(map(len, op.operation.attributes[key])):
                del op.operation.attributes[key]
    raw = bytecode(computation, WITHOUT_USES)
    if b"while" in raw:
        computation.walk(_settle)
        raw = bytecode(computation, WITHOUT_USES)
    return portable(raw)


def _share_written(share: Operation) -> bytes:
    """Returns the portable form of a one-device module, without its name and its link to the program."""
    standalone = ir.Module.parse(bytecode(share, WITHOUT_USES), share.context)
    for key in ("sym_name", PER_DEVICE_OF):
        del standalone.operation.attributes[key]
    return written(standalone.operation)


def _settle(op: Operation) -> Any:
    if op.name == "stablehlo.while":
        for region in op.regions:
            for argument in region.blocks[0].arguments:
                argument.set_location(op.location)
    return ir.WalkResult.ADVANCE
