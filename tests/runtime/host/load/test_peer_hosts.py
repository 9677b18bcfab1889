"""Tests how peer hosts connect: both ends are ready afterwards, and a failing peer delays the others only briefly."""

import threading
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest
from support.streams import started_loop

from pathways.dialect.dtypes import ArrayType
from pathways.runtime.host.between import transfer_server
from pathways.runtime.host.between.data_plane import ArrayGroup
from pathways.runtime.host.between.eager_values import landed
from pathways.runtime.host.between.link import EAGER, PULLED, eager_limit
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.devices.waits import wait_up_to
from pathways.runtime.host.load import peer_hosts as tested
from pathways.runtime.host.load.peer_hosts import PeerHosts
from pathways.runtime.wire.errors import HostLost

pytestmark = pytest.mark.usefixtures("transfer_servers_stay")
LOST = HostLost(island="b", reason="a test")


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[list[Any]]:
    """Records, for each wait of a meeting, whether each awaited value was ready at its end."""
    found: list[list[Any]] = []
    wait = tested.wait_up_to

    def note(values: Any, seconds: float) -> None:
        wait(values, seconds)
        found.append([value.is_ready() for value in values])

    monkeypatch.setattr(tested, "wait_up_to", note)
    return found


def pair() -> tuple[PeerHosts, PeerHosts]:
    return PeerHosts(jax.devices()[0], started_loop(), "a"), PeerHosts(jax.devices()[0], started_loop(), "b")


@pytest.fixture(autouse=True)
def greeted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Checks that both ends of each connection for pulls become ready."""
    found: list[bool] = []
    wait = transfer_server.wait_up_to

    def note(values: Any, seconds: float) -> None:
        wait(values, seconds)
        found.extend(value.is_ready() for value in values)

    monkeypatch.setattr(transfer_server, "wait_up_to", note)
    yield
    assert all(found)


def check_values_arrive(target: PeerHosts, source: PeerHosts, number: int) -> None:
    """Checks that a small value arrives by push and a large value by pull."""
    link, reached, here = source.to(target.island), target.sources[source.island], source.device
    for at, size in enumerate((3, eager_limit() // 2 + 1)):
        values = ArrayGroup([ArrayType((size,), "int16")], [pjrt.on_device(target.device)])
        value = np.arange(size).astype(np.int16)
        transport = link.prepare(values)
        assert transport == at
        unsent = link.offer(transport, number + at, [jax.device_put(value, here)], [here])
        assert (unsent is None) == bool(at)
        if unsent is not None:
            unsent.leave()
        pieces = reached.fetch(number + at, values)
        for piece in pieces:
            piece.block_until_ready()
        np.testing.assert_array_equal(np.asarray(landed(pieces)[0]), value)


def test_hosts_that_met_are_ready_and_connect_again_after_a_loss(waited: list[list[Any]]) -> None:
    a, b = pair()
    a.connect_to({"b": b.invite("a")})
    first = a.sources["b"]
    check_values_arrive(a, b, 7)
    a.connect_to({"b": b.invite("a")})  # happens again when a third host joins
    assert a.sources["b"] is first and waited == [[True], [True]]
    a.lose("b", LOST)
    a.connect_to({"b": b.invite("a")})
    assert a.sources["b"] is not first
    check_values_arrive(a, b, 17)


def test_meeting_a_host_that_does_not_greet_times_out(waited: list[list[Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tested, "MEETING_S", 0.01)
    a, b = pair()
    said = b.invite("a")
    a.connect_to({"b": said[:-1] + ("1" if said[-1] == "0" else "0")})  # a key that b does not know
    assert waited == [[False]]
    a.lose("b", LOST)


def test_meeting_a_lost_host_raises_no_error(waited: list[list[Any]]) -> None:
    a, b = pair()
    a.connect_to({"b": b.invite("a")})
    a.lose("b", LOST, anew=1)
    a.sources["b"].lost = None  # as if the host were reported lost during the meeting
    a.connect_to({"b": b.invite("a")})
    assert waited[0] == [True] and len(waited) == 2


def test_a_loss_drops_older_offers_but_no_pulls_of_the_replacement() -> None:
    a, b = pair()
    link, size = a.to("b"), eager_limit()
    wanted = ArrayGroup([ArrayType((size,), "int16")], [pjrt.on_device(b.device)])
    assert link.prepare(wanted) == PULLED
    values = jax.device_put(np.arange(size).astype(np.int16), a.device)
    a.invite("b")
    link.offer(PULLED, 70, [values], [])  # to the process that is lost
    for _ in range(2):
        a.lose("b", LOST)
    b.connect_to({"a": a.invite("b")})
    pulled = b.sources["a"].fetch(70, wanted)
    server: Any = link.planes[PULLED]
    server._server._await_pull_flat(71, [values])
    wait_up_to(landed(b.sources["a"].fetch(71, wanted)), 20)  # then the request for 70 has come, too
    for at in (1, 2):
        link.offer(PULLED, 70, [values + at], [])  # of a run that was sent before the losses
        assert link.offer(EAGER, 72, [values], [a.device]) is None
        a.end_loss("b")
    link.offer(PULLED, 70, [values + 3], [])
    wait_up_to(landed(pulled), 20)
    assert all(value.is_ready() for value in landed(pulled))
    np.testing.assert_array_equal(np.asarray(landed(pulled)[0]), np.asarray(values + 3))
    check_values_arrive(b, a, 7)


def test_losses_end_in_order_when_an_island_is_removed_and_added_again() -> None:
    a, _ = pair()
    a.lose("b", LOST)
    a.lose("b", LOST)
    a.leave("b")
    a.end_loss("b")
    other = PeerHosts(jax.devices()[0], started_loop(), "b")
    other.connect_to({"a": a.invite("b")})
    check_values_arrive(other, a, 7)  # though runs that were sent before the removal are still enqueued
    a.end_loss("b")
    check_values_arrive(other, a, 17)


def test_a_run_sent_before_a_host_ends_never_waits_for_its_successor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tested, "MEETING_S", 0.01)  # the other hosts never meet this one
    a, b = pair()
    a.connect_to({"b": b.invite("a")})
    a.lose("b", LOST, anew=1)
    a.mend("b", 1)
    assert a.reached()["b"].lost is None  # the same host, connected again
    others = [PeerHosts(jax.devices()[0], started_loop(), "b") for _ in range(2)]
    for other in others:
        a.lose("b", LOST)
        a.connect_to({"b": other.invite("a")})
    assert a.reached()["b"].lost is LOST  # a run that was sent before both losses
    a.end_loss("b")
    assert a.reached()["b"].lost is LOST  # a run that was sent between them
    a.end_loss("b")
    assert a.reached() == a.sources and a.reached()["b"].lost is None
    a.leave("b")
    a.lose("b", LOST)
    assert "b" not in a.reached()
    a.end_loss("b")
    assert not a._ended  # pyright: ignore[reportPrivateUsage]


def test_a_replaced_host_reconnects_in_any_order_of_loss_reports() -> None:
    """The request to reconnect arrives before or after the report that the other host is lost."""
    for late in (True, False):
        a, b = pair()
        a.connect_to({"b": b.invite("a")})
        b.connect_to({"a": a.invite("b")})
        if late:
            a.lose("b", LOST, 7)
        a.lose("b", LOST)
        if not late:
            a.lose("b", LOST, 7)
        other = PeerHosts(jax.devices()[0], started_loop(), "b")
        a.connect_to({"b": other.invite("a")})
        other.connect_to({"a": a.invite("b")})
        a.end_loss("b")
        a.mend("b", 7)
        check_values_arrive(other, a, 100)
        check_values_arrive(a, other, 200)
        a.lose("b", LOST, 8)
        a.lose("b", LOST, 9)
        other.lose("a", LOST, 8)
        other.lose("a", LOST, 9)
        ends = ((a, "b"), (other, "a"))
        threads = [threading.Thread(target=one.mend, args=(name, n)) for one, name in ends for n in (8, 9)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        check_values_arrive(other, a, 300)
        check_values_arrive(a, other, 400)
