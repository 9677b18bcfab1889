"""Checks the shardings in the IR of a program: each is possible for its array, and a call and its computation state the
same. `verify.py` calls it.

There are rules for shardings written before propagation, for those of every value from phase `shard` on, and for those
of computations. XLA chooses a layout itself if a computation states none, and plans are made from the computations. So
a call and its computation must state the same shardings. Many nodes are alike, so each kind of node is checked once.
"""

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from pathways.dialect.dtypes import ArrayType
from pathways.dialect.ir import pw
from pathways.dialect.ir.flow import Node
from pathways.dialect.ir.functions import described, main_of
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.ir.records import NodeRecord
from pathways.dialect.ir.wellformed import Broken, stated_partitions
from pathways.dialect.memo import remembered
from pathways.dialect.mlir import Operation
from pathways.dialect.phases import Phase
from pathways.dialect.sdy import Placed, is_closed, meshes_of, read_sharding
from pathways.dialect.sharding import Axes


def _attributes(node: Node) -> tuple[str, ...]:
    """Returns the names of the attributes in which a node states its shardings."""
    return ("sharding",) if node.is_transfer else ("in_shardings", "out_shardings")


def _values(node: Node, attribute: str) -> Sequence[int]:
    """Returns the values whose shardings an attribute of a node states."""
    return node.operands if attribute == "in_shardings" else node.results


_SIDES = {"in_shardings": "operand", "out_shardings": "result", "sharding": "result"}


def check_written(program: ProgramIR) -> Iterator[Broken]:
    """Finds impossible shardings among those written before propagation adds the others.

    A sharding may have fewer dimensions than its value: the storage of PRNG keys has one that the user does not see.
    """
    if program.phase.reached(Phase.SHARD):
        return
    yield from _check_signature(program)
    types = program.flow.types
    divided: set[tuple[ArrayType, Placed]] = set()
    for node in program.flow.nodes:
        op = node.op
        for name in _attributes(node):
            values, what, shardings = _values(node, name), _SIDES[name], getattr(op, name)
            if shardings is None:
                continue
            if len(shardings) != len(values):
                yield op, f"states {len(shardings)} shardings of {len(values)} {what}s", "one for each"
                continue
            for i, (value, placed) in enumerate(zip(values, shardings, strict=True)):
                type_ = types[value]
                if (type_, placed) not in divided:
                    divided.add((type_, placed))
                    whole = Placed(placed.mesh, placed.dims + ((),) * (len(type_.shape) - len(placed.dims)))
                    yield from _divides(program, op, type_, whole, f"{what} {i}")
                if node.mesh and placed.mesh != node.mesh:
                    yield op, f"puts {what} {i} on @{placed.mesh}", f"its own mesh, @{node.mesh}"


def _check_signature(program: ProgramIR) -> Iterator[Broken]:
    """Finds shardings of arguments and results that are impossible, or that would have no effect."""
    flow, body = program.flow, program is not program.whole
    for value, argument in zip(flow.arguments, program.arguments, strict=True):
        placed, name = argument.sharding, argument.shown(value)
        if placed is None:
            continue
        if body:
            yield (
                program.operation,
                f"states a sharding of {name}",
                "no pw.sharding before phase shard: the caller of a body decides",
            )
        elif placed.mesh != argument.mesh:
            yield program.operation, f"splits {name} over @{placed.mesh}", f"its own mesh, @{argument.mesh}"
        else:
            yield from _divides(program, program, flow.types[value], placed, name)
    for number, result in enumerate(program.results):
        if result.sharding is not None:
            name = result.name or f"result {number}"
            yield (
                program.operation,
                f"states a sharding of {name}",
                "a pw.transfer, or sdy.sharding in the computation that makes it",
            )


def check_shardings(program: ProgramIR) -> Iterator[Broken]:
    """Finds missing and impossible shardings, from phase `shard` on."""
    flow = program.flow
    types = flow.types
    checked: set[tuple[str, str, int, int]] = set()
    divided: set[tuple[int, int]] = set()
    """Pairs of a type and a sharding, by identity: nodes share these objects."""
    for node in flow.nodes:
        op = node.op
        key = (node.callee, node.mesh, id(op.in_shardings), id(op.out_shardings)) if node.is_call else None
        if key is not None and key in checked:  # calls of one computation have the same types, and share these lists
            continue
        for name in _attributes(node):
            values, what, shardings = _values(node, name), _SIDES[name], getattr(op, name)
            if shardings is None or len(shardings) != len(values):
                yield op, f"does not state a sharding for each {what}", "closed shardings from phase shard on"
                key = None
                continue
            for i, (value, placed) in enumerate(zip(values, shardings, strict=True)):
                if (id(types[value]), id(placed)) not in divided:
                    divided.add((id(types[value]), id(placed)))
                    yield from _divides(program, op, types[value], placed, f"{what} {i}")
                if node.mesh and placed.mesh != node.mesh:
                    yield op, f"puts {what} {i} on @{placed.mesh}", f"its own mesh, @{node.mesh}"
        if key is not None:
            checked.add(key)
    for value, argument in zip(flow.arguments, program.arguments, strict=True):
        if argument.mesh is not None:
            name = argument.shown(value)
            if argument.sharding is None or argument.sharding.mesh != argument.mesh:
                yield program.operation, f"gives {name} no sharding on its mesh", "pw.sharding from phase shard on"
            else:
                yield from _divides(program, program, types[value], argument.sharding, name)


def _divides(
    program: ProgramIR, owner: NodeRecord | ProgramIR, type_: ArrayType, placed: Placed, what: str
) -> Iterator[Broken]:
    """Finds a sharding that is impossible for its array. `owner`: the node or the function that states it."""
    shape = type_.shape
    if placed.mesh not in program.meshes:
        yield owner.operation, f"puts {what} on @{placed.mesh}, which does not exist", "a pw.mesh of the module"
        return
    mesh = program.mesh(placed.mesh)
    names = {name for name, _ in mesh.axes}
    used = [a for axes in placed.dims for a in axes]
    if len(placed.dims) != len(shape) or not names.issuperset(used) or len(set(used)) != len(used):
        yield (
            owner.operation,
            f"splits {what} of shape {list(shape)} as {placed.dims}",
            f"one entry per dimension, axes of {mesh}",
        )
    elif bad := program.sharding(placed).undivided(shape):
        dim, parts = bad[0]
        yield owner.operation, f"splits dimension {dim} of {what} ({shape[dim]}) in {parts}", "parts of equal size"


_Sides: TypeAlias = tuple[tuple[str, tuple[Placed | None, ...]], ...]
"""The arguments and the results of a computation, each with its sharding; None: it has no closed sharding."""


def check_computations(program: ProgramIR) -> Iterator[Broken]:
    """Finds calls whose computation does not state its shardings, or states others than the call."""
    seen: set[tuple[str, str, int, int]] = set()
    sides: dict[str, _Sides] = {}
    meshes: dict[str, dict[str, Axes]] = {}
    for node in program.flow.calls():
        callee = node.callee
        key = callee, node.mesh, id(node.op.in_shardings), id(node.op.out_shardings)
        if key in seen:
            continue
        seen.add(key)
        if callee not in sides:
            computation = program.computations[callee]
            sides[callee], meshes[callee] = _sides(computation), meshes_of(computation)
        for problem, rule in _problems(program, node.op, sides[callee], meshes[callee]):
            yield node.op, f"calls @{callee}, {problem}", rule


def _problems(program: ProgramIR, op: Any, sides: _Sides, meshes: dict[str, Axes]) -> Iterator[tuple[str, str]]:
    mesh = program.mesh(op.mesh)
    axes = mesh.axes
    partitions = stated_partitions(program.computations[op.callee])
    if partitions is None or partitions.value != mesh.size:
        have = "does not state its number of devices" if partitions is None else f"runs on {partitions.value} devices"
        yield f"which {have}", f"mhlo.num_partitions = {mesh.size}, the size of its mesh @{op.mesh}"
    if axes not in meshes.values():
        yield f"which has no sdy.mesh of {mesh}", "an sdy.mesh with the axes of the call from phase shard on"
        return
    for (what, have), need in zip(sides, (op.in_shardings, op.out_shardings), strict=True):
        for i, (placed, stated) in enumerate(zip(have, need, strict=True)):
            if placed is None:
                if mesh.size > 1:
                    rule = "a closed sdy.sharding on all arguments and results of @main from phase shard on"
                    yield f"which states no sharding of {what} {i}", rule
            elif placed.dims != stated.dims or (any(placed.dims) and meshes.get(placed.mesh) != axes):
                yield f"which splits {what} {i} as {placed.dims}", f"{stated.dims} on its mesh, as the call states"


def _sides(computation: Operation) -> _Sides:
    main = main_of(computation)
    return tuple(
        (what, tuple(map(_sharding, described(main, key, len(types)))))
        for what, key, types in (
            ("argument", "arg_attrs", main.type.inputs),
            ("result", "res_attrs", main.type.results),
        )
    )


@remembered
def _sharding(attribute: Any) -> Placed | None:
    if "sdy.sharding" not in attribute:
        return None
    sharding = attribute["sdy.sharding"]
    return read_sharding(sharding) if pw.is_sharding(sharding) and is_closed(sharding) else None
