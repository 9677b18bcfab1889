"""Messages between processes arrive as they were sent, and malformed messages are refused."""

import random
import socket
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.codes import code_of

from pathways.dialect.diagnostics import PathwaysError
from pathways.runtime.wire import encoding, frames
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.connection import Connection
from pathways.runtime.wire.frames import Bytes, ConnectionEnded
from pathways.runtime.wire.message import VERSIONS, difference

INT = st.integers(-(1 << 63), (1 << 63) - 1)
INDEX = st.integers(1 - (1 << 20), (1 << 20) - 1)
OF_TYPE: dict[Any, st.SearchStrategy[Any]] = {
    int: INT,
    bool: st.booleans(),
    str: st.text(),
    bytes: st.binary(max_size=100),
    Bytes: st.binary(max_size=100),
    dict[str, str]: st.dictionaries(st.text(), st.text(), max_size=4),
    dict[int, tuple[int, ...]]: st.dictionaries(INDEX, st.lists(INT, max_size=5).map(tuple), max_size=4),
    dict[int, tuple[str, frozenset[str]]] | None: st.none()
    | st.dictionaries(INDEX, st.tuples(st.text(), st.frozensets(st.text())), max_size=4),
    tuple[int, ...]: st.lists(INT, max_size=5).map(tuple),
}
ANY = st.one_of(
    [st.builds(cls, **{n: OF_TYPE[t] for n, t in get_type_hints(cls).items()}) for cls in encoding.MESSAGES]
)


@pytest.fixture
def pair() -> Iterator[Callable[[], tuple[Connection, socket.socket, Connection]]]:
    """Makes the two ends of a connection, and the raw socket of the first end."""
    made: list[Connection] = []

    def make() -> tuple[Connection, socket.socket, Connection]:
        here, there = socket.socketpair()
        made.extend((Connection(here), Connection(there)))
        return made[-2], here, made[-1]

    yield make
    for connection in made:
        connection.close()


Pair: TypeAlias = Callable[[], tuple[Connection, socket.socket, Connection]]


def written(message: m.Message) -> tuple[int, bytes]:
    kind, payload, blob = encoding.encode(message)
    return kind, payload + blob


@given(ANY)
@settings(max_examples=300, deadline=None)
def test_a_message_is_decoded_as_it_was_encoded(message: m.Message) -> None:
    assert encoding.decode(*written(message)) == message


@given(ANY, st.integers(0, 1 << 30), st.integers(0, 255))
@settings(max_examples=300, deadline=None)
def test_a_damaged_message_is_decoded_as_its_type_or_refused(message: m.Message, position: int, byte: int) -> None:
    kind, payload = written(message)
    damaged = bytearray(payload)
    if damaged:
        damaged[position % len(damaged)] = byte
    for text in (damaged, damaged[: position % (len(damaged) + 1)]):
        try:
            assert isinstance(encoding.decode(kind, text), type(message))
        except PathwaysError as error:
            assert error.code == "PWC0911"


@pytest.mark.parametrize("kind", range(-1, len(encoding.MESSAGES) + 2))
def test_random_bytes_are_decoded_as_a_message_or_refused(kind: int) -> None:
    rng = random.Random(kind)
    for size in (1, 3, 5, 9, 33):
        try:
            assert type(encoding.decode(kind, rng.randbytes(size))) in encoding.MESSAGES
        except PathwaysError as error:
            assert error.code == "PWC0911"


def test_messages_arrive_in_order_with_their_data(pair: Pair) -> None:
    here, _, there = pair()
    blob = bytes(range(256)) * 30
    sent = [m.CopyArray(1, 2), m.PutArray(3, 4, 5, blob), m.RunPlan(1, 2, 1 << 61, 4, (5, 6)), m.FreeArrays(())]
    for message in sent:
        here.post(message)
    assert [there.receive() for _ in sent] == sent


def test_a_message_of_too_large_a_size_is_refused_before_it_arrives(pair: Pair) -> None:
    here, raw, there = pair()
    kind = encoding.MESSAGES.index(m.Done)
    raw.sendall(frames.HEADER.pack(encoding.MAX_NUMBERS_BYTES + 1, kind))
    with pytest.raises(PathwaysError, match="1,048,577 bytes") as caught:
        there.receive()
    assert caught.value.code == "PWC0911"
    here, raw, there = pair()
    raw.sendall(frames.HEADER.pack(encoding.MAX_BYTES, encoding.MESSAGES.index(m.PutArray)) + b"cut")
    here.close()
    with pytest.raises(ConnectionEnded):  # not MemoryError: memory is allocated as bytes arrive
        there.receive()


def test_a_stream_that_ends_at_any_byte_raises_connection_ended(pair: Pair) -> None:
    kind, payload = written(m.Beat(1, 2))
    whole = frames.HEADER.pack(len(payload), kind) + payload
    for length in range(len(whole)):
        here, raw, there = pair()
        raw.sendall(whole[:length])
        here.close()
        with pytest.raises(ConnectionEnded):
            there.receive()


def test_sending_to_a_closed_connection_raises_connection_ended(pair: Pair) -> None:
    here, _, there = pair()
    there.close()
    with pytest.raises(ConnectionEnded):
        for _ in range(100):
            here.post(m.PutArray(0, 0, 0, bytes(1 << 16)))


@pytest.mark.parametrize("number", [1 << 63, (1 << 64) - 1, -(1 << 63) - 1, 1 << 64])
def test_a_number_beyond_64_bits_is_not_sent_or_refused(number: int) -> None:
    for message in (m.CopyArray(number, 0), m.FreeArrays((0, number)), m.Relayed(0, number, 0, b"")):
        if number.bit_length() > 64 or number < 0:
            with pytest.raises(OverflowError):
                encoding.encode(message)
        else:
            assert code_of(encoding.decode, *written(message)) == "PWC0911"


def test_differences_of_versions_are_named() -> None:
    assert not difference(dict(VERSIONS))
    assert difference(VERSIONS | {"jax": "0.9"}) == f"jax 0.9 (controller: {VERSIONS['jax']})"
    assert "python none (controller: " in difference({n: v for n, v in VERSIONS.items() if n != "python"})


def test_a_relayed_message_may_exceed_the_limit_of_small_messages() -> None:
    """A run with thousands of failed results reports each of them in one message."""
    large = m.Relayed(0, 0, 0, bytes(4 << 20))
    kind, payload, blob = encoding.encode(large)
    assert len(payload) + len(blob) <= encoding.max_bytes(kind)
    assert encoding.decode(kind, payload + blob) == large


def test_a_text_that_utf_8_cannot_hold_is_sent_escaped() -> None:
    path, blob = "model-\udcff.py", b"\xff"
    assert encoding.decode(*written(m.LoadPlan(1, 2, path, False, {}, blob))) == m.LoadPlan(
        1, 2, "model-\\udcff.py", False, {}, blob
    )
    assert encoding.decode(*written(m.Failed(1, 2, {"0": path}))) == m.Failed(1, 2, {"0": "model-\\udcff.py"})


def test_a_message_is_frozen_and_its_raw_bytes_are_its_last_field() -> None:
    for cls in encoding.MESSAGES:
        assert cls.__struct_config__.frozen and "blob" not in cls.__struct_fields__[:-1]
