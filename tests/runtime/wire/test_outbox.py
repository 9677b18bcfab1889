"""Messages posted without waiting arrive complete and in order, whenever the other end reads them."""

import socket
import threading
from collections.abc import Iterator

import pytest

from pathways.dialect.activities import BYTES, Activity, under_way
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.connection import Connection
from pathways.runtime.wire.frames import ConnectionEnded
from pathways.runtime.wire.outbox import MOST_WAITING

MIB = 1 << 20


class BlockingStream:
    """A stream whose writes may block, as those of a TLS stream."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.sendall, self.recv_into = sock.sendall, sock.recv_into
        self.shutdown, self.close, self.settimeout = sock.shutdown, sock.close, sock.settimeout


@pytest.fixture(params=[False, True], ids=["at once where it can", "by a thread alone"])
def ends(request: pytest.FixtureRequest) -> Iterator[tuple[Connection, Connection]]:
    here, there = socket.socketpair()
    made = Connection(BlockingStream(here) if request.param else here), Connection(there)
    yield made
    for connection in made:
        connection.close()


def put(number: int, size: int) -> m.Message:
    return m.PutArray(number, 0, 0, bytes([number % 256]) * size)


SIZES = (0, 100, 1 << 16, MIB, 10, 5 * MIB, 1)


def test_posting_does_not_wait_for_a_peer_that_reads_nothing(ends: tuple[Connection, Connection]) -> None:
    one, two = ends
    for number in range(3 * len(SIZES)):
        one.post_soon(put(number, SIZES[number % len(SIZES)]))
    for number in range(3 * len(SIZES)):
        assert two.receive() == put(number, SIZES[number % len(SIZES)])


def test_messages_of_several_threads_arrive_complete_and_in_order(ends: tuple[Connection, Connection]) -> None:
    one, two = ends

    def work(first: int) -> None:
        for number in range(first, first + 200):
            one.post_soon(put(number, SIZES[number % 3]))

    threads = [threading.Thread(target=work, args=(1000 * n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    seen: list[list[int]] = [[] for _ in threads]
    for _ in range(800):
        message = two.receive()
        assert isinstance(message, m.PutArray) and message == put(message.array, SIZES[message.array % 3])
        seen[message.array // 1000].append(message.array)
    for n, numbers in enumerate(seen):
        assert numbers == list(range(1000 * n, 1000 * n + 200))
    for thread in threads:
        thread.join(60)


def byte_activities() -> list[Activity]:
    return [activity for activity in under_way() if activity.unit == BYTES]


@pytest.mark.parametrize("end", ["it reads", "it ends", "this end closes"])
def test_wait_for_room_waits_until_messages_are_read_or_an_end_closes(
    end: str, ends: tuple[Connection, Connection]
) -> None:
    one, two = ends
    one.wait_for_room()
    for number in range(3):
        one.post_soon(put(number, MOST_WAITING // 2))
    thread = threading.Thread(target=one.wait_for_room)
    thread.start()
    thread.join(0.05)
    assert thread.is_alive()
    (sending,) = byte_activities()
    assert sending.total > 0
    match end:
        case "it reads":
            for number in range(3):
                assert two.receive() == put(number, MOST_WAITING // 2)
        case "it ends":
            two.close()
        case _:
            one.close()
    thread.join(60)
    assert not thread.is_alive() and byte_activities() == []


def test_posting_to_a_closed_connection_raises_an_error(ends: tuple[Connection, Connection]) -> None:
    one, two = ends
    two.close()
    with pytest.raises(ConnectionEnded):
        for number in range(1000):
            one.post_soon(put(number, MIB))
    one.close()
    with pytest.raises(ConnectionEnded):
        one.post_soon(put(0, 1))


def test_wait_until_sent_delivers_the_last_message_before_a_close(ends: tuple[Connection, Connection]) -> None:
    here, there = ends
    here.post_soon(put(1, 100))
    here.wait_until_sent(60)
    here.close()
    assert there.receive() == put(1, 100)
    with pytest.raises(ConnectionEnded):
        there.receive()


def test_delayed_messages_are_sent_in_order_with_the_next_one(ends: tuple[Connection, Connection]) -> None:
    one, two = ends
    for number in range(3):
        one.post_later(put(number, 10))
    assert one.kept == 3
    one.post_soon(put(3, 5 * MIB), put(4, 10))
    one.post_later(put(5, MIB))
    one.flush()
    one.flush()
    assert not one.kept
    for number, size in enumerate((10, 10, 10, 5 * MIB, 10, MIB)):
        assert two.receive() == put(number, size)


def test_a_closed_connection_keeps_no_delayed_messages(ends: tuple[Connection, Connection]) -> None:
    one, _ = ends
    one.post_later(put(0, 10))
    one.close()
    assert not one.kept
    with pytest.raises(ConnectionEnded):
        one.post_later(put(1, 10))
