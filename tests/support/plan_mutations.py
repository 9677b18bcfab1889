"""Mutates plans at three levels: fields of the plan's classes, protobuf bytes, and the archive.

All choices come from the random generator that is passed in, so a seed identifies a mutant. Modules are not mutated.
"""

import hashlib
import io
import json
import random
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeAlias

from pathways.dialect.plan.codec import schema
from pathways.dialect.plan.instructions import Copy, Free
from pathways.dialect.plan.nouns import Plan, Stream
from pathways.dialect.plan.plan_file import write_plan

Path: TypeAlias = tuple[str | int, ...]
_KEPT = frozenset({"module", "local", "constants", "phases", "executables", "callbacks"})
"""Fields that are never mutated: archive members with mutators of their own, and fields that no file contains."""
_NUMBERS = (0, 1, -1, 2, 7, 64, 1 << 20, 1 << 31, (1 << 62) + 1, (1 << 63) - 1, -(1 << 63))
_TEXTS = ("", "\x1b[31mred\x1b[0m", "two\nlines", "\u202eback", "x" * 5000, "../../up", "0:1048576", "key<fry>", "{}")
_SEAL = b"pathways-plan sha256:"


def mutant(plan: Plan, rng: random.Random) -> bytes | None:
    """Returns the archive of a plan with one to three changes; None if the changed plan cannot be written."""
    kind = rng.random()
    if kind < 0.75:
        changed = plan
        try:
            for _ in range(rng.choice((1, 1, 1, 2, 3))):
                changed = (mutate if kind < 0.45 else reorder)(changed, rng)
            return write_plan(changed)
        except (ValueError, TypeError, AttributeError, OverflowError, RecursionError, IndexError):
            return None
    members = members_of(write_plan(plan))
    if kind < 0.85:
        members["plan.pb"] = _fields_changed(members["plan.pb"], rng)
    elif kind < 0.95:
        members["plan.pb"] = _bytes_changed(members["plan.pb"], rng)
    else:
        return resealed(_bytes_changed(archive(members), rng))
    return archive(members)


def mutate(plan: Plan, rng: random.Random) -> Plan:
    """Changes one field, element or order in the plan; every field of every class is equally likely."""
    by_kind: dict[tuple[str, str], list[tuple[Path, Any]]] = {}
    pools: dict[type, list[Any]] = {}
    for path, kind, value in _walk(plan, (), ("Plan", "")):
        by_kind.setdefault(kind, []).append((path, value))
        pools.setdefault(type(value), []).append(value)
    path, value = rng.choice(by_kind[rng.choice(sorted(by_kind))])
    return _with(plan, path, _changed(value, pools, rng))


def reorder(plan: Plan, rng: random.Random) -> Plan:
    """Changes slots, steps or order of instructions in one stream of the plan; the result is often a valid plan."""
    at = rng.randrange(-1, len(plan.bodies))
    streams = plan.streams if at < 0 else plan.bodies[at].streams
    if not streams:
        return plan
    number = rng.randrange(len(streams))
    stream = streams[number]
    todo = list(stream.instructions)
    if not todo:
        return plan
    i, j = rng.randrange(len(todo)), rng.randrange(len(todo))
    match rng.randrange(6):
        case 0:
            todo.insert(j, todo.pop(i))
        case 1:
            todo[i] = replace(todo[i], step=rng.choice((todo[j].step, rng.randrange(100))))
        case 2:
            todo[i] = _other_slots(stream, todo[i], rng)
        case 3:  # drop about half of the Free instructions
            todo = [x for x in todo if not isinstance(x, Free) or rng.random() < 0.5]
        case 4:
            source, target = rng.randrange(len(stream.buffers)), rng.randrange(len(stream.buffers))
            todo.insert(i, Copy(todo[i].step, source, target, None))
        case _:
            return _other_ports(plan, rng)
    changed = (*streams[:number], replace(stream, instructions=tuple(todo)), *streams[number + 1 :])
    if at < 0:
        return replace(plan, streams=changed)
    bodies = (*plan.bodies[:at], replace(plan.bodies[at], streams=changed), *plan.bodies[at + 1 :])
    return replace(plan, bodies=bodies)


def _other_slots(stream: Stream, instruction: Any, rng: random.Random) -> Any:
    """Replaces one slot of an instruction by a slot of the same type."""

    def other(slot: int) -> int:
        kind = stream.buffers[slot].type
        return rng.choice([n for n, b in enumerate(stream.buffers) if b.type == kind])

    for name in rng.sample(("inputs", "outputs", "slots", "slot", "source", "target"), 6):
        content = getattr(instruction, name, None)
        if isinstance(content, int):
            return replace(instruction, **{name: other(content)})
        if isinstance(content, tuple) and content:
            at = rng.randrange(len(content))
            return replace(instruction, **{name: (*content[:at], other(content[at]), *content[at + 1 :])})
    return instruction


def _other_ports(plan: Plan, rng: random.Random) -> Plan:
    """Swaps two arguments or two results of the same type."""
    which = rng.choice(("inputs", "results"))
    ports = list(getattr(plan, which))
    i = rng.randrange(len(ports))
    j = rng.choice([n for n, p in enumerate(ports) if p.type == ports[i].type])
    here, there = ports[i], ports[j]
    ports[i], ports[j] = (
        replace(here, slot=there.slot, island=there.island),
        replace(there, slot=here.slot, island=here.island),
    )
    return replace(plan, **{which: tuple(ports)})


def _walk(value: Any, path: Path, kind: tuple[str, str]) -> Iterator[tuple[Path, tuple[str, str], Any]]:
    if path:
        yield path, kind, value
    if is_dataclass(value):
        for f in fields(value):
            if f.name not in _KEPT:
                yield from _walk(getattr(value, f.name), (*path, f.name), (type(value).__name__, f.name))
    elif isinstance(value, tuple):
        for i, item in enumerate(value):
            yield from _walk(item, (*path, i), (kind[0], f"{kind[1]}[]"))


def _with(value: Any, path: Path, new: Any) -> Any:
    if not path:
        return new
    head, *rest = path
    if isinstance(head, str):
        return replace(value, **{head: _with(getattr(value, head), tuple(rest), new)})
    return (*value[:head], _with(value[head], tuple(rest), new), *value[head + 1 :])


def _changed(value: Any, pools: Mapping[type, list[Any]], rng: random.Random) -> Any:
    match value:
        case bool():
            return not value
        case int():
            return rng.choice((value + 1, value - 1, -value, rng.choice(pools[int]), rng.choice(_NUMBERS)))
        case float():
            return rng.choice((0.0, -1.0, float("nan"), float("inf"), 1e308))
        case str():
            return rng.choice((rng.choice(pools[str]), rng.choice(pools[str]), rng.choice(_TEXTS)))
        case tuple():
            return _rearranged(value, pools, rng)
        case None:
            return rng.choice((0, 1.0, "", 1 << 40))
        case _:
            return rng.choice(pools[type(value)])


def _rearranged(items: tuple[Any, ...], pools: Mapping[type, list[Any]], rng: random.Random) -> tuple[Any, ...]:
    if not items:
        return rng.choice(pools[tuple])
    at, other = rng.randrange(len(items)), rng.randrange(len(items))
    rest = list(items)
    match rng.randrange(7):
        case 0:
            del rest[at]
        case 1:
            rest.insert(other, items[at])
        case 2:
            rest[at], rest[other] = rest[other], rest[at]
        case 3:
            rest.insert(other, rest.pop(at))
        case 4:
            rest.insert(at, rng.choice(pools[type(items[at])]))
        case 5:
            rest[at] = _changed(items[at], pools, rng)
        case _:
            return rng.choice((rng.choice(pools[tuple]), items * 2, items[::-1], ()))
    return tuple(rest)


def _fields_changed(raw: bytes, rng: random.Random) -> bytes:
    """Changes one to three fields of random messages: clears a field, repeats or removes elements, sets a number."""
    from pathways.dialect.plan import codec

    message: Any = codec.plan_message(raw)
    assert message.DESCRIPTOR.name in schema()
    for _ in range(rng.choice((1, 2, 3))):
        inner, descent = message, rng.randrange(6)
        for _ in range(descent):
            below = [f for f, _ in inner.ListFields() if f.message_type is not None]
            if not below:
                break
            field = rng.choice(below)
            content = getattr(inner, field.name)
            inner = rng.choice(content) if field.is_repeated else content
        there = [f for f, _ in inner.ListFields()]
        if not there:
            continue
        field = rng.choice(there)
        content = getattr(inner, field.name)
        _change_field(inner, field, content, rng)
    return message.SerializeToString()


def _change_field(message: Any, field: Any, content: Any, rng: random.Random) -> None:
    actions: list[Callable[[], Any]] = [lambda: message.ClearField(field.name)]
    if field.is_repeated:
        actions += [lambda: content.extend(list(content)), lambda: content.pop(rng.randrange(len(content)))]
    elif field.message_type is None and field.type in (field.TYPE_INT64, field.TYPE_SINT64):
        actions.append(lambda: setattr(message, field.name, rng.choice(_NUMBERS)))
    rng.choice(actions)()


def _bytes_changed(raw: bytes, rng: random.Random) -> bytes:
    changed = bytearray(raw)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at = rng.randrange(len(changed))
        match rng.randrange(4):
            case 0:
                changed[at] ^= 1 << rng.randrange(8)
            case 1:
                changed[at] = rng.randrange(256)
            case 2:
                del changed[at : at + rng.randrange(1, 9)]
            case _:
                changed[at:at] = changed[at : at + rng.randrange(1, 65)]
    return bytes(changed)


def members_of(raw: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(raw)) as opened:
        return {n: opened.read(n) for n in opened.namelist()}


def archive(members: Mapping[str, bytes], *, twice: tuple[str, ...] = ()) -> bytes:
    """Builds a plan.bin of these members with correct digests and seal; members in `twice` are written twice."""
    told = {n: data for n, data in members.items() if n != "manifest.json" and not n.startswith("executables/")}
    manifest = json.loads(members["manifest.json"])
    manifest["members"] = {n: hashlib.sha256(data).hexdigest() for n, data in told.items()}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as made:
        made.writestr("manifest.json", json.dumps(manifest))
        for name in (*(n for n in members if n != "manifest.json"), *twice):
            made.writestr(zipfile.ZipInfo(name), members[name])
        made.comment = _SEAL + b"0" * 64
    return resealed(out.getvalue())


def resealed(raw: bytes) -> bytes:
    """Replaces the seal of an archive by the correct one."""
    body = raw[: -len(_SEAL) - 64]
    return body + _SEAL + hashlib.sha256(body).hexdigest().encode()
