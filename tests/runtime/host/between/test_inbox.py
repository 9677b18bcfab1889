"""Tests the inbox for pushed values: each value or failure arrives once, and none from before a reconnect."""

import contextlib
import gc
import socket
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import jax
import pytest
from support.clusters import becomes
from support.streams import started_loop

from pathways.dialect.dtypes import ArrayType
from pathways.runtime.host.between import transfer_server
from pathways.runtime.host.between.data_plane import ArrayGroup
from pathways.runtime.host.between.eager_server import EagerServer, Outbox
from pathways.runtime.host.between.eager_values import Sender
from pathways.runtime.host.between.inbox import (
    FAILURE,
    HELLO,
    KEY_AND_TIME,
    NUMBER,
    VALUE,
    EagerAddress,
    EagerMessage,
    Inbox,
    wait_for_first,
)
from pathways.runtime.host.between.link import Invitation, Outbound
from pathways.runtime.host.devices import pjrt
from pathways.runtime.monitor import Gate
from pathways.runtime.wire.addresses import LOOPBACK, end_socket, read_address
from pathways.runtime.wire.frames import HEADER

MAX_VALUE_BYTES = 1 << 16


class Pair:
    """A connection to another host, and the inboxes of that host."""

    def __init__(self, near: bool = True) -> None:
        self.near, self.boxes = near, list[Inbox]()
        self.outbox: Outbox = EagerServer(LOOPBACK, started_loop()).outbox()

    @property
    def eager_address(self) -> EagerAddress:
        given = EagerAddress.read(str(self.outbox.eager_address))
        return given if self.near else EagerAddress(given.address, "", given.key)

    def box(self, anew: int = 0, most: int = MAX_VALUE_BYTES) -> Inbox:
        self.boxes.append(Inbox(self.eager_address, most, anew))
        return self.boxes[-1]


@pytest.fixture(params=["near", "far"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    made = Pair(request.param == "near")
    yield made
    made.outbox.close()
    for box in made.boxes:
        box.close()


def value(message: EagerMessage) -> bytes:
    message.block_until_ready()
    return bytes(message.read())


def read_in_thread(message: EagerMessage) -> tuple[threading.Thread, list[str]]:
    """Waits for a message in a thread, which records why the wait failed."""
    found: list[str] = []

    def work() -> None:
        try:
            message.block_until_ready()
        except RuntimeError as error:
            found.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    return thread, found


def test_values_arrive_by_number_whether_sent_or_expected_first(pair: Pair) -> None:
    pair.outbox.send(7, b"before anybody came")
    box = pair.box()
    asked = [box.expect(n) for n in (9, 8)]
    values = {8: b"", 9: bytes(range(256)) * (MAX_VALUE_BYTES // 256), 10: b"not asked for yet"}
    for number, data in values.items():
        pair.outbox.send(number, data)
    assert value(box.expect(7)) == b"before anybody came"
    assert [value(message) for message in asked] == [values[9], values[8]]
    late = box.expect(10)
    assert becomes(late.is_ready) and value(late) == values[10]
    assert not box.expect(11).is_ready()


def test_a_failure_arrives_in_place_of_a_value(pair: Pair) -> None:
    box = pair.box()
    pair.outbox.send(1, "no \u00e9".encode(), FAILURE)
    pair.outbox.fail(2, "")
    pair.outbox.fail(3, "a text that is none: \udc80")
    with pytest.raises(RuntimeError, match="no \u00e9"):
        box.expect(1).block_until_ready()
    with pytest.raises(RuntimeError, match="no reason"):
        box.expect(2).block_until_ready()
    with pytest.raises(RuntimeError, match="a text that is none"):
        box.expect(3).block_until_ready()
    assert value_after(pair, box, 4)


def test_the_first_of_two_values_with_the_same_number_counts(pair: Pair) -> None:
    box = pair.box()
    pair.outbox.send(1, b"first")
    pair.outbox.fail(1, "second")
    assert value_after(pair, box, 2) and value(box.expect(1)) == b"first"


def value_after(pair: Pair, box: Inbox, number: int) -> bool:
    pair.outbox.send(number, b"fine")
    return value(box.expect(number)) == b"fine"


@pytest.mark.parametrize("sender_first", [True, False])
def test_no_value_from_before_a_reconnect_arrives_after_it(pair: Pair, sender_first: bool) -> None:
    old = pair.box()
    assert value_after(pair, old, 1)
    pair.outbox.send(2, b"old")
    thread, failed = read_in_thread(old.expect(3))
    if sender_first:
        pair.outbox.begin_anew(5)
        pair.outbox.send(2, b"new")
        old.close()
        new = pair.box(5)
    else:
        old.close()
        new = pair.box(5)
        assert not new.ready.is_ready()
        pair.outbox.send(4, b"of before, for a host that it does not know to be ahead")
        pair.outbox.begin_anew(5)
        pair.outbox.send(2, b"new")
    assert value(new.expect(2)) == b"new" and not new.expect(4).is_ready()
    new.ready.block_until_ready()
    thread.join()
    assert failed
    late = pair.box(4)  # an inbox of an earlier reconnect
    with pytest.raises(RuntimeError, match="ended"):
        late.expect(9).block_until_ready()
    assert value_after(pair, new, 10)


def test_a_second_inbox_of_a_host_replaces_its_first(pair: Pair) -> None:
    first, second = pair.box(), None
    assert value_after(pair, first, 1)
    second = pair.box()
    second.ready.block_until_ready()
    assert value_after(pair, second, 2)
    with pytest.raises(RuntimeError, match="ended"):
        first.expect(3).block_until_ready()
    first.close()


def test_a_broken_connection_is_made_again(pair: Pair) -> None:
    box = pair.box()
    box.ready.block_until_ready()
    for turn in range(3):
        assert value_after(pair, box, 10 * turn)
        thread, failed = read_in_thread(box.expect(10 * turn + 1))
        outbox: Any = pair.outbox
        before = list(outbox._peers.values())
        for peer in before:
            end_socket(peer._transport)  # as networks that drop idle connections do
        assert becomes(lambda before=before: all(peer.ended for peer in before))
        pair.outbox.send(10 * turn + 2, b"kept until it comes again")
        thread.join()
        assert failed
        assert becomes(lambda outbox=outbox, before=before: list(outbox._peers.values()) not in ([], before))
        assert value(box.expect(10 * turn + 2)) == b"kept until it comes again"
        assert value_after(pair, box, 10 * turn + 3)


def test_received_values_stay_readable_after_the_sender_closes(pair: Pair) -> None:
    box = pair.box()
    box.ready.block_until_ready()
    thread, failed = read_in_thread(box.expect(1))
    pair.outbox.send(2, b"the last")
    pair.outbox.close()
    pair.outbox.send(3, b"nobody")
    thread.join()
    assert failed and value(box.expect(2)) == b"the last"
    with pytest.raises(RuntimeError, match="ended"):
        box.expect(3).block_until_ready()


def test_closing_an_inbox_ends_all_waits(pair: Pair) -> None:
    box = pair.box()
    box.ready.block_until_ready()
    waits = [read_in_thread(box.expect(n)) for n in range(3)]  # one thread reads, the others wait at gates
    box.close()
    for thread, failed in waits:
        thread.join()
        assert failed == ["the connection was closed"]
    alone = Inbox(EagerAddress("127.0.0.1:1", "", "0" * 32), MAX_VALUE_BYTES)  # no host listens at this address
    thread, failed = read_in_thread(alone.expect(1))
    alone.close()
    thread.join()
    assert failed == ["the connection was closed"]


def test_the_first_message_in_any_inbox_ends_a_wait_for_several() -> None:
    pairs = [Pair(), Pair(near=False)]
    boxes = [p.box() for p in pairs]
    for box in boxes:
        box.ready.block_until_ready()
    messages = [box.expect(1) for box in boxes]
    threading.Timer(0.01, lambda: pairs[1].outbox.send(1, b"x")).start()
    assert wait_for_first(messages) and [message.is_ready() for message in messages] == [False, True]
    with boxes[0].reading:  # another thread reads
        assert not wait_for_first([messages[0]])
    gate = Gate()
    messages[0].add(gate)
    pairs[0].outbox.send(1, b"y")
    gate.pass_through()  # a reading thread has received the message
    assert value(messages[0]) == b"y"
    other = Gate()
    messages[0].add(other)
    other.pass_through()  # returns at once
    left = boxes[0].expect(2)
    left.add(gate)
    left.discard(gate)
    left.discard(gate)
    for one in pairs:
        one.outbox.close()


def stranger(pair: Pair, hello: bytes) -> socket.socket:
    address = read_address(pair.eager_address.address)
    assert address is not None
    sock = socket.create_connection(address, 5)
    sock.sendall(hello)
    return sock


def test_connections_without_the_key_get_no_value_and_delay_no_host(pair: Pair) -> None:
    pair.outbox.send(1, b"for one")
    silent = stranger(pair, b"")
    key = pair.eager_address.key.encode()
    said = [KEY_AND_TIME.pack(k, 0) for k in (b"0" * 32, key[:-1] + bytes([key[-1] ^ 1]))]
    hellos = [HEADER.pack(len(each), HELLO) + each for each in said]
    right = KEY_AND_TIME.pack(key, 0)
    for hello in (*hellos, b"GET / HTTP/1.1" * 9, HEADER.pack(40, VALUE) + right, HEADER.pack(39, HELLO) + right[:39]):
        with stranger(pair, hello) as sock, contextlib.suppress(ConnectionResetError):
            assert sock.recv(1) == b""
    assert value(pair.box().expect(1)) == b"for one"
    silent.close()


@pytest.mark.parametrize(
    "noise",
    [
        HEADER.pack(MAX_VALUE_BYTES + 99, 1) + NUMBER.pack(1),
        HEADER.pack(9, 0) + NUMBER.pack(1) + b"x",
        HEADER.pack(3, 1) + b"abc",
        HEADER.pack(1 << 60, 2),
        HEADER.pack(8, 77) + NUMBER.pack(1),
    ],
)
def test_malformed_data_ends_the_connection(noise: bytes) -> None:
    listener = socket.create_server((LOOPBACK, 0))
    box = Inbox(EagerAddress(f"{LOOPBACK}:{listener.getsockname()[1]}", "-", "0" * 32), MAX_VALUE_BYTES)
    sock, _ = listener.accept()
    said = sock.recv(HEADER.size + KEY_AND_TIME.size, socket.MSG_WAITALL)
    assert said[HEADER.size :].startswith(b"0" * 32)
    sock.sendall(noise)
    with pytest.raises(RuntimeError, match="invalid data"):
        box.expect(2).block_until_ready()
    box.close()
    listener.close()
    sock.close()


def test_a_host_that_does_not_read_does_not_block_the_sender(pair: Pair) -> None:
    box: Any = pair.box()
    box.ready.block_until_ready()
    count = 400  # more bytes than sockets buffer
    for number in range(count):
        pair.outbox.send(number, bytes(MAX_VALUE_BYTES))
    assert all(len(value(box.expect(number))) == MAX_VALUE_BYTES for number in range(count))


def test_a_closed_inbox_closes_its_socket(pair: Pair) -> None:
    box: Any = pair.box()
    assert value_after(pair, box, 1)
    box.close()
    assert becomes(lambda: box.fileno() == -1)
    pair.outbox.send(2, b"nobody")


def test_a_closed_outbox_keeps_no_values(pair: Pair) -> None:
    """Runs that were sent before the loss of the other host may still have the outbox."""
    value: Any = memoryview(bytes(MAX_VALUE_BYTES))
    kept = weakref.ref(value)
    pair.outbox.send(1, value)
    del value
    gc.collect()
    assert kept() is not None, "it waits for the other host"
    pair.outbox.close()
    gc.collect()
    assert kept() is None


@pytest.mark.parametrize("ip", [LOOPBACK, "::1"])
def test_an_outbox_is_reached_over_each_internet_protocol(ip: str) -> None:
    try:
        outbox = EagerServer(ip, started_loop()).outbox()
    except OSError:
        pytest.skip(f"this machine has no address {ip}")
    box = Inbox(EagerAddress(outbox.eager_address.address, "", outbox.eager_address.key), MAX_VALUE_BYTES)
    outbox.send(1, b"fine")
    assert value(box.expect(1)) == b"fine"
    box.close()


def test_an_inbox_keeps_the_first_address_for_pulls_until_it_connects_anew(pair: Pair) -> None:
    first = pair.box()
    said = iter(["1 first", "2 again", "3 anew"])
    pair.outbox.publish_address(1, lambda: next(said))
    assert value(first.where(1)) == b"1 first"
    pair.outbox.publish_address(1, lambda: next(said))
    pair.outbox.send(7, b"behind it")
    assert value(first.expect(7)) == b"behind it"
    assert value(first.where(1)) == b"1 first"
    first.close()
    pair.outbox.begin_anew(1)
    assert value(pair.box(anew=1).where(1)) == b"3 anew"


def test_pulling_from_a_host_that_says_no_address_fails(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer_server, "CONNECT_S", 0.05)
    device = jax.devices("cpu")[0]
    link = Outbound(device, LOOPBACK, EagerServer(LOOPBACK, started_loop()), 8, lambda _: Sender())
    source = link.connect(Invitation(pair.eager_address, 8))
    wanted = ArrayGroup([ArrayType((16,), "float32")], [pjrt.on_device(device)])
    waits: list[float] = []
    monkeypatch.setattr(transfer_server, "wait_up_to", lambda _, seconds: waits.append(seconds))
    for number in range(3):
        with pytest.raises(RuntimeError, match="has not sent the address"):
            source.fetch(number, wanted)
    again = transfer_server.CONNECT_AGAIN_S
    assert waits == [0.05, again, again], "runs of other clients wait after each pull"
    pair.outbox.publish_address(1, lambda: "1 127.0.0.1:1")
    source.close()
    with pytest.raises(RuntimeError, match="closed"):
        source.fetch(2, wanted)
    assert not any(plane.has_open_port for plane in link.planes)
