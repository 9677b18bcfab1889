"""Hosts that meet: when that is over both ends are ready, and one that is not well keeps nobody for ever."""

from typing import Any

import jax
import numpy as np
import pytest

from pathways.dialect.dtypes import ArrayType
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.devices.transfer_server import Incoming
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


def pulled(target: Neighbors, source: Neighbors, number: int) -> Any:
    value = jax.device_put(np.arange(3, dtype=np.int8), source.device)
    source.server_for(target.island).offer(number, [value])
    wanted = Incoming.of(target.device.client, [ArrayType((3,), "int8")], [pjrt.on_device(target.device)])
    return np.asarray(target.reached()[source.island].pull(number, wanted)[0])


def test_who_has_met_is_ready(waited: list[list[Any]]) -> None:
    a, b = pair()
    a.meet({"b": b.invite("a")})
    first = a.reached()["b"]
    np.testing.assert_array_equal(pulled(a, b, 7), [0, 1, 2])
    a.meet({"b": b.invite("a")})  # as when a third host comes
    assert a.reached()["b"] is first and waited == [[True], [True]]
    a.lose("b", GONE)
    a.meet({"b": b.invite("a")})
    assert a.reached()["b"] is not first
    np.testing.assert_array_equal(pulled(a, b, 8), [0, 1, 2])


def test_who_does_not_greet_is_not_waited_for_for_ever(
    waited: list[list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tested, "MEETING", 0.01)
    a, b = pair()
    address, number = b.invite("a").split()
    a.meet({"b": f"{address} {int(number) ^ 1}"})
    assert waited == [[False]]
    a.lose("b", GONE)


def test_who_is_gone_is_met_as_nobody(waited: list[list[Any]]) -> None:
    a, b = pair()
    a.meet({"b": b.invite("a")})
    a.lose("b", GONE, gone=False)
    a.reached()["b"].lost = None  # as where the word of it comes while they meet
    a.meet({"b": b.invite("a")})
    assert waited[0] == [True] and len(waited) == 2
