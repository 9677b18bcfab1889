"""All movement becomes explicit: a use elsewhere, or in another sharding, goes through a pw.transfer."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

from pathways.compiler.passes.base import Pass, Session
from pathways.dialect import pw
from pathways.dialect.mlir import Value, ir, name_of
from pathways.dialect.phases import Phase
from pathways.dialect.program import Program, array_type
from pathways.dialect.sdy import Placed
from pathways.dialect.values import movement, same_place, value_places


@dataclass(frozen=True)
class InsertTransfers(Pass):
    """Insert transfers, and state route, bytes and reason of each.

    Requires: phase place.
    Ensures: phase transfer: every operand lies where and as its call wants it; transfers that move nothing are gone.
    """

    name: ClassVar[str] = "insert-transfers"
    requires: ClassVar[Phase] = Phase.PLACE
    ensures: ClassVar[Phase] = Phase.TRANSFER

    def apply(self, program: Program, session: Session) -> None:
        insert_transfers(program)


def insert_transfers(program: Program) -> None:
    with program.context, ir.Location.unknown():
        inserter = _Inserter(program)
        for op in list(program.nodes()):
            if isinstance(op, pw.CallOp):
                inserter.call(op)
            else:
                inserter.transfer(op)
        inserter.write_constants()
    program.phase = Phase.TRANSFER


class _Inserter:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.places = value_places(program)
        self.moved: dict[tuple[Value, Placed], Value] = {}
        self.arguments = program.arguments
        self.constants = {v: a for v, a in zip(program.block.arguments, self.arguments, strict=True) if a.is_constant}

    def call(self, call: pw.CallOp) -> None:
        wanted = call.in_shardings or ()
        for i, (value, target) in enumerate(zip(list(call.operands), wanted, strict=True)):
            source = self.places[value]
            if not same_place(self.program, value, source, target):
                call.operation.operands[i] = self._at(value, target, call)

    def transfer(self, op: pw.TransferOp) -> None:
        """The user's own: dropped where the value is there already, else completed."""
        (value,) = op.operands
        (target,) = cast("tuple[Placed]", op.sharding)
        (result,) = op.results
        if value in self.constants:
            result.replace_all_uses_with(self._constant(value, target))
            op.operation.erase()
        elif same_place(self.program, value, self.places[value], target):
            result.replace_all_uses_with(value)
            op.operation.erase()
        else:
            self._complete(op, value, target, "the user wrote this move")

    def _at(self, value: Value, target: Placed, call: pw.CallOp) -> Value:
        """`value` where `target` says, by a transfer that all its users share."""
        if value in self.constants:
            return self._constant(value, target)
        if (value, target) not in self.moved:
            op = pw.TransferOp.create(
                ip=self._early(value, call),
                loc=call.operation.location,
                operands=[value],
                results=[value.type],
                mesh=target.mesh,
                sharding=(target,),
            )
            self._complete(op, value, target, self._reason(value, target, call))
            self.moved[value, target] = op.results[0]
        return self.moved[value, target]

    def _early(self, value: Value, user: pw.CallOp) -> Any:
        """Right behind the producer, so that it overlaps; an argument moves only when it is first needed."""
        if isinstance(value.owner, ir.Block):
            return ir.InsertionPoint(user.operation)
        return ir.InsertionPoint.after(value.owner)

    def _reason(self, value: Value, target: Placed, call: pw.CallOp) -> str:
        source, name = self.places[value], name_of(call.operation) or call.callee
        here, there = (self.program.slice_of(p.mesh) for p in (source, target))
        if here != there:
            return f"{name} runs on {there} and takes it, {here} holds it"
        made, taken = self.program.sharding(source), self.program.sharding(target)
        return f"{name} takes it as {taken} on {taken.mesh}, it is {made} on {made.mesh}"

    def _complete(self, op: pw.TransferOp, value: Value, target: Placed, reason: str) -> None:
        source = self.places[value]
        cost = movement(self.program, value, source, target)
        op.source = (source,)
        op.route, op.bytes, op.reason = cost.route, cost.bytes, reason
        whole = array_type(value).bytes * self.program.mesh(target.mesh).size
        op.runner_up = f"the whole array to every device: {whole:,} bytes instead of {cost.bytes:,}"
        self.places[op.results[0]] = target

    def _constant(self, value: Value, target: Placed) -> Value:
        """A constant is put on every mesh where it is used when the plan is loaded; it never moves in a run."""
        if (value, target) in self.moved:
            return self.moved[value, target]
        argument = self.constants[value]
        block = self.program.block
        location = ir.Location.name(argument.name)
        copy = block.add_argument(value.type, location)
        self.arguments.append(replace(argument, mesh=target.mesh, sharding=target))
        self.places[copy] = target
        self.moved[value, target] = copy
        return copy

    def write_constants(self) -> None:
        """Writes the signature again, without constants that nobody uses any more."""
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
