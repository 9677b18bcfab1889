"""Converts messages between processes to bytes (MessagePack) and back, and checks the types of all fields. Connections
between clients, controllers and hosts use it. Transfers of arrays between hosts (`host/between/`) do not. Large data in
a field `blob` is sent without a copy.

Code that handles messages thus never sees malformed ones. The bytes of a `blob` follow the payload unpacked.
`check_fields` (fields.py) checks the values that a client may send.
"""

import struct
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, TypeAlias, cast, get_type_hints

import msgspec
from msgspec.structs import astuple

from pathways.dialect.diagnostics import PathwaysError
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.errors import BadMessage
from pathways.runtime.wire.frames import HEADER, JOINED_BYTES, Payload, frame_of

MAX_NUMBERS_BYTES = 1 << 20
"""Size limit in bytes of messages that hold only numbers. Decoding takes up to 40 times this size in memory."""
MAX_TALK_BYTES = 1 << 22
"""Size limit in bytes of client messages without data."""
MAX_FRAMES = 1 << 12
"""Maximum number of messages to one island per run."""
MAX_BYTES = 1 << 40
"""Size limit in bytes of all other messages: a plan or an array."""
Message = m.Message
MESSAGES: tuple[type[Message], ...] = tuple(Message.__subclasses__())
"""The message classes; the position is the kind. `messages` imports the declaring modules in a fixed order."""
_KINDS: dict[type[Message], int] = {cls: number for number, cls in enumerate(MESSAGES)}
_HINTS: dict[type[Message], dict[str, Any]] = {cls: get_type_hints(cls) for cls in MESSAGES}
_CARRYING = frozenset(cls for cls in MESSAGES if "blob" in _HINTS[cls])
_OF_VALUES = frozenset({m.PutArray, m.Answer})
"""Messages whose `blob`, if it is large, is a view of the received bytes: the values of arrays."""
_OF_NUMBERS = frozenset(cls for cls in MESSAGES if {*_HINTS[cls].values()} <= {int, bool, tuple[int, ...]})
_write = msgspec.msgpack.Encoder().encode
_COUNT = struct.Struct("<I")
_PARCEL = struct.Struct("<IIQ")
"""Island number, epoch, size of the frames in bytes."""


Parcel: TypeAlias = tuple[int, int, Sequence[Message]]
"""Island number, epoch, and the messages to that island."""


def pack_parcels(parcels: Iterable[Parcel]) -> bytes:
    """Packs the messages to several islands, with island number and epoch, for `Submit`."""
    found: list[bytes] = []
    for island, epoch, messages in parcels:
        frames = b"".join(map(frame_bytes, messages))
        found += (_PARCEL.pack(island, epoch, len(frames)), frames)
    return b"".join(found)


def read_parcels(blob: bytes) -> list[tuple[int, int, bytes]]:
    """Unpacks parcels into island, epoch and frames. Raises PWC0911 if the bytes are not whole parcels."""
    found: list[tuple[int, int, bytes]] = []
    at = 0
    while at < len(blob):
        island, epoch, size = _PARCEL.unpack_from(blob, at) if len(blob) >= at + _PARCEL.size else (0, 0, len(blob))
        at += _PARCEL.size + size
        if len(blob) < at:
            raise _bad("an incomplete parcel", "complete parcels")
        found.append((island, epoch, blob[at - size : at]))
    return found


def frame_bytes(message: Message) -> bytes:
    """Writes a message as one frame."""
    return b"".join(frame_of(*encode(message)))


def read_frames(data: bytes, expected: Collection[type[Message]] = MESSAGES) -> list[Message]:
    """Decodes whole frames. Raises PWC0911 for other bytes, and for an unexpected message before it is decoded."""
    found: list[Message] = []
    at = 0
    while at < len(data):
        size, kind = HEADER.unpack_from(data, at) if len(data) >= at + HEADER.size else (len(data), 0)
        at += HEADER.size + size
        if len(data) < at:
            raise _bad(f"an incomplete frame in {len(data)} bytes", "complete frames")
        if size > max_bytes(kind) or len(found) > MAX_FRAMES:
            have, rule = f"message {len(found)}, of {size:,} bytes", f"at most {MAX_FRAMES:,} of {max_bytes(kind):,}"
            raise _bad(have, rule)
        _check_kind(kind, expected)
        found.append(decode(kind, data[at - size : at]))
    return found


def encode(message: Message) -> tuple[int, bytes, bytes]:
    """Returns the kind of a message, its payload, and the raw bytes that follow the payload."""
    cls = type(message)
    try:
        if cls not in _CARRYING:
            return _KINDS[cls], _write(message), b""
        *values, blob = astuple(message)
        packed = _write(values)
        return _KINDS[cls], _COUNT.pack(len(packed)) + packed, blob
    except UnicodeEncodeError:  # a string with bytes that are not valid UTF-8, such as a file name
        return encode(cls(*map(_in_utf8, astuple(message))))


def _in_utf8(value: Any) -> Any:
    """Escapes characters that UTF-8 cannot encode, in all strings of a value."""
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value)
        return {_in_utf8(key): _in_utf8(item) for key, item in items.items()}
    if isinstance(value, tuple | frozenset):
        parts = map(_in_utf8, cast("tuple[Any, ...] | frozenset[Any]", value))
        return tuple(parts) if isinstance(value, tuple) else frozenset(parts)
    return value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value


def decode(kind: int, payload: Payload) -> Message:
    """Decodes a message. Raises PWC0911 if the payload is not a message of this kind."""
    if not 0 <= kind < len(MESSAGES):
        raise _bad(f"a message of kind {kind}", f"kinds 0 to {len(MESSAGES) - 1}")
    try:
        return _READERS[kind](payload)
    except (msgspec.DecodeError, struct.error, ValueError, RecursionError) as error:
        raise _bad(f"{MESSAGES[kind].__name__}: {error}", "a message as this version writes it") from None


def read_expected(kind: int, payload: Payload, expected: Collection[type[Message]]) -> Message:
    """Decodes a client's message of one of these classes. Raises PWC0911 for other classes before decoding.

    Limits a message without raw bytes to `MAX_TALK_BYTES`: a decoded message takes up to 25 times its size.
    """
    _check_kind(kind, expected)
    if len(payload) > MAX_TALK_BYTES and MESSAGES[kind] not in _CARRYING:
        raise _bad(f"a {MESSAGES[kind].__name__} of {len(payload):,} bytes", f"at most {MAX_TALK_BYTES:,} bytes")
    return decode(kind, payload)


def _check_kind(kind: int, expected: Collection[type[Message]]) -> None:
    if not 0 <= kind < len(MESSAGES) or MESSAGES[kind] not in expected:
        name = MESSAGES[kind].__name__ if 0 <= kind < len(MESSAGES) else f"message of kind {kind}"
        raise _bad(f"a {name}", f"one of {', '.join(cls.__name__ for cls in expected)}")


def max_bytes(kind: int) -> int:
    """Returns the largest size of a message of this kind, in bytes."""
    return MAX_NUMBERS_BYTES if kind < len(MESSAGES) and MESSAGES[kind] in _OF_NUMBERS else MAX_BYTES


def _reader_of(cls: Any) -> Callable[[Payload], Message]:
    if cls not in _CARRYING:
        return msgspec.msgpack.Decoder(cls).decode
    *hints, _ = get_type_hints(cls, include_extras=True).values()
    values: Any = tuple[tuple(hints)]
    read_values = msgspec.msgpack.Decoder(values).decode
    keeps = cls in _OF_VALUES

    def read(payload: Payload) -> Message:
        end = _COUNT.size + _COUNT.unpack_from(payload)[0]
        whole = memoryview(payload)
        blob = whole[end:]
        return cls(*read_values(whole[_COUNT.size : end]), blob if keeps and len(blob) > JOINED_BYTES else bytes(blob))

    return read


_READERS = [_reader_of(cls) for cls in MESSAGES]


def _bad(have: str, rule: str) -> PathwaysError:
    return PathwaysError(BadMessage(have_=have, rule=rule))
