"""Checks that an MLIR module from a file or a front end has only known ops, each with the attributes that it declares.
Other code can then read it safely. The compiler calls it for dumps, and for computations that a front end passes in.

The rules of phases (`verify.py`) rely on it. IR of our own passes is built through the declarations, but a dump may
contain anything.
"""

from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any, TypeAlias

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.dtypes import is_array_type
from pathways.dialect.errors import InvalidIR
from pathways.dialect.ir import losses, pw
from pathways.dialect.ir.bodies import broken_bodies
from pathways.dialect.ir.declare import FLAG, NUMBER, STRING, SYMBOL, PwOp
from pathways.dialect.ir.program import PER_DEVICE_OF
from pathways.dialect.ir.records import NodeRecord
from pathways.dialect.mlir import Attribute, Module, Operation, ir, name_of, sdy, short_text, where_of
from pathways.dialect.phases import Phase
from pathways.dialect.pieces import read_piece
from pathways.dialect.schedule_figures import Schedule
from pathways.dialect.sdy import is_closed
from pathways.dialect.trees import read_tree

Broken: TypeAlias = tuple[Operation | NodeRecord, str, str]
"""The op or its record, what is wrong with it, and the rule."""


def check_wellformed(module: Module) -> None:
    """Raises PWC0701 with all violations of the first broken rule."""
    for rule in (known_ops, declarations, _module, _places, _names, _functions, _computations):
        if found := [violation(*broken) for broken in rule(module)]:
            raise PathwaysError(*found)


def check_computation(computation: Operation) -> None:
    """Raises PWC0701 for an untrusted module that no call can run, before it becomes part of a program."""
    if found := [violation(*broken) for broken in _computation(computation, settled=False)]:
        raise PathwaysError(*found)


def violation(found: Operation | NodeRecord, problem: str, rule: str) -> InvalidIR:
    """Makes the error for an op, or the record of one, that breaks a rule, at its user line."""
    op = found.operation if isinstance(found, NodeRecord) else found
    name = op.name if op.name != "pw.call" else f"pw.call {name_of(op)}".rstrip()
    return InvalidIR(op=name, problem=problem, have_=short_text(op), rule=rule, where=where_of(op))


def _is_phase(attribute: Attribute) -> bool:
    return STRING.accepts(attribute) and STRING.read(attribute) in list(Phase)


def _is_tree(attribute: Attribute) -> bool:
    try:
        read_tree(STRING.read(attribute))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return False
    return True


def _is_schedule(attribute: Attribute) -> bool:
    """Whether a dictionary has a name, and all entries that `Schedule` knows have the type of that field."""
    if not isinstance(attribute, ir.DictAttr) or "name" not in attribute:
        return False
    kinds: dict[Any, Any] = {str: ir.StringAttr, int: ir.IntegerAttr, float: ir.FloatAttr}
    wanted = {f.name: kinds[str if f.name == "name" else type(f.default)] for f in fields(Schedule)}
    return all(isinstance(attribute[n], kind) for n, kind in wanted.items() if n in attribute)


def _is_piece(attribute: Attribute) -> bool:
    try:
        read_piece(STRING.read(attribute))
    except (ValueError, TypeError, AttributeError, RecursionError):
        return False
    return True


_Check: TypeAlias = Callable[[Attribute], bool]
_MODULE: dict[str, tuple[_Check, Phase | None, str]] = {
    "pw.phase": (_is_phase, Phase.TRACE, f"one of {', '.join(Phase)}"),
    "pw.platform": (STRING.accepts, Phase.TRACE, "the platform, as text"),
    "pw.in_tree": (_is_tree, Phase.TRACE, "the structure of the arguments, as JSON"),
    "pw.out_tree": (_is_tree, Phase.TRACE, "the structure of the results, as JSON"),
    "pw.dcn_gbps": (NUMBER.accepts, Phase.PLACE, "GB/s between islands"),
    "pw.dcn_us": (NUMBER.accepts, None, "latency between islands, in microseconds"),
    "pw.controller_us": (NUMBER.accepts, None, "microseconds in which the controller starts a run on a host"),
    "pw.host_cores": (NUMBER.accepts, None, "the number of cores that all devices share"),
    "pw.placement": (STRING.accepts, None, "text"),
    "pw.schedule": (_is_schedule, None, "numbers and text by name"),
    "pw.temporaries": (STRING.accepts, None, "text"),
    losses.NAME: (losses.are_losses, None, "name, verdict and handling of each loss, as text"),
    "pw.ordered": (FLAG.accepts, None, "a flag"),
    "pw.not_reproducible": (FLAG.accepts, None, "a flag"),
}
"""The attributes of the module: a check, the phase from which it is required (None: never), and the rule."""


def _module(module: Module) -> Iterator[Broken]:
    op = module.operation
    phase: Phase | None = None
    for name, (accepts, since, what) in _MODULE.items():
        if name in op.attributes:
            if not accepts(op.attributes[name]):
                yield op, f"has an invalid {name}", what
            elif name == "pw.phase":
                phase = Phase(op.attributes[name].value)
        elif since is not None and phase is not None and phase.reached(since):
            yield op, f"lacks {name}", what


def _places(module: Module) -> Iterator[Broken]:
    """Checks that the module, its functions and its plans contain only ops that are allowed there."""
    for op in module.body.operations:
        name = op.operation.name
        if isinstance(op, PwOp):
            if not isinstance(op, (pw.SliceOp, pw.MeshOp, pw.IslandOp, pw.PlanOp)):
                yield op.operation, "is outside of a function", "slices, meshes, islands and plans in a module"
            elif isinstance(op, pw.PlanOp):
                yield from _plan_ops(op)
        elif name == "func.func":
            yield from _function_ops(op.operation)
        elif name != "builtin.module":
            yield op.operation, "is not allowed in a module of a program", "pw ops, functions and computations"


def _plan_ops(plan: pw.PlanOp) -> Iterator[Broken]:
    blocks = [b for region in plan.operation.regions for b in region.blocks]
    if len(blocks) > 1:
        yield plan.operation, f"has {len(blocks)} blocks", "one stream of instructions"
    for block in blocks:
        for op in block.operations:
            if not isinstance(op, pw.STREAM_OPS):
                rule = f"one of {', '.join(i.OPERATION_NAME for i in pw.STREAM_OPS)}"
                yield op.operation, "is not an instruction", rule


def _function_ops(function: Operation) -> Iterator[Broken]:
    if ("pw.program" in function.attributes) == ("pw.body" in function.attributes):
        yield function, "is neither a program nor a body", "pw.program or pw.body on every function"
    blocks = list(function.regions[0].blocks)
    if len(blocks) != 1:
        yield function, f"has {len(blocks)} blocks", "one block: control flow is pw.cond and pw.while"
        return
    operations = [op.operation for op in blocks[0].operations]
    if not operations or operations[-1].name != "func.return":
        yield function, "does not return", "func.return at its end"
    for op in operations[:-1]:
        if not isinstance(op.opview, (pw.CallOp, pw.TransferOp, pw.ControlFlowOp)):
            yield op, "is in a program", "calls, transfers and control flow; other ops belong in computations"


def known_ops(module: Module) -> Iterator[Broken]:
    for op in _ops_of(module):
        if op.operation.name.startswith("pw.") and not isinstance(op, PwOp):
            yield op.operation, "is not an op of this dialect", f"one of {', '.join(o.OPERATION_NAME for o in pw.OPS)}"


def declarations(module: Module, *, with_functions: bool = True) -> Iterator[Broken]:
    """Finds ops that do not match their declaration. `with_functions`: also those inside of functions."""
    for op in _ops_of(module) if with_functions else module.body.operations:
        for problem in op.problems() if isinstance(op, PwOp) else ():
            yield op.operation, problem, DECLARED


DECLARED = "attributes and operands as in docs/dialect.md"


def _ops_of(module: Module) -> Iterator[Any]:
    """Yields the ops of the module itself, of its functions and of its plans."""
    for op in module.body.operations:
        yield op
        if isinstance(op, pw.PlanOp) or op.operation.name == "func.func":
            for region in op.operation.regions:
                for block in region.blocks:
                    yield from block.operations


def _names(module: Module) -> Iterator[Broken]:
    """Checks that symbols of the `pw` dialect, which MLIR does not know, are unique within their kind."""
    seen: set[tuple[str, ...]] = set()
    for op in module.body.operations:
        match op:
            case pw.SliceOp() | pw.MeshOp():
                key = op.OPERATION_NAME, op.sym_name
            case pw.IslandOp():
                key = op.OPERATION_NAME, op.name
            case pw.PlanOp():
                key = op.OPERATION_NAME, op.island, op.body or ""
            case _:
                continue
        if key in seen:
            yield op.operation, f"exists twice: {' '.join(key[1:])}", "one op of each name"
        seen.add(key)


_ARGUMENT: dict[str, _Check] = {
    "pw.name": STRING.accepts,
    "pw.dtype": STRING.accepts,
    "pw.value": lambda a: STRING.accepts(a) and _is_hex(a.value),
    "pw.constant": lambda a: STRING.accepts(a) and _is_hex(a.value) and bool(a.value),
    "pw.weak": FLAG.accepts,
    "pw.donate": FLAG.accepts,
    "pw.piece": _is_piece,
    "pw.mesh": SYMBOL.accepts,
    "pw.sharding": lambda a: pw.is_sharding(a) and is_closed(a),
}


def _is_hex(text: str) -> bool:
    return len(text) % 2 == 0 and all(c in "0123456789abcdef" for c in text)


def _functions(module: Module) -> Iterator[Broken]:
    programs = 0
    for op in module.body.operations:
        if op.operation.name != "func.func":
            continue
        programs += "pw.program" in op.operation.attributes
        yield from _described(op.operation, _ARGUMENT)
        yield from _array_types(op.operation, inside=True)
    if programs != 1:
        yield module.operation, f"has {programs} functions marked pw.program", "one program per module"


def _described(function: Operation, known: dict[str, _Check]) -> Iterator[Broken]:
    for key in ("arg_attrs", "res_attrs"):
        if key not in function.attributes:
            continue
        for number, entry in enumerate(function.attributes[key]):
            for named in entry:
                if named.name in known and not known[named.name](named.attr):
                    have = f"states {named.name} = {named.attr} of {'argument' if key[0] == 'a' else 'result'} {number}"
                    yield function, have, "attributes of arguments as in docs/dialect.md"


def _array_types(function: Operation, *, inside: bool) -> Iterator[Broken]:
    """Checks that arguments and results of a function, and of its ops if `inside`, are arrays of a static shape."""
    type_ = ir.FunctionType(function.attributes["function_type"].value)
    operations = function.regions[0].blocks[0].operations if inside else ()
    made = [value.type for op in operations for value in op.operation.results]
    for found in dict.fromkeys([*type_.inputs, *type_.results, *made]):
        if not is_array_type(found):
            yield function, f"has a value of type {found}", "arrays of ranked tensor types, with static dimensions"


_SHARDING: dict[str, _Check] = {"sdy.sharding": sdy.TensorShardingAttr.isinstance}


def _computations(module: Module) -> Iterator[Broken]:
    attributes = module.operation.attributes
    settled = Phase(attributes["pw.phase"].value).reached(Phase.SHARD)
    for op in module.body.operations:
        if op.operation.name == "builtin.module":
            yield from _computation(op.operation, settled=settled)


def stated_partitions(computation: Operation) -> Any:
    """Returns the attribute with the number of devices of a computation, unchecked; None if it is absent."""
    attributes = computation.attributes
    return attributes["mhlo.num_partitions"] if "mhlo.num_partitions" in attributes else None  # noqa: SIM401


def _computation(computation: Operation, *, settled: bool) -> Iterator[Broken]:
    attributes = computation.attributes
    if "sym_name" not in attributes:
        yield computation, "has no name", "a symbol for every computation"
        return
    partitions = stated_partitions(computation)
    if settled and not (isinstance(partitions, ir.IntegerAttr) and partitions.value > 0):
        yield computation, "does not state its number of devices", "mhlo.num_partitions from phase shard on"
    if PER_DEVICE_OF in attributes and not SYMBOL.accepts(attributes[PER_DEVICE_OF]):
        yield computation, f"has {PER_DEVICE_OF} = {attributes[PER_DEVICE_OF]}", "the symbol of a computation"
    if "pw.callbacks" in attributes and not isinstance(attributes["pw.callbacks"], ir.DenseI64ArrayAttr):
        yield computation, f"has pw.callbacks = {attributes['pw.callbacks']}", "numbers"
    mains: list[Any] = []
    for op in computation.regions[0].blocks[0].operations:
        inner: Operation = op.operation
        if inner.name == "func.func":
            if inner.attributes["sym_name"].value == "main":
                mains.append(inner)
        elif inner.name != "sdy.mesh":
            yield inner, "is next to the functions of a computation", "func.func and sdy.mesh"
    if len(mains) != 1 or not len(mains[0].regions[0].blocks):
        yield computation, f"has {len(mains)} functions @main", "one, with a body"
        return
    yield from _described(mains[0], _SHARDING)
    yield from _array_types(mains[0], inside=False)
    yield from broken_bodies(computation)
