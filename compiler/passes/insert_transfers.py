"""Defines the pass `insert-transfers`. It inserts an explicit transfer if a value is used on another mesh, or in
another sharding, than the one in which it is made.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

from pathways.compiler.passes.base import Pass, Session
from pathways.dialect.dtypes import ArrayType
from pathways.dialect.ir.arguments import Argument
from pathways.dialect.ir.flow import Draft, Node, Rewriting, renumbered
from pathways.dialect.ir.places import Movement, movement, same_place
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.ir.records import TransferRecord, shown_name
from pathways.dialect.mlir import ir
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
    for function in program.functions:
        inserter = _Inserter(function)
        for node in function.flow.nodes:
            if node.is_transfer:
                inserter.transfer(node)
            else:
                inserter.call(node)
        inserter.finish()
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
        self.types = list(self.flow.types)
        self.signature = list(self.flow.arguments)
        """The current numbers of the arguments."""
        self.locations = list(program.signature.locations)
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
        here = tuple(map(self.places.__getitem__, node.operands))
        if here == shardings and not self.renamed:
            return
        operands = [self.renamed.get(v, v) for v in node.operands] if self.renamed else list(node.operands)
        for i in [i for i, (place, target) in enumerate(zip(here, shardings, strict=True)) if place is not target]:
            held = self.held(node.operands[i])
            if not self.same_place(held, shardings[i]):
                operands[i] = self._at(held, shardings[i], node)
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
        self.rewriting.instead[node.number] = None
        self.renamed[result] = held.value
        self.instead[result], self.places[result] = held, held.place

    def _at(self, held: _Held, target: Placed, user: Node) -> int:
        """Returns the value at `target`, by a transfer that all its users share."""
        if held.is_constant:
            return self._constant(held, target)
        if (held.number, target) not in self.moved:
            op = TransferRecord(user.op.location, mesh=target.mesh, sharding=(target,))
            self._complete(op, held, target, self._reason(held, target, user))
            number = self.moved[held.number, target] = self._add(held.type)
            draft = Draft(op, "", target.mesh, (held.value,), (number,))
            if self._is_argument(held.value):  # an argument moves when it is first needed
                self.rewriting.before.setdefault(user.number, []).append(draft)
            else:  # right after its maker, so that the transfer overlaps with other work
                self.rewriting.after.setdefault(self.flow.makers[held.value], []).insert(0, draft)
        return self.moved[held.number, target]

    def _is_argument(self, value: int) -> bool:
        """Whether a value is an argument, or a copy of a constant that was added to the arguments."""
        return value in self.flow.arguments or value >= len(self.flow.types)

    def _add(self, type_: ArrayType) -> int:
        """Adds a value and returns its number."""
        self.types.append(type_)
        return len(self.types) - 1

    def _reason(self, held: _Held, target: Placed, user: Node) -> str:
        source, name = held.place, shown_name(user.op)
        here, there = (self.program.slice_of(p.mesh) for p in (source, target))
        if here != there:
            return f"{name} runs on {there} and takes it, {here} holds it"
        made, taken = self.program.sharding(source), self.program.sharding(target)
        return f"{name} takes it as {taken} on {taken.mesh}, it is {made} on {made.mesh}"

    def _complete(self, op: Any, held: _Held, target: Placed, reason: str) -> None:
        key = held.type, held.place, target
        if key not in self.costs:
            self.costs[key] = movement(self.program, *key)
        cost = self.costs[key]
        whole = held.type.bytes * self.program.mesh(target.mesh).size
        other = f"the whole array to every device: {whole:,} bytes instead of {cost.bytes:,}"
        op.update(source=(held.place,), route=cost.route, bytes=cost.bytes, reason=reason, runner_up=other)

    def _constant(self, held: _Held, target: Placed) -> int:
        """Adds a copy of a constant on the target mesh. Loading the plan makes the copy; it never moves in a run."""
        if (held.number, target) not in self.moved:
            argument = cast("Argument", held.argument)
            self.arguments.append(replace(argument, mesh=target.mesh, sharding=target))
            self.locations.append(ir.Location.name(argument.name, context=self.program.context))
            self.moved[held.number, target] = number = self._add(held.type)
            self.signature.append(number)
        return self.moved[held.number, target]

    def finish(self) -> None:
        """Gives the program its new nodes, and a signature without unused constants."""
        program = self.program
        nodes = list(self.rewriting.nodes(self.flow))
        returned = [self.renamed.get(v, v) for v in self.flow.returned]
        used = set(returned).union(*(node.operands for node in nodes))
        taken = zip(self.signature, self.arguments, self.locations, strict=True)
        kept = [(v, argument, at) for v, argument, at in taken if not argument.is_constant or v in used]
        arguments, locations = [argument for _, argument, _ in kept], [at for _, _, at in kept]
        program.signature = program.signature.replaced(arguments, locations)
        program.flow = renumbered(program, self.types, [v for v, _, _ in kept], nodes, returned)
