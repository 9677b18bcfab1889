"""Hosts that meet: when that is over both ends are ready, and one that is not well keeps nobody for ever."""

import threading
from typing import Any

import jax
import numpy as np
import pytest

from pathways.dialect.dtypes import ArrayType
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.devices.eager_values import landed
from pathways.runtime.host.devices.transfer_server import Incoming, eager_limit
from pathways.runtime.host.load import neighbors as tested
from pathways.runtime.host.load.neighbors import Neighbors
from pathways.runtime.wire.errors import HostLost

GONE = HostLost(island="b", reason="a test")


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[list[Any]]:
    """The values that meetings have waited for, and whether they were there then."""
    found: list[list[Any]] = []
    wait = tested.wait_at_most

    def note(values: Any, seconds: float) -> None:
        wait(values, seconds)
        found.append([value.is_ready() for value in values])

    monkeypatch.setattr(tested, "wait_at_most", note)
    return found


def pair() -> tuple[Neighbors, Neighbors]:
    return Neighbors(jax.devices()[0], "a"), Neighbors(jax.devices()[0], "b")


def arrives(target: Neighbors, source: Neighbors, number: int) -> None:
    """Sees that a small value comes, which is sent, and a large one, which is pulled."""
    server, reached, here = source.server_for(target.island), target.reached()[source.island], source.device
    for at, size in enumerate((3, eager_limit() // 2 + 1)):
        types, shardings = [ArrayType((size,), "int16")], [pjrt.on_device(target.device)]
        value = np.arange(size).astype(np.int16)
        assert server.sends(types, shardings) == (not at)
        if at:
            server.offer(number + at, [jax.device_put(value, here)])
        else:
            source.sender([here]).take(server.parcel(number, [jax.device_put(value, here)]))
        pieces = reached.pull(number + at, Incoming.of(target.device.client, types, shardings))
        for piece in pieces:
            piece.block_until_ready()
        np.testing.assert_array_equal(np.asarray(landed(pieces)[0]), value)


def test_who_has_met_is_ready(waited: list[list[Any]]) -> None:
    a, b = pair()
    a.meet({"b": b.invite("a")})
    first = a.reached()["b"]
    arrives(a, b, 7)
    a.meet({"b": b.invite("a")})  # as when a third host comes
    assert a.reached()["b"] is first and waited == [[True, True], [True, True]]
    a.lose("b", GONE)
    a.meet({"b": b.invite("a")})
    assert a.reached()["b"] is not first
    arrives(a, b, 17)


def test_who_does_not_greet_is_not_waited_for_for_ever(
    waited: list[list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tested, "MEETING", 0.01)
    a, b = pair()
    number, _, addresses = b.invite("a").partition(" ")
    a.meet({"b": f"{int(number) ^ 1} {addresses}"})
    assert not all(waited[0])
    a.lose("b", GONE)


def test_who_is_gone_is_met_as_nobody(waited: list[list[Any]]) -> None:
    a, b = pair()
    a.meet({"b": b.invite("a")})
    a.lose("b", GONE, anew=1)
    a.reached()["b"].lost = None  # as where the word of it comes while they meet
    a.meet({"b": b.invite("a")})
    assert waited[0] == [True, True] and len(waited) == 2


def test_who_was_not_reached_and_is_replaced_meanwhile_begins_as_new() -> None:
    """The word that both are to connect anew comes to work that waited, or when the other is gone already."""
    for late in (True, False):
        a, b = pair()
        a.meet({"b": b.invite("a")})
        b.meet({"a": a.invite("b")})
        if late:
            a.lose("b", GONE, 7)
        a.lose("b", GONE)
        if not late:
            a.lose("b", GONE, 7)
        other = Neighbors(jax.devices()[0], "b")
        a.meet({"b": other.invite("a")})
        other.meet({"a": a.invite("b")})
        a.mend("b", 7)
        arrives(other, a, 100)
        arrives(a, other, 200)
        a.lose("b", GONE, 8)
        a.lose("b", GONE, 9)
        other.lose("a", GONE, 8)
        other.lose("a", GONE, 9)
        ends = ((a, "b"), (other, "a"))
        threads = [threading.Thread(target=one.mend, args=(name, n)) for one, name in ends for n in (8, 9)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        arrives(other, a, 300)
        arrives(a, other, 400)
