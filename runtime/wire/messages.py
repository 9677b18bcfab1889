"""The messages between a controller and the hosts of its islands, and how each is written.

Those that every run needs are vectors of 64-bit integers; others are JSON, with raw bytes behind it where they carry
data. What a peer sends is checked here: nothing behind `decode` sees a message of another form.
"""

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias, cast, get_args, get_type_hints

from pathways.dialect.diagnostics import PathwaysError
from pathways.runtime.wire.errors import BadMessage

Ids: TypeAlias = tuple[int, ...]
MOST_HOT = 1 << 20
"""The most bytes of a message of integers."""
MOST_COLD = 1 << 40
"""The most bytes of any other: a plan, or an array."""


@dataclass(frozen=True)
class Hello:
    """A host to its controller, once: what it is."""

    island: str
    pid: int
    versions: dict[str, str]


@dataclass(frozen=True)
class LoadPlan:
    """Load a plan (`blob`: the bytes of plan.bin), of which a host executes what is on its island."""

    request: int
    plan: int
    path: str
    sequential: bool
    blob: bytes


@dataclass(frozen=True)
class UnloadPlan:
    """No run of this plan will come any more."""

    plan: int


@dataclass(frozen=True)
class Answer:
    """Something asked for: done, or the diagnostic why not."""

    request: int
    error: str = ""
    value: str = ""
    blob: bytes = b""


@dataclass(frozen=True)
class Connect:
    """Where the data of other islands comes from: the addresses of their transfer servers for this one.

    An empty address asks for that of this host's own server for the island: the answer's value is JSON, by island.
    """

    request: int
    addresses: dict[str, str]


@dataclass(frozen=True)
class PutArray:
    """An argument of a plan, by the index of its input: `blob` is the whole array, in its stored form."""

    array: int
    plan: int
    input: int
    blob: bytes


@dataclass(frozen=True)
class PutPoison:
    """An argument that will never be there, and why."""

    array: int
    cause: str


@dataclass(frozen=True)
class RunPlan:
    """Run a plan on the arguments of this host's inputs. The results of the whole plan are numbered from `results`.

    `transfers` is the first of the numbers under which values go between islands. `wanted`: what is looked for in the
    results of its steps (host/observe/numbers.py).
    """

    plan: int
    run: int
    transfers: int
    results: int
    wanted: int = field(default=0, kw_only=True)
    arguments: Ids


@dataclass(frozen=True)
class Done:
    """All of a run is done on this host, after so many nanoseconds."""

    run: int
    nanoseconds: int


@dataclass(frozen=True)
class Failed:
    """As Done, of a run with bad results: diagnostics by the index of each.

    `found`: the diagnostic of what was looked for in its steps, and found first at `step`.
    """

    run: int
    nanoseconds: int
    causes: dict[str, str]
    found: str = ""
    step: int = 0


@dataclass(frozen=True)
class CopyArray:
    """Make a copy of an array, which a later run may overwrite."""

    source: int
    target: int


@dataclass(frozen=True)
class FreeArrays:
    """No run will name these arrays again."""

    arrays: Ids


@dataclass(frozen=True)
class FetchArray:
    """Send the values of an array; of one shard, by position, or of the whole (-1)."""

    request: int
    array: int
    shard: int


@dataclass(frozen=True)
class Inject:
    """Bring a fault (JSON: its fields) to steps; without one, end the last. The answer says how often that happened."""

    request: int
    fault: str


@dataclass(frozen=True)
class CountCosts:
    """Ask XLA what a run of a plan costs here: the answer's value is JSON (host/load/costs.py)."""

    request: int
    plan: int


@dataclass(frozen=True)
class Record:
    """Record runs from now on, at most so many launches; 0: stop. The answer's blob is what was recorded until then."""

    request: int
    most: int


@dataclass(frozen=True)
class TellTime:
    """Say what time it is, at once: the answer's value is in nanoseconds of a clock of the host."""

    request: int


@dataclass(frozen=True)
class Hangs:
    """A host to its controller: something hangs there for good, what is said of it, and how many faults happened."""

    cause: str
    faults: int


@dataclass(frozen=True)
class CallRoll:
    """Another host of the island makes no progress: the answer's value is JSON, for how many seconds nothing computes
    on this one, and what it has launched (lines)."""

    request: int


@dataclass(frozen=True)
class Beat:
    """A host to its controller, twice a second: it is there, has enqueued so many runs, and has so many arrays."""

    runs: int
    arrays: int


@dataclass(frozen=True)
class Fence:
    """The host of an island is gone: nothing that it was to send will come. `cause`: a diagnostic."""

    island: str
    cause: str


@dataclass(frozen=True)
class Decided:
    """What a branch of a run goes by, under a name: a host to its controller, and that to all hosts that have a part.

    `branch` is its number in the plan (dialect/plan/part.py), `loop` the name of this run of it.
    """

    run: int
    branch: int
    loop: int
    name: int
    value: int


@dataclass(frozen=True)
class Undecided:
    """As Decided, of what will never be known: a diagnostic says why. Names below 0: all that is not decided yet."""

    run: int
    branch: int
    loop: int
    name: int
    cause: str


@dataclass(frozen=True)
class Reached:
    """A host to its controller: all of a loop's turns so far are behind it, and it waits for the next decision."""

    run: int
    branch: int
    loop: int


Message: TypeAlias = (
    Hello
    | LoadPlan
    | UnloadPlan
    | Answer
    | Connect
    | PutArray
    | PutPoison
    | RunPlan
    | Done
    | Failed
    | CopyArray
    | FreeArrays
    | FetchArray
    | Inject
    | CountCosts
    | Record
    | TellTime
    | Hangs
    | CallRoll
    | Beat
    | Fence
    | Decided
    | Undecided
    | Reached
)
MESSAGES: tuple[type[Message], ...] = get_args(Message)
_KINDS: dict[type[Any], int] = {cls: number for number, cls in enumerate(MESSAGES)}
_HINTS: dict[type[Any], dict[str, Any]] = {cls: get_type_hints(cls) for cls in MESSAGES}
_HOT = frozenset(
    {UnloadPlan, RunPlan, Done, CopyArray, FreeArrays, FetchArray, Beat, CallRoll, TellTime, Decided, Reached}
)
_COUNT = struct.Struct("<I")


def encode(message: Message) -> tuple[int, bytes, bytes]:
    """The kind of a message, its payload, and the raw bytes behind that."""
    cls = type(message)
    kind = _KINDS[cls]
    if cls in _HOT:
        numbers: list[int] = []
        for name in _HINTS[cls]:
            value = getattr(message, name)
            numbers += value if isinstance(value, tuple) else (value,)
        return kind, struct.pack(f"<{len(numbers)}q", *numbers), b""
    values = {f.name: getattr(message, f.name) for f in fields(message)}
    blob = values.pop("blob", b"")
    text = json.dumps(values).encode()
    return kind, _COUNT.pack(len(text)) + text, blob


def decode(kind: int, payload: bytes | bytearray) -> Message:
    """Reads a message. Raises PWC0911 for what is none."""
    if not 0 <= kind < len(MESSAGES):
        raise _bad(f"a message of kind {kind}", f"kinds 0 to {len(MESSAGES) - 1}")
    cls = MESSAGES[kind]
    try:
        return _hot(cls, payload) if cls in _HOT else _cold(cls, payload)
    except (struct.error, ValueError, TypeError, KeyError, RecursionError) as error:
        raise _bad(f"{cls.__name__}: {error}", "a message as this version writes it") from None


def most_bytes(kind: int) -> int:
    """The most bytes of a message of this kind."""
    return MOST_HOT if kind < len(MESSAGES) and MESSAGES[kind] in _HOT else MOST_COLD


def _hot(cls: type[Any], payload: bytes | bytearray) -> Message:
    numbers = struct.unpack(f"<{len(payload) // 8}q", payload)
    hints = _HINTS[cls]
    single = [name for name, hint in hints.items() if hint is int]
    if len(numbers) < len(single) or (len(numbers) > len(single) == len(hints)):
        raise ValueError(f"{len(numbers)} numbers")
    values: dict[str, Any] = dict(zip(single, numbers, strict=False))
    return cls(**values, **{name: numbers[len(single) :] for name in hints if name not in values})


def _cold(cls: type[Any], payload: bytes | bytearray) -> Message:
    (size,) = _COUNT.unpack_from(payload)
    text, blob = payload[_COUNT.size : _COUNT.size + size], payload[_COUNT.size + size :]
    if len(text) != size:
        raise ValueError("it ends too early")
    values: Any = json.loads(text)
    hints = _HINTS[cls]
    if "blob" in hints:
        values["blob"] = bytes(blob)
    elif blob:
        raise ValueError(f"{len(blob)} bytes too many")
    if not isinstance(values, dict) or set(cast("dict[str, Any]", values)) != set(hints):
        raise ValueError("other fields")
    for name, hint in hints.items():
        if not _ACCEPTS[hint](values[name]):
            raise ValueError(f"{name} = {values[name]!r}")
    return cls(**values)


def _is_texts(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(k, str) and isinstance(v, str) for k, v in cast("dict[Any, Any]", value).items()
    )


_ACCEPTS: dict[Any, Callable[[Any], bool]] = {
    int: lambda v: type(v) is int,
    bool: lambda v: type(v) is bool,
    str: lambda v: isinstance(v, str),
    bytes: lambda v: isinstance(v, bytes),
    dict[str, str]: _is_texts,
}


def _bad(have: str, rule: str) -> PathwaysError:
    return PathwaysError(BadMessage(have_=have, rule=rule))
