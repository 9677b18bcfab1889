"""Tests the event loop: it rests where the system refuses, and sends a backlog without copying all of it."""

import errno
import random
import socket
import threading
from pathlib import Path
from typing import Any, cast

import pytest

from pathways.runtime.wire import loop as tested
from pathways.runtime.wire.frames import JOINED_BYTES
from pathways.runtime.wire.peer import Peer


class FullSystem:
    """A listening socket of a system that has no room for another socket at first."""

    def __init__(self, sock: socket.socket, refusals: int) -> None:
        self.sock, self.refusals, self.calls = sock, refusals, 0
        self.fileno, self.setblocking, self.close = sock.fileno, sock.setblocking, sock.close

    def accept(self) -> Any:
        self.calls += 1
        if self.calls <= self.refusals:
            raise OSError(errno.EMFILE, "too many open files")
        return self.sock.accept()


def test_a_full_system_is_not_asked_again_and_again(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tested, "ACCEPT_PAUSE_S", 0.01)
    accepted: list[socket.socket] = []
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as caller:
        listener.bind(str(short_path / "s"))
        listener.listen()
        caller.connect(str(short_path / "s"))
        loop, full = tested.Loop(), FullSystem(listener, refusals=3)

        def accept(sock: socket.socket) -> None:
            accepted.append(sock)
            loop.end()

        loop.listen(cast("socket.socket", full), accept)
        loop.run()
        loop.close()
    assert full.calls == 4 and len(accepted) == 1
    accepted[0].close()


class SlowSocket:
    """Takes at most so many bytes at a time, and then none until it is asked again."""

    def __init__(self, rng: random.Random, most: int) -> None:
        self.rng, self.most, self.taken = rng, most, bytearray()
        self.largest = 0
        self._refuses = False
        self._inner, self._other = socket.socketpair()

    def fileno(self) -> int:
        return self._inner.fileno()

    def setblocking(self, flag: bool) -> None:
        self._inner.setblocking(flag)

    def send(self, data: bytes | memoryview) -> int:
        self._refuses = not self._refuses
        if not self._refuses:
            raise BlockingIOError
        self.largest = max(self.largest, len(data))
        taken = data[: self.rng.randrange(self.most)]
        self.taken += taken
        return len(taken)

    def shutdown(self, how: int) -> None:
        self._inner.shutdown(how)

    def close(self) -> None:
        self._inner.close()
        self._other.close()


def test_a_backlog_is_sent_in_order_and_in_small_joins() -> None:
    rng, loop = random.Random(0), tested.Loop()
    slow: Any = SlowSocket(rng, 5000)
    peer = Peer(loop, slow)
    peer.begin(lambda *_: None, lambda *_: None)
    wanted = bytearray()
    while len(wanted) < 1 << 20:
        piece = rng.randbytes(rng.choice([3, 50, 4000, 20_000]))
        wanted += piece
        peer.write(piece)
        if rng.random() < 0.3:
            peer.flush()
    while len(slow.taken) < len(wanted):
        peer.flush()
    assert slow.taken == wanted and slow.largest <= JOINED_BYTES
    loop.close()


def test_calls_of_many_threads_are_done_one_at_a_time_and_none_is_lost() -> None:
    """Each thread does its own calls or leaves them to the thread that has the lock; their timers come in time."""
    loop, inside, done, timed = tested.Loop(), [0], list[int](), threading.Event()
    running = threading.Thread(target=loop.run)
    running.start()

    def work(number: int) -> None:
        inside[0] += 1
        assert inside[0] == 1
        done.append(number)
        inside[0] -= 1

    def calls(first: int) -> None:
        for number in range(first, first + 500):
            loop.call(lambda number=number: work(number))

    threads = [threading.Thread(target=calls, args=(first,)) for first in range(0, 2000, 500)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    loop.call(lambda: loop.after(0.0, timed.set))
    assert timed.wait(30)
    loop.call(loop.end)
    running.join(30)
    assert not running.is_alive() and sorted(done) == list(range(2000))
    assert [number for number in done if number < 500] == list(range(500))
    loop.close()


def test_a_loop_in_a_forked_process_closes_its_copies_of_all_sockets(short_path: Path) -> None:
    loop, listener, (watched, other) = tested.Loop(), socket.socket(socket.AF_UNIX), socket.socketpair()
    listener.bind(str(short_path / "s"))
    listener.listen()
    loop.listen(listener, lambda _: None)
    loop.watch(watched, lambda: None)
    loop.abandon()
    assert listener.fileno() == watched.fileno() == -1 and other.recv(1) == b""
    other.close()
