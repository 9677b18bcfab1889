"""Messages and parcels are read as they were written, and are refused in any other form."""

import struct
import subprocess
import sys
from typing import Any

import msgspec
import pytest
from support.codes import code_of

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.plan.part import branch_number
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.encoding import (
    MAX_FRAMES,
    MAX_TALK_BYTES,
    MESSAGES,
    decode,
    frame_bytes,
    max_bytes,
    pack_parcels,
    read_expected,
    read_frames,
    read_parcels,
)
from pathways.runtime.wire.frames import HEADER, JOINED_BYTES

RUN = m.RunPlan(7, 8, 9, 10, (11, -1))
PARCELS: list[list[tuple[int, int, list[m.Message]]]] = [
    [],
    [(0, 0, [RUN])],
    [(2, 5, [RUN, m.PutArray(1, 2, 3, b"x")]), (1, 1 << 31, [m.FreeArrays((3,))]), (0, 1, [])],
]


def kind_of(cls: type[Any]) -> int:
    return MESSAGES.index(cls)


def packed(values: Any) -> bytes:
    return msgspec.msgpack.encode(values)


def with_blob(values: Any, blob: bytes = b"") -> bytes:
    return struct.pack("<I", len(packed(values))) + packed(values) + blob


@pytest.mark.parametrize(("size", "is_view"), [(JOINED_BYTES, False), (JOINED_BYTES + 1, True)])
def test_only_large_values_of_arrays_stay_in_the_received_bytes(size: int, is_view: bool) -> None:
    blob = bytes(size)
    values = decode(kind_of(m.PutArray), with_blob((1, 2, 3), blob))
    other = decode(kind_of(m.LoadPlan), with_blob((1, 2, "plan.bin", False, {}), blob))
    assert isinstance(values, m.PutArray) and isinstance(values.blob, memoryview) == is_view and values.blob == blob
    assert isinstance(other, m.LoadPlan) and isinstance(other.blob, bytes)


@pytest.mark.parametrize("parcels", PARCELS)
def test_parcels_are_read_as_they_were_packed(parcels: list[tuple[int, int, list[m.Message]]]) -> None:
    found = read_parcels(pack_parcels(parcels))
    assert [(island, epoch, read_frames(frames)) for island, epoch, frames in found] == parcels


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
        assert max_bytes(kind_of(cls)) == 1 << 20
    for cls in (m.Submit, m.Relayed, m.LoadPlan, m.PutArray, m.Answer):
        assert max_bytes(kind_of(cls)) == 1 << 40
    assert max_bytes(len(MESSAGES)) == max_bytes(255) == 1 << 40, "unknown kinds are refused when they are decoded"


@pytest.mark.parametrize("kind", [-1, len(MESSAGES), 255])
def test_an_unknown_kind_is_refused(kind: int) -> None:
    assert code_of(decode, kind, packed([])) == "PWC0911"


def test_frames_are_read_whole_or_refused() -> None:
    frames = frame_bytes(RUN) + frame_bytes(m.PutArray(1, 2, 3, bytes(99)))
    assert read_frames(frames) == [RUN, m.PutArray(1, 2, 3, bytes(99))] and read_frames(b"") == []
    for end in range(1, len(frames)):
        if end != len(frame_bytes(RUN)):
            assert code_of(read_frames, frames[:end]) == "PWC0911"
    assert code_of(read_frames, frames + b"x") == "PWC0911"


def test_a_failure_of_many_results_may_be_relayed() -> None:
    failed = m.Failed(1, 2, {str(number): "x" * 1000 for number in range(2 * MAX_TALK_BYTES // 1000)})
    assert read_frames(frame_bytes(failed)) == [failed]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1, 2], m.Done(1, 2)),
        ([[]], m.FreeArrays(())),
        ([[5, -6]], m.FreeArrays((5, -6))),
        ([1, 2, 3, 4, []], m.RunPlan(1, 2, 3, 4, ())),
        ([1, {"a": "b"}], m.Connect(1, {"a": "b"})),
        ([1, {}], m.Connect(1, {})),
    ],
)
def test_only_the_fields_of_a_message_are_accepted(values: list[Any], message: m.Message) -> None:
    kind = kind_of(type(message))
    assert decode(kind, packed(values)) == message
    bad: list[Any] = [values[:-1], [*values, 0, 0, 0], {"request": 1}, None, 7]
    bad += [[*values[:at], x, *values[at + 1 :]] for at in range(len(values)) for x in (True, 1.0, "1", None, [[]])]
    for other in bad:
        assert code_of(decode, kind, packed(other)) == "PWC0911", other
    for payload in (b"", packed(values)[:-1], packed(values) + b"x"):
        assert code_of(decode, kind, payload) == "PWC0911"


@pytest.mark.parametrize("blob", [b"", b"xyz"])
def test_raw_bytes_follow_the_other_fields(blob: bytes) -> None:
    call: list[Any] = [1, 2, "f", True, ""]
    kind = kind_of(m.CallBack)
    assert decode(kind, with_blob(call, blob)) == m.CallBack(1, 2, "f", True, "", blob)
    for other in (call[:-1], [*call, ""], [1, 2, "f", 1, ""], [1, 2, "f", True, 0], [1, 2, "f", True, b""]):
        assert code_of(decode, kind, with_blob(other, blob)) == "PWC0911"
    cut = with_blob(call)[:-1]
    assert code_of(decode, kind, cut) == code_of(decode, kind, b"\0\0\0") == "PWC0911"


@pytest.mark.parametrize(
    "head", [b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff", b"\x91" * 9000]
)
def test_a_size_that_is_not_there_takes_no_memory(head: bytes) -> None:
    for cls in MESSAGES:
        assert code_of(decode, kind_of(cls), head) == "PWC0911"
        assert code_of(decode, kind_of(cls), struct.pack("<I", len(head)) + head) == "PWC0911"


def test_keys_that_collide_are_refused() -> None:
    """Integers hash to themselves: a few hundred thousand chosen keys took CPython minutes to read."""
    load: list[Any] = [1, 2, "plan", True, {1 << 61: [1]}]
    assert code_of(decode, kind_of(m.LoadPlan), with_blob(load)) == "PWC0911"
    assert code_of(decode, kind_of(m.Introduce), packed([1, 2, "x", {1 << 48: ["cond", []]}, ""])) == "PWC0911"
    many = {number: ["cond", []] for number in range(5000)}
    assert code_of(decode, kind_of(m.Introduce), packed([1, 2, "x", many, ""])) == "PWC0911"
    for number in (-7, branch_number(9, 5)):  # a vote, and a branch of a body
        said = decode(kind_of(m.Introduce), packed([1, 2, "x", {number: ["cond", ["a"]]}, ""]))
        assert said == m.Introduce(1, 2, "x", {number: ("cond", frozenset({"a"}))}, "")


def test_an_unexpected_message_is_refused_before_it_is_read() -> None:
    wrong = HEADER.pack(3, kind_of(m.LoadPlan)) + b"bad"
    with pytest.raises(PathwaysError, match="one of FreeArrays"):
        read_frames(wrong, (m.FreeArrays,))
    with pytest.raises(PathwaysError, match="message 9, of 1,080,006"):
        read_frames(b"".join(map(frame_bytes, [*[RUN] * 9, m.FreeArrays((1 << 62,) * 120_000)])))
    assert code_of(read_frames, frame_bytes(m.FreeArrays(())) * (MAX_FRAMES + 2)) == "PWC0911"
    large = b"\0" * (MAX_TALK_BYTES + 1)
    with pytest.raises(PathwaysError, match="at most 4,194,304"):
        read_expected(kind_of(m.Introduce), large, (m.Introduce,))


def test_the_table_of_messages_does_not_depend_on_what_is_imported_first() -> None:
    code = "from pathways.runtime.wire import {}, encoding; print(len(encoding.MESSAGES))"
    for first in ("encoding", "client_messages", "connection"):
        done = subprocess.run([sys.executable, "-c", code.format(first)], capture_output=True, text=True, check=True)
        assert int(done.stdout) == len(MESSAGES)
