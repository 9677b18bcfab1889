"""Defines the pass `insert-transfers`. It inserts an explicit transfer if a value is used on another mesh, or in
another sharding, than the one in which it is made.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

from pathways.compiler.passes.base import Pass, Session
from pathways.dialect.dtypes import ArrayType
from pathways.dialect.ir import pw
from pathways.dialect.ir.flow import Draft, Node, Rewriting, renumbered
from pathways.dialect.ir.places import Movement, movement, same_place
from pathways.dialect.ir.program import Argument, ProgramIR
from pathways.dialect.mlir import Value, ir
from pathways.dialect.phases import Phase
from pathways.dialect.sdy import Placed

_NOWHERE = Placed("", ())
"""The location of an argument that nothing uses."""


@dataclass(frozen=True)
class InsertTransfers(Pass):
    """Inserts transfers, and states route, bytes and reason of each.

    Requires: phase place.
    Ensures: phase transfer: every operand lies where and as its call wants it; transfers that move nothing are gone.
    """

    name: ClassVar[str] = "insert-transfers"
    requires: ClassVar[Phase] = Phase.PLACE
    ensures: ClassVar[Phase] = Phase.TRANSFER
    keeps_flow: ClassVar[bool] = True

    def apply(self, program: ProgramIR, session: Session) -> None:
        insert_transfers(program)


def insert_transfers(program: ProgramIR) -> None:
    with program.context, ir.Location.unknown():
        for function in program.functions:
            inserter = _Inserter(function)
            for node in function.flow.nodes:
                if node.is_transfer:
                    inserter.transfer(node)
                else:
                    inserter.call(node)
            inserter.write_constants()
    program.phase = Phase.TRANSFER


@dataclass(frozen=True)
class _Held:
    """The current form of a value: its number, the number of its replacement, type, location, argument if any."""

    number: int
    value: int
    type: ArrayType
    place: Placed
    argument: Argument | None = None

    @property
    def is_constant(self) -> bool:
        return self.argument is not None and self.argument.is_constant


class _Inserter:
    def __init__(self, program: ProgramIR) -> None:
        self.program = program
        self.flow = program.flow
        self.arguments = program.arguments
        self.places = [p or _NOWHERE for p in self.flow.places]
        """The current location of each value."""
        self.instead: dict[int, _Held] = {}
        """The current form of each value whose user-written transfer was removed."""
        self.values, self.types = list(self.flow.values), list(self.flow.types)
        self.signature = list(self.flow.arguments)
        """The current numbers of the arguments."""
        self.rewriting = Rewriting()
        self.renamed: dict[int, int] = {}
        """Maps each replaced value to its replacement, by number."""
        self.moved: dict[tuple[int, Placed], int] = {}
        self.costs: dict[tuple[ArrayType, Placed, Placed], Movement] = {}
        self.same: dict[tuple[ArrayType, Placed, Placed], bool] = {}

    def held(self, number: int) -> _Held:
        if number in self.instead:
            return self.instead[number]
        argument = self.arguments[number] if number in self.flow.arguments else None
        return _Held(number, number, self.types[number], self.places[number], argument)

    def same_place(self, held: _Held, target: Placed) -> bool:
        if held.place is target:
            return True
        key = held.type, held.place, target
        if key not in self.same:
            self.same[key] = same_place(self.program, *key)
        return self.same[key]

    def call(self, node: Node) -> None:
        shardings = node.op.in_shardings
        here = map(self.places.__getitem__, node.operands)
        operands = [self.renamed.get(v, v) for v in node.operands] if self.renamed else list(node.operands)
        for i, (number, place, target) in enumerate(zip(node.operands, here, shardings, strict=True)):
            if place is target:
                continue
            held = self.held(number)
            if not self.same_place(held, target):
                operands[i] = self._at(held, target, node)
                node.op.operation.operands[i] = self.values[operands[i]]
        self.rewriting.instead[node.number] = Draft(node.op, node.callee, node.mesh, operands, node.results)

    def transfer(self, node: Node) -> None:
        """Removes the user's transfer if the value is there already; completes it otherwise."""
        op = node.op
        (number,), (result,) = node.operands, node.results
        (target,) = cast("tuple[Placed]", op.sharding)
        held = self.held(number)
        if held.is_constant:
            self._instead(node, _Held(result, self._constant(held, target), held.type, target))
        elif self.same_place(held, target):
            self._instead(node, held)
        else:
            self.rewriting.instead[node.number] = Draft(op, "", node.mesh, (held.value,), node.results)
            self._complete(op, held, target, op.reason or "the user wrote this move")

    def _instead(self, node: Node, held: _Held) -> None:
        """Removes a transfer that moves nothing. Its consumers take its operand instead."""
        (result,) = node.results
        self.values[result].replace_all_uses_with(self.values[held.value])
        self.rewriting.instead[node.number] = None
        node.op.operation.erase()
        self.renamed[result] = held.value
        self.instead[result], self.places[result] = held, held.place

    def _at(self, held: _Held, target: Placed, user: Node) -> int:
        """Returns the value at `target`, by a transfer that all its users share."""
        if held.is_constant:
            return self._constant(held, target)
        if (held.number, target) not in self.moved:
            value, call = self.values[held.value], user.op
            op = pw.TransferOp.create(
                ip=self._early(value, call),
                loc=call.operation.location,
                operands=[value],
                results=[value.type],
                mesh=target.mesh,
                sharding=(target,),
            )
            self._complete(op, held, target, self._reason(held, target, call))
            number = self.moved[held.number, target] = self._add(op.results[0], held.type)
            draft = Draft(op, "", target.mesh, (held.value,), (number,))
            if isinstance(value.owner, ir.Block):
                self.rewriting.before.setdefault(user.number, []).append(draft)
            else:
                self.rewriting.after.setdefault(self.flow.makers[held.value], []).insert(0, draft)
        return self.moved[held.number, target]

    def _add(self, value: Value, type_: ArrayType) -> int:
        """Adds a value and returns its number."""
        self.values.append(value)
        self.types.append(type_)
        return len(self.values) - 1

    def _early(self, value: Value, user: pw.CallOp | pw.ControlFlowOp) -> Any:
        """Returns the point right after the producer, to overlap the transfer. An argument moves when first needed."""
        if isinstance(value.owner, ir.Block):
            return ir.InsertionPoint(user.operation)
        return ir.InsertionPoint.after(value.owner)

    def _reason(self, held: _Held, target: Placed, call: pw.CallOp | pw.ControlFlowOp) -> str:
        source, name = held.place, pw.shown_name(call)
        here, there = (self.program.slice_of(p.mesh) for p in (source, target))
        if here != there:
            return f"{name} runs on {there} and takes it, {here} holds it"
        made, taken = self.program.sharding(source), self.program.sharding(target)
        return f"{name} takes it as {taken} on {taken.mesh}, it is {made} on {made.mesh}"

    def _complete(self, op: pw.TransferOp, held: _Held, target: Placed, reason: str) -> None:
        key = held.type, held.place, target
        if key not in self.costs:
            self.costs[key] = movement(self.program, *key)
        cost = self.costs[key]
        op.source = (held.place,)
        op.route, op.bytes, op.reason = cost.route, cost.bytes, reason
        whole = held.type.bytes * self.program.mesh(target.mesh).size
        op.runner_up = f"the whole array to every device: {whole:,} bytes instead of {cost.bytes:,}"

    def _constant(self, held: _Held, target: Placed) -> int:
        """Adds a copy of a constant on the target mesh. Loading the plan makes the copy; it never moves in a run."""
        if (held.number, target) not in self.moved:
            argument = cast("Argument", held.argument)
            type_ = self.values[held.value].type
            copy = self.program.block.add_argument(type_, ir.Location.name(argument.name))
            self.arguments.append(replace(argument, mesh=target.mesh, sharding=target))
            self.moved[held.number, target] = number = self._add(copy, held.type)
            self.signature.append(number)
        return self.moved[held.number, target]

    def write_constants(self) -> None:
        """Writes the signature without unused constants, and updates the dataflow."""
        program = self.program
        block, function = program.block, program.func
        kept = list(range(len(self.arguments)))
        for i in reversed(kept):
            value = block.arguments[i]
            if self.arguments[i].is_constant and not list(value.uses):
                block.erase_argument(i)
                kept.remove(i)
        types = [a.type for a in block.arguments]
        results = [v.type for v in program.returned]
        function.operation.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, results))
        program.arguments = [self.arguments[i] for i in kept]
        nodes = self.rewriting.nodes(self.flow)
        returned = [self.renamed.get(v, v) for v in self.flow.returned]
        arguments = [self.signature[i] for i in kept]
        program.flow = renumbered(program, self.values, self.types, arguments, nodes, returned)
