"""Checks the loops and branches of a plan: their operands and results match those of the bodies that they run.
`check.py` calls it. Pure functions.

The branches of a body may run only bodies before it, so that no body runs itself.
"""

from collections.abc import Iterator, Sequence

from pathways.dialect.dtypes import ArrayType
from pathways.dialect.plan.instructions import Branch
from pathways.dialect.plan.nouns import BufferKind, Plan, Port

_Problems = Iterator[tuple[str, str]]


def branch_problems(plan: Plan) -> _Problems:
    """Finds problems in the branches of one function, whose slots are known to exist."""
    joined: dict[int, list[tuple[str, Branch]]] = {}
    for stream in plan.streams:
        for i in stream.instructions:
            if isinstance(i, Branch):
                joined.setdefault(i.step, []).append((stream.island, i))
    for step, parts in joined.items():
        first = parts[0][1]
        same = all((b.kind, b.bodies) == (first.kind, first.bodies) for _, b in parts)
        if not same or len({island for island, _ in parts}) != len(parts):
            yield f"step {step} is another branch on each island", "one part of the same branch per island"
        elif (
            first.kind not in ("cond", "while")
            or not first.bodies
            or (first.kind == "while" and len(first.bodies) != 2)
        ):
            yield f"step {step} is a {first.kind} of {len(first.bodies)} bodies", "a cond with bodies, a while with two"
        elif bad := [b for b in first.bodies if not 0 <= b < len(plan.bodies)]:
            yield f"step {step} runs bodies {bad}", f"bodies before it: {len(plan.bodies)}"
        else:
            yield from _parts(plan, parts)


def _parts(plan: Plan, parts: Sequence[tuple[str, Branch]]) -> _Problems:
    """Checks together the instructions of one branch on all its islands."""
    first = parts[0][1]
    name = f"step {first.step} ({first.name})"
    operands: dict[int, tuple[str, BufferKind]] = {}
    results: dict[int, tuple[str, BufferKind]] = {}
    for island, b in parts:
        if len(b.inputs) != len(b.taken) or len(b.outputs) != len(b.made):
            yield f"{name} names {len(b.inputs)} slots for {len(b.taken)} operands", "a slot for each operand"
            return
        if len(set(b.donated)) != len(b.donated) or any(not 0 <= i < len(b.inputs) for i in b.donated):
            yield f"{name} donates {b.donated} of {len(b.inputs)} inputs", "each at most once"
            return
        meshes = [m for m in b.meshes if not 0 <= m < len(plan.meshes) or plan.meshes[m].island != island]
        if meshes:
            yield f"{name} works on meshes {meshes} of {island}", "meshes of its island"
            return
        kinds = plan.stream(island).kind_of
        for known, numbers, slots in ((operands, b.taken, b.inputs), (results, b.made, b.outputs)):
            if set(numbers) & known.keys() or len(set(numbers)) != len(numbers):
                yield f"{name} has some operands or results twice", "each on one island"
                return
            known.update((n, (island, kinds[s])) for n, s in zip(numbers, slots, strict=True))
    for what, known in (("operands", operands), ("results", results)):
        if sorted(known) != list(range(len(known))):
            yield f"{name} has the {what} {sorted(known)}", "consecutive numbers from 0"
            return
    yield from _bodies(
        plan, first, name, [operands[n] for n in sorted(operands)], [results[n] for n in sorted(results)]
    )
    missing = {s.island for b in first.bodies for s in plan.bodies[b].streams} - {island for island, _ in parts}
    if missing:
        yield f"{name} runs bodies on {sorted(missing)}", "a part of the branch on each island of its bodies"


def _bodies(
    plan: Plan, branch: Branch, name: str, operands: list[tuple[str, BufferKind]], results: list[tuple[str, BufferKind]]
) -> _Problems:
    taken, loops = operands, branch.kind == "while"
    if not loops:
        if not operands or operands[0][1].type != ArrayType((), "int32"):
            yield f"{name} has a condition of type {operands[0][1].type if operands else 'nothing'}", "int32[]"
            return
        taken = operands[1:]
    elif len(results) > len(operands):
        yield f"{name} has {len(results)} results", f"at most {len(operands)}, the values that it carries"
        return
    for position, number in enumerate(branch.bodies):
        inner = plan.of_body(number)
        last = len(taken) - len(results) if loops and position == 1 else len(taken)
        if any(p.donated for p in inner.inputs[:last]):
            yield f"{name} runs a body that overwrites its inputs", "a loop that overwrites only what it carries"
        yield from _side(inner, inner.inputs, taken, f"{name} operand")
        if loops and position == 0:
            types = [p.type for p in inner.results]
            if types != [ArrayType((), "bool")]:
                yield f"{name} has a loop condition of types {types}", "bool[]"
        else:
            yield from _side(inner, inner.results, results, f"{name} result")
    if loops:
        for i, (here, there) in enumerate(zip(operands[len(operands) - len(results) :], results, strict=True)):
            if not _same(plan, here, there):
                yield f"{name} changes the type or place of the carried value {i}", "the type and place of its operand"


def _side(inner: Plan, ports: Sequence[Port], outside: Sequence[tuple[str, BufferKind]], what: str) -> _Problems:
    """Compares the operands, or the results, of a body with those of its branch."""
    if len(ports) != len(outside):
        yield f"{what}s: {len(outside)}", f"{len(ports)}, as the body has"
        return
    for i, (port, here) in enumerate(zip(ports, outside, strict=True)):
        if port.slot < 0:
            continue
        inside = port.island, inner.stream(port.island).kind_of[port.slot]
        if not _same(inner, here, inside):
            yield f"{what} {i} is {here[1].type} on {here[0]}", f"{inside[1].type} on {port.island}, as the body has it"


def _same(plan: Plan, a: tuple[str, BufferKind], b: tuple[str, BufferKind]) -> bool:
    if a[0] != b[0] or a[1].type != b[1].type:
        return False
    return plan.sharding(a[1].layout).same_layout(plan.sharding(b[1].layout), a[1].type.shape)
