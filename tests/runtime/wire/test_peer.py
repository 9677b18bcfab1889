"""Messages posted to a stream of a loop arrive complete and in order, whenever the other end reads them."""

import contextlib
import queue
import random
import threading
from collections.abc import Iterator

import pytest
from support.clusters import PATIENCE
from support.members import Door
from support.streams import Stream, running_loop, stream_pair

from pathways.dialect.activities import BYTES, Activity, under_way
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.connection import Connection
from pathways.runtime.wire.frames import ConnectionEnded
from pathways.runtime.wire.loop import Loop
from pathways.runtime.wire.peer import ROOM_BYTES

MIB = 1 << 20
Ends = tuple[Stream, Connection]


@pytest.fixture
def loop() -> Iterator[Loop]:
    with running_loop() as loop:
        yield loop


@pytest.fixture(params=["plain", "under TLS"])
def ends(request: pytest.FixtureRequest, loop: Loop, door: Door) -> Iterator[Ends]:
    """Both ends of a stream: one of a loop, and one that the test reads."""
    if request.param == "plain":
        here, there = stream_pair(loop)
    else:
        one, there = door.pair()
        here = Stream(loop, one)
    yield here, there
    there.close()


def put(number: int, size: int) -> m.Message:
    return m.PutArray(number, 0, 0, bytes([number % 256]) * size)


SIZES = (0, 100, 1 << 16, MIB, 10, 5 * MIB, 1)


def test_posting_does_not_wait_for_a_peer_that_reads_nothing(ends: Ends) -> None:
    one, two = ends
    for number in range(3 * len(SIZES)):
        one.post(put(number, SIZES[number % len(SIZES)]))
    for number in range(3 * len(SIZES)):
        assert two.receive() == put(number, SIZES[number % len(SIZES)])


def test_messages_of_several_threads_arrive_complete_and_in_order(ends: Ends) -> None:
    one, two = ends

    def work(first: int) -> None:
        for number in range(first, first + 200):
            one.post(put(number, SIZES[number % 3]))

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
        thread.join(PATIENCE)


def test_messages_of_all_sizes_arrive_both_ways_at_once(ends: Ends, loop: Loop) -> None:
    one, two = ends[0], Stream(loop, ends[1])
    rng = random.Random(0)
    sizes = [*rng.choices((0, 1, 100, 1 << 14, 1 << 16, 300_000), k=50), 20 * MIB, 20 * MIB]
    rng.shuffle(sizes)
    messages = [m.PutArray(n, 0, 0, rng.randbytes(size)) for n, size in enumerate(sizes)]
    for message in messages:
        one.post(message)
        two.post(message)
    for message in messages:
        assert two.receive() == message
    for message in messages:
        assert one.receive() == message


def byte_activities() -> list[Activity]:
    return [activity for activity in under_way() if activity.unit == BYTES]


@pytest.mark.parametrize("end", ["it reads", "it ends", "this end closes"])
def test_wait_for_room_waits_until_messages_are_read_or_an_end_closes(end: str, ends: Ends) -> None:
    one, two = ends
    one.peer.wait_for_room()
    for number in range(3):
        one.post(put(number, ROOM_BYTES // 2))
    thread = threading.Thread(target=one.peer.wait_for_room)
    thread.start()
    thread.join(0.05)
    assert thread.is_alive()
    (sending,) = byte_activities()
    assert sending.total > 0
    match end:
        case "it reads":
            for number in range(3):
                assert two.receive() == put(number, ROOM_BYTES // 2)
        case "it ends":
            two.close()
        case _:
            one.peer.close()
    thread.join(PATIENCE)
    assert not thread.is_alive() and byte_activities() == []


def test_posting_to_a_closed_stream_raises_an_error(ends: Ends) -> None:
    one, two = ends
    two.close()
    assert one.ended.wait(PATIENCE) and not one.peer.is_taken
    with pytest.raises(ConnectionEnded):
        one.post(put(0, 1))
    with pytest.raises(ConnectionEnded):
        one.peer.keep(put(0, 1))


def test_a_failed_write_ends_the_stream_on_the_thread_of_the_loop(ends: Ends) -> None:
    one, two = ends
    threads: queue.SimpleQueue[str] = queue.SimpleQueue()
    one.peer.on_end = lambda peer, why: threads.put(threading.current_thread().name)
    two.close()
    with pytest.raises(ConnectionEnded):
        while True:
            one.post(put(0, MIB))
    assert threads.get(timeout=PATIENCE) == "pathways-loop" and threads.empty()


def test_a_stream_is_ended_behind_its_last_message(ends: Ends, loop: Loop) -> None:
    one, two = ends

    def refuse() -> None:
        one.peer.send(put(1, 100))
        one.peer.end("refused")

    loop.on_thread(refuse)
    assert two.receive() == put(1, 100)
    with pytest.raises(ConnectionEnded):
        two.receive()
    assert one.ended.wait(PATIENCE) and one.reason == "refused"


def test_kept_messages_are_sent_in_order_with_the_next_one(ends: Ends) -> None:
    one, two = ends
    for number in range(3):
        one.peer.keep(put(number, 10))
    assert one.peer.kept == 3
    one.post(put(3, 5 * MIB), put(4, 10))
    one.peer.keep(put(5, MIB))
    one.peer.flush_kept()
    one.peer.flush_kept()
    for number, size in enumerate((10, 10, 10, 5 * MIB, 10, MIB)):
        assert two.receive() == put(number, size)
    assert not one.peer.kept


def test_messages_posted_and_kept_by_one_thread_stay_in_order(loop: Loop) -> None:
    """The loop is busy when the first is posted, so that its thread has all of them written."""
    one, two = stream_pair(loop)
    inside, goes_on = threading.Event(), threading.Event()

    def work() -> None:
        inside.set()
        goes_on.wait(PATIENCE)

    loop.on_thread(work)
    assert inside.wait(PATIENCE)
    one.post(put(0, 10))
    one.peer.keep(put(1, 10))
    one.post(put(2, 10))
    goes_on.set()
    for number in range(3):
        assert two.receive() == put(number, 10)
    two.close()


def test_why_a_stream_ends_is_received_although_a_write_has_failed_before(loop: Loop) -> None:
    one, two = stream_pair(loop)
    inside, goes_on = threading.Event(), threading.Event()

    def work() -> None:
        inside.set()
        goes_on.wait(PATIENCE)
        with contextlib.suppress(ConnectionEnded):
            one.post(put(1, 10))

    loop.on_thread(work)
    assert inside.wait(PATIENCE)
    two.post(put(0, 10))
    two.close()
    goes_on.set()
    assert one.receive() == put(0, 10) and one.ended.wait(PATIENCE)


def test_an_end_sends_all_that_the_other_end_takes(ends: Ends, loop: Loop) -> None:
    one, two = ends

    def refuse() -> None:
        for number in range(100):
            one.peer.send(put(number, 1000))
        one.peer.end("refused")

    loop.on_thread(refuse)
    for number in range(100):
        assert two.receive() == put(number, 1000)


def test_a_peer_that_reads_too_little_is_given_up(ends: Ends) -> None:
    one, two = ends
    one.peer.max_unread_bytes = 10 * MIB
    one.post(put(0, 100))
    assert two.receive() == put(0, 100)
    with contextlib.suppress(ConnectionEnded):  # not if the loop has them written a moment later
        one.post(*(put(number, 5 * MIB) for number in range(5)))
    assert one.ended.wait(PATIENCE) and "it has not read" in one.reason


def test_a_peer_that_reads_nothing_is_given_up_however_small_its_messages(loop: Loop) -> None:
    one, two = stream_pair(loop)
    one.peer.max_unread_bytes = MIB
    with contextlib.suppress(ConnectionEnded):
        while not one.ended.is_set():
            one.post(put(0, 10_000))
    assert one.ended.wait(PATIENCE) and "it has not read" in one.reason
    two.close()


def test_a_message_that_cannot_be_handled_ends_its_stream_alone(
    ends: Ends, loop: Loop, capfd: pytest.CaptureFixture[str]
) -> None:
    one, two = ends
    other, there = stream_pair(loop)

    def fail(*_: object) -> None:
        raise ValueError("this test")

    one.peer.receive = fail
    two.post(put(0, 1))
    assert one.ended.wait(PATIENCE) and one.reason == "this test"
    assert "a process that sent invalid data: this test" in capfd.readouterr().err
    there.post(put(0, 1))
    assert other.receive() == put(0, 1)
    there.close()
