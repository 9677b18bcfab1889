"""Tests what a host offers through a transfer server of JAX, with a server that records its calls."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import jax
import pytest

from pathways.runtime.host.between import transfer_server
from pathways.runtime.host.between.transfer_server import TransferServer
from pathways.runtime.wire.addresses import LOOPBACK


class RecordingServer:
    """Stands for a transfer server of JAX; keeps the numbers of the offers that a peer can pull."""

    def __init__(self) -> None:
        self.offered: list[int] = []

    def _await_pull_flat(self, number: int, arrays: Sequence[Any]) -> None:
        self.offered.append(number)

    def _reset_rendevous_table(self) -> None:
        self.offered.clear()

    def address(self) -> str:
        return f"{LOOPBACK}:1"


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> RecordingServer:
    made = RecordingServer()
    monkeypatch.setattr(transfer_server, "_transfer", SimpleNamespace(start_transfer_server=lambda *_: made))
    return made


def greeted() -> tuple[TransferServer, int]:
    """Returns a server that listens, and the number of the byte that the other host pulls first."""
    server = TransferServer(jax.devices()[0], LOOPBACK)
    server.open()
    greeting, _, address = server.where().partition(" ")
    assert address == f"{LOOPBACK}:1"
    return server, int(greeting)


def test_the_first_byte_has_a_number_that_no_value_has(recorded: RecordingServer) -> None:
    """Numbers of values have 62 bits."""
    _, greeting = greeted()
    assert recorded.offered == [greeting] and 1 << 62 <= greeting < 1 << 63


@pytest.mark.parametrize("is_lost", [False, True])
def test_only_a_host_that_is_not_lost_can_still_pull_the_first_byte(recorded: RecordingServer, is_lost: bool) -> None:
    server, greeting = greeted()
    server.offer(7, [], [])
    assert recorded.offered == [greeting, 7]
    for _ in range(2):
        server.drop(is_lost=is_lost)
        assert recorded.offered == ([] if is_lost else [greeting])
