"""Checks the IR of a program against the rules of its compilation phase. The compiler calls it after every pass, and
front ends call it after they build a program. An error names the user's source line.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from pathways.dialect.call_labels import Action, read_action
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.dtypes import ArrayType, from_mlir
from pathways.dialect.errors import InvalidIR
from pathways.dialect.ir.flow import Node, identities
from pathways.dialect.ir.functions import main_of
from pathways.dialect.ir.places import same_place
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.ir.records import CondRecord, WhileRecord
from pathways.dialect.ir.verify_plan import broken_parts, check_per_device, check_plans
from pathways.dialect.ir.verify_records import check_records
from pathways.dialect.ir.verify_shardings import check_computations, check_shardings, check_written
from pathways.dialect.ir.wellformed import Broken, declarations, known_ops, violation
from pathways.dialect.memo import remembered
from pathways.dialect.mlir import ir, problem_of, registered_only, short_text
from pathways.dialect.phases import Phase
from pathways.dialect.pieces import piece_problem
from pathways.dialect.ranges import LARGEST_RANGE, write_ranges
from pathways.dialect.sharding import size_of_axes


@dataclass(frozen=True)
class Changes:
    """The changes since a program was last valid: only rules that these changes can break are checked again."""

    since: Phase
    """The phase that the program had when it was valid."""
    attributes: frozenset[str]
    """Written attributes of calls, transfers and control flow; `arguments`: attributes of arguments and results;
    `computations`: their code."""

    def can_break(self, phase: Phase, reads: frozenset[str]) -> bool:
        return not self.since.reached(phase) or not reads.isdisjoint(self.attributes)


def verify(program: ProgramIR, changes: Changes | None = None) -> None:
    """Checks a module against the rules of its phase: all rules, or only those that `changes` can break.

    Raises PWC0701 with all violations of the first broken rule, because later rules rely on earlier ones.
    """
    for violations in _broken(program, changes):
        if found := [violation(*broken) for broken in violations]:
            raise PathwaysError(*found)


def _broken(program: ProgramIR, changes: Changes | None) -> Iterator[Iterator[Broken]]:
    """Yields the violations of each rule, in the order in which rules are checked."""
    if changes is None or not changes.attributes.isdisjoint({"callee", "computations"}):
        _check_valid(program)
    if changes is None:
        yield known_ops(program.base)
    yield declarations(program.base, with_functions=any(f.has_ops for f in program.functions))
    yield _one_program(program)
    written = None if changes is None else changes.attributes
    for function in program.functions:
        if not function.has_ops:
            check_records(function, written)
    for phase, rules in _RULES.items():
        if program.phase.reached(phase):
            for rule, reads in rules.items():
                if changes is None or changes.can_break(phase, reads):
                    yield from (rule(function) for function in program.functions)


def _check_valid(program: ProgramIR) -> None:
    """Runs MLIR's own verifier; inside computations it also refuses unknown ops. Raises PWC0701."""
    module = program.base.operation
    try:
        with registered_only(program.context):
            for function in program.functions:
                for computation in function.computations.values():
                    computation.verify()
            for share in program.per_device.values():
                share.verify()
        module.verify()
    except ir.MLIRError as error:
        problem, where = problem_of(error)
        rule = "valid MLIR, and in computations only ops of StableHLO and of JAX's other dialects"
        op, have = module.name, short_text(module)
        invalid = InvalidIR(op=op, problem=f"does not verify: {problem}", have_=have, rule=rule, where=where)
        raise PathwaysError(invalid) from None


def _one_program(program: ProgramIR) -> Iterator[Broken]:
    if not program.has_program:
        yield program.base.operation, "has no function marked pw.program", "one program per module"


def _counts(program: ProgramIR) -> Iterator[Broken]:
    for op in program.slices.values():
        if not 1 <= op.devices <= LARGEST_RANGE:
            yield op.operation, f"has {op.devices} devices", f"1 to {LARGEST_RANGE}"
    for op in program.islands.values():
        if op.hosts < 1 or op.devices < 1 or op.hosts * op.devices > LARGEST_RANGE:
            yield op.operation, f"has {op.hosts} hosts of {op.devices} devices", f"1 to {LARGEST_RANGE} devices in all"


def _symbols(program: ProgramIR) -> Iterator[Broken]:
    for op in program.meshes.values():
        if op.slice not in program.slices:
            yield op.operation, f"names the slice @{op.slice}, which does not exist", "a pw.slice of the module"
            continue
        size = size_of_axes(op.axes)
        count = program.slices[op.slice].devices
        if size != len(op.devices) or len(set(op.devices)) != size:
            have = f"has axes of {size} devices and {len(op.devices)} devices"
            yield op.operation, have, "different devices, as many as the product of the axis sizes"
        elif not 0 <= min(op.devices) <= max(op.devices) < count:
            have = f"names devices {write_ranges(op.devices)} of a slice of {count}"
            yield op.operation, have, f"positions 0 to {count - 1}"
    for node in program.flow.nodes:
        for mesh in node.op.meshes if node.is_branch else (node.mesh,):
            if mesh not in program.meshes:
                yield node.op, f"names the mesh @{mesh}, which does not exist", "a pw.mesh of the module"


def _calls(program: ProgramIR) -> Iterator[Broken]:
    known: dict[str, _Types] = {}
    flow = program.flow
    types, ids = flow.types, flow.type_ids
    for node in flow.nodes:
        if node.is_transfer and types[node.operands[0]] != types[node.results[0]]:
            have = f"returns {types[node.results[0]]} for {types[node.operands[0]]}"
            yield node.op, have, "a result of its operand's type"
    for node, taken in zip(flow.nodes, flow.of_operands(ids), strict=True):
        if not node.is_call:
            continue
        if node.callee not in known:
            if node.callee not in program.computations:
                rule = "a nested module that no other function calls"
                yield node.op, f"calls @{node.callee}, which does not exist", rule
                continue
            known[node.callee] = _types(main_of(program.computations[node.callee]).type)
        need = known[node.callee].sides
        if known[node.callee].ids == (taken, ids[node.results.start : node.results.stop].tobytes()):
            continue
        have = [types[v] for v in node.operands], [types[v] for v in node.results]
        if have != need:
            shown, rule = (f"{[str(t) for t in side[0]]} -> {[str(t) for t in side[1]]}" for side in (have, need))
            yield node.op, f"has types {shown}", f"those of @main: {rule}"


class _Types(NamedTuple):
    """The types of the arguments and the results of a function, and their identities."""

    sides: tuple[list[ArrayType], list[ArrayType]]
    ids: tuple[bytes, bytes]


@remembered
def _types(function: Any) -> _Types:
    """Reads an MLIR function type."""
    taken, made = ([from_mlir(t) for t in side] for side in (function.inputs, function.results))
    return _Types((taken, made), (identities(taken).tobytes(), identities(made).tobytes()))


def _actions(program: ProgramIR) -> Iterator[Broken]:
    """Checks that actions form a pipeline: stages and microbatches are counted from 0, each stage is on one slice."""
    found: dict[Action, Any] = {}
    homes: dict[int, str] = {}
    for node in program.flow.calls():
        call = node.op
        yield from broken_parts(call)
        try:
            action = None if call.action is None else read_action(call.action)
        except ValueError:
            yield call, f"has the action {call.action}", "stage, F, B, I or W, microbatch: 2F3"
            continue
        if action is not None and not call.gathered:
            found[action] = call
            home = program.slice_of(call.mesh)
            if homes.setdefault(action.stage, home) != home:
                yield (
                    call,
                    f"puts stage {action.stage} on @{home}",
                    f"@{homes[action.stage]}, as in another call of the stage",
                )
    if program.phase.reached(Phase.SCHEDULE):  # merged calls have several actions
        return
    for what in ("stage", "microbatch"):
        numbers = {getattr(action, what): call for action, call in found.items()}
        if numbers and max(numbers) >= len(numbers):
            rule = f"calls of every {what} from 0 to the last"
            yield numbers[max(numbers)], f"is of {what} {max(numbers)}, and there are {len(numbers)}", rule


def _branches(program: ProgramIR) -> Iterator[Broken]:
    flow = program.flow
    before = list(program.functions)[: program.functions.index(program)]
    for node in flow.branches():
        op = node.op
        missing = [s for s in op.bodies if program.bodies.get(s) not in before]
        many = len(op.bodies) if isinstance(op, WhileRecord) else max(1, len(op.bodies))
        if missing or many != len(op.bodies) or (isinstance(op, WhileRecord) and many != 2):
            yield op, f"has the bodies {op.bodies}", "pw.body functions before it; a pw.while has two"
            continue
        yield from _body_types(program, node)
        if len(op.meshes) != len(node.results):
            yield op, f"names {len(op.meshes)} meshes", "one for each result"


def _body_types(program: ProgramIR, node: Node) -> Iterator[Broken]:
    """Checks the types of operands and results of control flow against those of its bodies."""
    op, types = node.op, program.flow.types
    taken = [types[v] for v in (node.operands[1:] if isinstance(op, CondRecord) else node.operands)]
    made = [types[v] for v in node.results]
    if isinstance(op, WhileRecord) and taken[len(taken) - len(made) :] != made:
        yield op, "returns other types than it carries", "results with the types of the carried operands"
    if isinstance(op, CondRecord) and types[node.operands[0]] != ArrayType((), "int32"):
        yield op, f"has a condition of type {types[node.operands[0]]}", "int32[]: the index of a body"
    for number, body in enumerate(program.bodies_of(op)):
        flow = body.flow
        want = [ArrayType((), "bool")] if isinstance(op, WhileRecord) and number == 0 else made
        if [flow.types[v] for v in body.inputs] != taken or [flow.types[v] for v in flow.returned] != want:
            have = f"runs @{body.name}, which takes or makes other types"
            yield op, have, f"{[str(t) for t in taken]} -> {[str(t) for t in want]}"


def _signature(program: ProgramIR) -> Iterator[Broken]:
    flow = program.flow
    for number, argument in enumerate(program.arguments):
        name = argument.shown(number)
        if argument.mesh is not None and argument.mesh not in program.meshes:
            yield program.operation, f"puts {name} on @{argument.mesh}, which does not exist", "a pw.mesh"
        if argument.mesh is None and argument.sharding is not None:
            yield program.operation, f"splits {name}, which has no mesh", "pw.mesh beside pw.sharding"
        if argument.mesh is None and (flow.users[number] or number in flow.returned):
            yield program.operation, f"uses {name}, which has no mesh", "pw.mesh on every argument in use"
        if argument.value is not None and len(argument.value) != 2 * flow.types[number].bytes:
            yield program.operation, f"has a constant {name} of the wrong size", "as many bytes as its type"


def _pieces(program: ProgramIR) -> Iterator[Broken]:
    """Checks that the pieces of each array in several buffers make up the whole array."""
    flow, taken = program.flow, program.arguments
    sides = ([(taken[v], v) for v in program.inputs], list(zip(program.results, flow.returned, strict=True)))
    for side in sides:
        held = [(a.piece, flow.types[v].shape, (flow.types[v].dtype, a.dtype, a.weak, a.donate)) for a, v in side]
        if (problem := piece_problem(held)) is not None:
            yield program.operation, f"has {problem}", "consecutive pieces of one array"


def _branch_places(program: ProgramIR) -> Iterator[Broken]:
    for node in program.flow.branches():
        yield from _body_places(program, node)


def _body_places(program: ProgramIR, node: Node) -> Iterator[Broken]:
    """Checks that the inputs and outputs of a body have the same places as the values of its control flow op."""
    op, types = node.op, program.flow.types
    if op.in_shardings is None or op.out_shardings is None:
        return
    skip = 1 if isinstance(op, CondRecord) else 0
    carried = op.in_shardings[len(node.operands) - len(node.results) :]
    if isinstance(op, WhileRecord) and carried != op.out_shardings:
        yield op, "carries values to other places", "results with the meshes and shardings of the operands"
    for number, body in enumerate(program.bodies_of(op)):
        places, flow = [a.sharding for a in body.arguments if not a.is_constant], body.flow
        for value, placed, there in zip(node.operands[skip:], op.in_shardings[skip:], places, strict=True):
            if there is not None and not same_place(program, types[value], placed, there):
                yield op, f"passes @{body.name} a value from another place", "the place that the body takes"
        if isinstance(op, WhileRecord) and number == 0:
            continue
        for value, placed in zip(flow.returned, op.out_shardings, strict=True):
            if not same_place(program, flow.types[value], flow.place(value), placed):
                yield op, f"takes a result of @{body.name} in another place", "its place in the body"


def _bindings(program: ProgramIR) -> Iterator[Broken]:
    taken: dict[tuple[str, int], str] = {}
    for symbol, op in program.slices.items():
        if op.island not in program.islands or op.device_ids is None:
            yield op.operation, "is not bound to an island", "an island and devices from phase place on"
            continue
        size = program.islands[op.island].hosts * program.islands[op.island].devices
        if len(op.device_ids) != op.devices or len(set(op.device_ids)) != op.devices:
            have = f"is bound to {len(op.device_ids)} devices, {write_ranges(op.device_ids)}"
            yield op.operation, have, f"{op.devices} different devices"
            continue
        if not 0 <= min(op.device_ids) <= max(op.device_ids) < size:
            have = f"is bound to devices {write_ranges(op.device_ids)} of {op.island}"
            yield op.operation, have, f"devices 0 to {size - 1}"
            continue
        for device in op.device_ids:
            other = taken.setdefault((op.island, device), symbol)
            if other != symbol:
                yield (
                    op.operation,
                    f"shares device {device} of {op.island} with @{other}",
                    "slices with disjoint devices",
                )
    for node in program.flow.calls():
        call = node.op
        owner = program.slices[program.slice_of(call.mesh)]
        if call.island != owner.island:
            yield call, f"is on @{call.island}, its slice is on @{owner.island}", "the island of its slice"


def _movement(program: ProgramIR) -> Iterator[Broken]:
    flow = program.flow
    places, types = flow.places, flow.types
    for number, argument in enumerate(program.arguments):
        if argument.is_constant and argument.mesh is None:
            name = argument.shown(number)
            yield program.operation, f"keeps the constant {name}, which is not used", "no constant without a mesh"
    known: dict[int, tuple[object, bytes]] = {}
    """The identities of the shardings in a list, by identity of the list, which is kept alive."""
    for node, taken in zip(flow.nodes, flow.of_operands(flow.place_ids), strict=True):
        op = node.op
        if node.is_transfer:
            if op.route is None or op.bytes is None or op.source is None:
                yield op, "does not state its route, bytes and source", "all three from phase transfer on"
            elif op.source[0] != places[node.operands[0]]:
                yield op, "states a wrong source", "the mesh and sharding of its operand"
            continue
        shardings = op.in_shardings or ()
        if id(shardings) not in known:
            known[id(shardings)] = shardings, identities(shardings).tobytes()
        if known[id(shardings)][1] == taken:
            continue
        for i, (value, wanted) in enumerate(zip(node.operands, shardings, strict=True)):
            here = places[value]
            if here is not wanted and (here is None or not same_place(program, types[value], here, wanted)):
                yield op, f"reads operand {i} from another place", "an explicit pw.transfer for every move"


def _order(program: ProgramIR) -> Iterator[Broken]:
    flow = program.flow
    last = -1
    for node in flow.nodes:
        step = node.op.step
        if step is None:
            yield node.op, "has no step", "a step for every call and transfer from phase schedule on"
            continue
        if step <= last:
            rule = "steps that increase in program order, which is the order of execution"
            yield node.op, f"has step {step} after step {last}", rule
        last = max(last, step)


_STATED = frozenset({"callee", "mesh", "in_shardings", "out_shardings", "sharding", "arguments"})
"""Attributes that state shardings, or on which shardings depend."""
_RULES: dict[Phase, dict[Callable[[ProgramIR], Iterator[Broken]], frozenset[str]]] = {
    Phase.TRACE: {
        _counts: frozenset(),
        _symbols: frozenset({"mesh", "meshes"}),
        _calls: frozenset({"callee"}),
        _actions: frozenset({"action", "parts", "gathered", "mesh"}),
        _signature: frozenset({"arguments"}),
        _pieces: frozenset({"arguments"}),
        _branches: frozenset({"bodies", "meshes"}),
        check_written: _STATED,
    },
    Phase.SHARD: {
        check_shardings: _STATED,
        check_computations: _STATED | {"computations"},
        _branch_places: _STATED,
    },
    Phase.PLACE: {_bindings: frozenset({"mesh", "island"})},
    Phase.TRANSFER: {_movement: _STATED | {"route", "bytes", "source"}},
    Phase.SCHEDULE: {_order: frozenset({"step"})},
    Phase.PLAN: {check_plans: frozenset(), check_per_device: frozenset()},
}
"""The rules that a phase adds, each with the `Changes.attributes` that it reads."""
