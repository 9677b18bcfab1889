"""Messages are written as they are read, down to each byte of a parcel, and are refused in any other form."""

import json
import struct
from typing import Any

import pytest
from support.codes import code_of

from pathways.runtime.wire import messages as m
from pathways.runtime.wire.encoding import (
    MESSAGES,
    decode,
    encode,
    most_bytes,
    pack_parcels,
    read_parcels,
    relayed,
)
from pathways.runtime.wire.frames import frame_of

RUN = m.RunPlan(7, 8, 9, 10, (11, -1))
PARCELS: list[list[tuple[int, int, m.Message]]] = [
    [],
    [(0, 0, RUN)],
    [(2, 5, RUN), (1, 1 << 31, m.FreeArrays((3,))), (0, 1, m.FreeArrays(()))],
]


def kind_of(cls: type[Any]) -> int:
    return MESSAGES.index(cls)


def numbers(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}q", *values)


def cold(values: Any, blob: bytes = b"") -> bytes:
    text = json.dumps(values).encode()
    return struct.pack("<I", len(text)) + text + blob


@pytest.mark.parametrize("blob", [b"", b"x", bytes(100)])
def test_a_relayed_frame_is_that_of_its_message(blob: bytes) -> None:
    whole = b"".join(bytes(piece) for piece in frame_of(*encode(m.Relayed(3, 5, 2, blob))))
    assert relayed(3, 5, 2, blob) == whole


@pytest.mark.parametrize("parcels", PARCELS)
def test_parcels_are_read_as_they_were_packed(parcels: list[tuple[int, int, m.Message]]) -> None:
    found = read_parcels(pack_parcels(parcels))
    assert [(island, epoch, decode(kind, payload)) for island, epoch, kind, payload in found] == parcels


def test_a_truncated_parcel_is_refused() -> None:
    first, whole = pack_parcels(PARCELS[2][:1]), pack_parcels(PARCELS[2])
    ends = {0, len(first), len(pack_parcels(PARCELS[2][:2])), len(whole)}
    for end in range(len(whole) + 1):
        if end in ends:
            read_parcels(whole[:end])
        else:
            assert code_of(read_parcels, whole[:end]) == "PWC0911"


def test_messages_of_numbers_are_small_and_others_may_carry_an_array() -> None:
    for cls in (m.Done, m.RunPlan, m.FreeArrays, m.Beat):
        assert most_bytes(kind_of(cls)) == 1 << 20
    for cls in (m.Submit, m.Relayed, m.LoadPlan, m.PutArray, m.Answer):
        assert most_bytes(kind_of(cls)) == 1 << 40
    assert most_bytes(len(MESSAGES)) == most_bytes(255) == 1 << 40, "unknown kinds are refused when they are decoded"


@pytest.mark.parametrize("kind", [-1, len(MESSAGES), 255])
def test_an_unknown_kind_is_refused(kind: int) -> None:
    assert code_of(decode, kind, cold({})) == "PWC0911"


@pytest.mark.parametrize(
    ("cls", "payload", "message"),
    [
        (m.Done, numbers(1, 2), m.Done(1, 2)),
        (m.FreeArrays, b"", m.FreeArrays(())),
        (m.FreeArrays, numbers(5, 6), m.FreeArrays((5, 6))),
        (m.RunPlan, numbers(1, 2, 3, 4, 0), m.RunPlan(1, 2, 3, 4, ())),
        (m.Relayed, struct.pack("<I", 3) + numbers(1, 2, 3), m.Relayed(1, 2, 3, b"")),
        (m.Relayed, struct.pack("<I", 3) + numbers(1, 2, 3) + b"xy", m.Relayed(1, 2, 3, b"xy")),
    ],
)
def test_a_message_of_numbers_has_no_other_bytes(cls: type[Any], payload: bytes, message: m.Message) -> None:
    assert decode(kind_of(cls), payload) == message
    if payload and cls is not m.FreeArrays and not payload.endswith(b"xy"):
        assert code_of(decode, kind_of(cls), payload[:-1]) == "PWC0911"
        assert code_of(decode, kind_of(cls), payload[:-8]) == "PWC0911"
    if cls is not m.Relayed:
        assert code_of(decode, kind_of(cls), payload + b"x") == "PWC0911"
    if cls is m.Done:
        assert code_of(decode, kind_of(cls), payload + numbers(0)) == "PWC0911"


GOOD: dict[str, Any] = {"request": 1, "invitations": {"a": "b"}}


@pytest.mark.parametrize(
    "changed",
    [{"request": "1"}, {"request": True}, {"request": 1.0}, {"request": None}, {"invitations": []}, {"more": 1},
     {"invitations": {"a": "b", "c": 1}}, {"invitations": {"a": 1, "c": "b"}}, {"invitations": None}],
)  # fmt: skip
def test_a_message_of_other_fields_or_types_is_refused(changed: dict[str, Any]) -> None:
    kind = kind_of(m.Connect)
    assert decode(kind, cold(GOOD)) == m.Connect(1, {"a": "b"})
    assert decode(kind, cold(GOOD | {"invitations": {}})) == m.Connect(1, {})
    assert code_of(decode, kind, cold(GOOD | changed)) == "PWC0911"


@pytest.mark.parametrize("payload", [b"", b"\0\0\0", cold(GOOD)[:-1], cold(GOOD, b"x"), cold([]), cold({"request": 1})])
def test_a_message_that_is_cut_or_followed_by_bytes_is_refused(payload: bytes) -> None:
    assert code_of(decode, kind_of(m.Connect), payload) == "PWC0911"


def test_a_flag_is_no_number() -> None:
    put: dict[str, Any] = {"call": 1, "function": 2, "computation": "f", "alone": True, "value": ""}
    kind = kind_of(m.CallBack)
    assert decode(kind, cold(put, b"xyz")) == m.CallBack(1, 2, "f", True, "", b"xyz")
    for changed in ({"alone": 1}, {"value": 0}, {"blob": "text", "more": 1}):
        assert code_of(decode, kind, cold(put | changed, b"xyz")) == "PWC0911"
