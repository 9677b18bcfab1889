"""How messages are written, and read.

Those that every run needs are vectors of 64-bit integers; others are JSON; raw bytes stand behind either where they
carry data. What a peer sends is checked here: nothing behind `decode` sees a message of another form.
"""

import json
import struct
from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any, cast, get_args, get_type_hints

from pathways.dialect.diagnostics import PathwaysError
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.errors import BadMessage
from pathways.runtime.wire.messages import Message

MOST_HOT = 1 << 20
"""The most bytes of a message of integers."""
MOST_COLD = 1 << 40
"""The most bytes of any other: a plan, or an array."""
MESSAGES: tuple[type[Message], ...] = get_args(Message)
_KINDS: dict[type[Any], int] = {cls: number for number, cls in enumerate(MESSAGES)}
_HINTS: dict[type[Any], dict[str, Any]] = {cls: get_type_hints(cls) for cls in MESSAGES}
_HOT: frozenset[type[Any]] = frozenset(
    {
        m.UnloadPlan, m.RunPlan, m.Done, m.CopyArray, m.FreeArrays, m.FetchArray, m.Beat, m.CallRoll, m.TellTime,
        m.Decided, m.Reached, m.Flush, m.Submit, m.Relayed, m.Hold,
    }
)  # fmt: skip
_CARRYING = frozenset(cls for cls in _HOT if "blob" in _HINTS[cls])
_NUMBERS = {cls: [name for name in _HINTS[cls] if name != "blob"] for cls in _HOT}
_COUNT = struct.Struct("<I")
_RELAYED = struct.Struct("<QBIqqq")
_PARCEL = struct.Struct("<IIQB")
"""The number of an island, its epoch, the size of the payload, the kind of message."""


def relayed(island: int, epoch: int, rank: int, frame: bytes) -> bytes:
    """The frame of a `Relayed`, which a controller writes once a host and run."""
    return _RELAYED.pack(_COUNT.size + 24 + len(frame), _KINDS[m.Relayed], 3, island, epoch, rank) + frame


def pack_parcels(parcels: Iterable[tuple[int, int, Message]]) -> bytes:
    """Writes messages to several islands, by number and epoch, for `Submit`."""
    found: list[bytes] = []
    for island, epoch, message in parcels:
        kind, payload, _ = encode(message)
        found += (_PARCEL.pack(island, epoch, len(payload), kind), payload)
    return b"".join(found)


def read_parcels(blob: bytes) -> list[tuple[int, int, int, bytes]]:
    """Reads what `pack_parcels` writes: island, epoch, kind and payload of each. Raises PWC0911 for what is none."""
    found: list[tuple[int, int, int, bytes]] = []
    at = 0
    while at < len(blob):
        if len(blob) < at + _PARCEL.size:
            raise _bad("a parcel that ends too early", "whole parcels")
        island, epoch, size, kind = _PARCEL.unpack_from(blob, at)
        at += _PARCEL.size
        if len(blob) < at + size:
            raise _bad("a parcel that ends too early", "whole parcels")
        found.append((island, epoch, kind, blob[at : at + size]))
        at += size
    return found


def encode(message: Message) -> tuple[int, bytes, bytes]:
    """The kind of a message, its payload, and the raw bytes behind that."""
    cls = type(message)
    kind = _KINDS[cls]
    if cls in _HOT:
        numbers: list[int] = []
        for name in _NUMBERS[cls]:
            value = getattr(message, name)
            numbers += value if isinstance(value, tuple) else (value,)
        payload = struct.pack(f"<{len(numbers)}q", *numbers)
        if cls in _CARRYING:
            payload = _COUNT.pack(len(numbers)) + payload
        return kind, payload, getattr(message, "blob", b"")
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
    hot = kind < len(MESSAGES) and MESSAGES[kind] in _HOT and MESSAGES[kind] not in _CARRYING
    return MOST_HOT if hot else MOST_COLD


def _hot(cls: type[Any], payload: bytes | bytearray) -> Message:
    names = _NUMBERS[cls]
    carried: dict[str, Any] = {}
    if cls in _CARRYING:
        end = _COUNT.size + 8 * _COUNT.unpack_from(payload)[0]
        if len(payload) < end:
            raise ValueError("it ends too early")
        carried["blob"] = bytes(payload[end:])
        payload = payload[_COUNT.size : end]
    numbers = struct.unpack(f"<{len(payload) // 8}q", payload)
    hints = _HINTS[cls]
    single = [name for name in names if hints[name] is int]
    if len(numbers) < len(single) or (len(numbers) > len(single) == len(names)):
        raise ValueError(f"{len(numbers)} numbers")
    values: dict[str, Any] = dict(zip(single, numbers, strict=False))
    return cls(**values, **{name: numbers[len(single) :] for name in names if name not in values}, **carried)


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
