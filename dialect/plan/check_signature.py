"""Checks the arguments, results and constants of a plan: each has a buffer of its type, and their number matches the
pytree structures. `check.py` calls it. Pure functions.
"""

from collections import Counter
from collections.abc import Iterator

from pathways.dialect.dtypes import ArrayType
from pathways.dialect.jax_api import eval_shape, random
from pathways.dialect.pieces import leaves, piece_problem
from pathways.dialect.plan.check_types import type_problem
from pathways.dialect.plan.nouns import ConstantData, Plan, Port, Stream
from pathways.dialect.trees import count_leaves, tree_problem

_Problems = Iterator[tuple[str, str]]
_WORDS = {"fry": 2, "rbg": 4, "urbg": 4}
"""The number of 32-bit words in the data of one key, for JAX's own kinds of PRNG keys."""


def tree_problems(plan: Plan) -> _Problems:
    """Finds problems in the pytree structures of arguments and results."""
    for what, tree, ports in (("arguments", plan.in_tree, plan.inputs), ("results", plan.out_tree, plan.results)):
        if (problem := tree_problem(tree)) is not None:
            yield f"{what} in {problem}", "a pytree structure of JAX"
        elif (problem := piece_problem([(p.piece, p.type.shape, _of_a_leaf(p)) for p in ports])) is not None:
            yield f"{what} with {problem}", "consecutive pieces that cover one axis of one array"
        elif (count := sum(1 for _ in leaves([p.piece for p in ports]))) != count_leaves(tree):
            yield f"{count} {what} in a tree of {count_leaves(tree)} leaves", "one leaf per array"


def _of_a_leaf(port: Port) -> tuple[object, ...]:
    """Returns the properties that all pieces of an array must share."""
    return port.type.dtype, port.dtype, port.weak, port.donated


def port_problems(plan: Plan) -> _Problems:
    """Finds problems in the ports and constants of one function, whose buffers are already checked."""
    streams = {s.island: s for s in plan.streams}
    taken = Counter((p.island, p.slot) for p in plan.inputs if p.slot >= 0)
    taken.update((c.island, c.slot) for c in plan.constant_buffers)
    if shared := [k for k, n in taken.items() if n > 1]:
        yield f"several inputs or constants in {shared}", "a different slot for each"
    for port in (*plan.inputs, *plan.results):
        yield from _port(streams, port)
    for number, port in enumerate(plan.results):
        if port.slot < 0:
            yield f"result {port.name or number} without a slot", "a slot for every result"
    for held in plan.constant_buffers:
        yield from _constant(plan, streams, held)


def _port(streams: dict[str, Stream], port: Port) -> _Problems:
    name = port.name or "an array without a name"
    if port.slot < -1:
        yield f"{name} in slot {port.slot}", "a slot, or -1"
    elif port.slot >= 0:
        stream = streams.get(port.island)
        if stream is None or port.slot >= len(stream.kind_of):
            yield f"{name} in slot {port.slot} of {port.island}", "a slot that exists"
            return
        if stream.kind_of[port.slot].type != port.type:
            yield f"{name} is {port.type}, its buffer {stream.kind_of[port.slot].type}", "equal types"
    if (problem := type_problem(port.type)) is not None:
        yield f"{name} {problem[0]}", problem[1]
    elif not _is_stored_as(port.dtype, port.type):
        yield f"{name} of {port.dtype}, stored as {port.type}", "an element type, and how JAX stores it"


def _is_stored_as(dtype: str, type_: ArrayType) -> bool:
    """Returns whether arrays of `dtype` are stored as this type: unchanged, keys as data, `float0` as booleans."""
    if dtype == type_.dtype or (dtype == "float0" and type_.dtype == "bool"):
        return True
    if not (dtype.startswith("key<") and dtype.endswith(">") and type_.dtype == "uint32" and type_.shape):
        return False
    return type_.shape[-1] == (_WORDS.get(dtype[4:-1]) or _words(dtype[4:-1]))


def _words(kind: str) -> int | None:
    """Returns the words in the data of a key whose kind is registered in this process; None for other kinds."""
    try:
        return eval_shape(lambda: random.key_data(random.key(0, impl=kind))).shape[-1]
    except Exception:  # JAX raises different errors for unknown names
        return None


def _constant(plan: Plan, streams: dict[str, Stream], held: ConstantData) -> _Problems:
    stream = streams.get(held.island)
    if stream is None or not 0 <= held.slot < len(stream.kind_of):
        yield f"a constant in slot {held.slot} of {held.island}", "a slot that exists"
        return
    type_, raw = stream.kind_of[held.slot].type, plan.constants.get(held.member)
    if raw is None or len(raw) != type_.bytes:
        yield f"constant {held.member} of the wrong size", f"{type_.bytes} bytes"
    elif type_.dtype == "bool" and raw.translate(None, b"\0\1"):
        yield f"constant {held.member} with bytes that are not booleans", "bytes 0 and 1"
