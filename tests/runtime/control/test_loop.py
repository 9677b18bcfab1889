"""Tests the loop of a controller: it rests where the system refuses what it asks for."""

import errno
import socket
from pathlib import Path
from typing import Any, cast

import pytest

from pathways.runtime.control import loop as tested


class FullSystem:
    """A listening socket of a system that has no room for another socket at first."""

    def __init__(self, sock: socket.socket, refusals: int) -> None:
        self.sock, self.refusals, self.calls = sock, refusals, 0
        self.fileno, self.setblocking = sock.fileno, sock.setblocking

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
