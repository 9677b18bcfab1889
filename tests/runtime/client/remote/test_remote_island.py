"""A controller never waits forever for a host, whatever the host sends and however the host ends."""

import math
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
import pytest
from support.streams import end_loop, started_loop

from pathways.dialect.diagnostic_json import write_diagnostic
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.dtypes import ArrayType
from pathways.runtime.client.remote import remote_engine
from pathways.runtime.client.remote.remote_island import RemoteIsland
from pathways.runtime.client.remote_array import RemoteArray, RemoteRun
from pathways.runtime.errors import ComputationFailed
from pathways.runtime.wire import encoding
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.connection import Connection
from pathways.runtime.wire.frames import HEADER
from pathways.runtime.wire.ids import ClientIds

CAUSE = ComputationFailed(computation="f", island="island0", cause="boom")


class Far:
    """The far end of a connection: a host that a test controls."""

    def __init__(self) -> None:
        here, self.raw = socket.socketpair()
        self.connection = Connection(self.raw)
        self.lost = threading.Event()
        self.loop = started_loop()
        there = Connection(here).hand_over(self.loop)
        self.host = RemoteIsland(
            "island0", {"island0": there}, lambda _: self.lost.set(), numbers=ClientIds(0), ordered=there
        )

    def run(self, message: m.RunPlan) -> RemoteRun:
        self.host.expect(message.run, run := RemoteRun())
        self.host.order(message)
        return run

    def answers(self, *answers: Callable[[Any], m.Message]) -> None:
        """Answers one message with each of the functions, in a new thread."""

        def work() -> None:
            for answer in answers:
                self.connection.post(answer(self.connection.receive()))

        threading.Thread(target=work, daemon=True).start()


@pytest.fixture
def far() -> Iterator[Far]:
    made = Far()
    yield made
    made.connection.close()
    made.host.lose("the test is over")
    assert made.lost.wait(60)
    end_loop(made.loop)


def load(number: int) -> m.Message:
    return m.LoadPlan(number, 0, "plan", False)


def test_each_request_receives_its_own_answer(far: Far) -> None:
    far.answers(lambda q: m.Answer(q.request, value="one"), lambda q: m.Answer(q.request, value="two"))
    assert [far.host.ask(load).value for _ in range(2)] == ["one", "two"]


def test_a_refusal_is_raised_with_the_diagnostic_of_the_host(far: Far) -> None:
    far.answers(lambda q: m.Answer(q.request, error=write_diagnostic(CAUSE)))
    with pytest.raises(PathwaysError) as caught:
        far.host.ask(load)
    assert caught.value.diagnostic == CAUSE


def test_a_run_ends_well_or_with_the_cause_of_each_failed_result(far: Far) -> None:
    far.answers(lambda r: m.Done(r.run, 5), lambda r: m.Failed(r.run, 5, {"1": write_diagnostic(CAUSE)}))
    good, bad = (far.run(m.RunPlan(0, n, 0, 10, ())) for n in range(2))
    type_ = ArrayType((2,), "int8")
    first, second = (RemoteArray(far.host, ClientIds(0).take(), type_, bad, n) for n in range(2))
    good.block_until_ready()
    first.block_until_ready()
    with pytest.raises(PathwaysError, match="boom"):
        second.block_until_ready()
    assert first.is_ready() and second.is_ready()


def test_a_run_has_the_fault_that_its_host_found_in_a_step(far: Far) -> None:
    far.answers(lambda r: m.Failed(r.run, 5, {}, write_diagnostic(CAUSE), 7))
    run = far.run(m.RunPlan(0, 0, 0, 10, (), wanted=1))
    run.block_until_ready()
    assert run.found == (7, CAUSE) and run.everything is None


def test_values_are_fetched_unchanged(far: Far) -> None:
    want = np.arange(6, dtype=np.int16).reshape(2, 3)
    far.answers(lambda q: m.Answer(q.request, value="[2, 3]", blob=want.tobytes()))
    got = RemoteArray(far.host, ClientIds(0).take(), ArrayType((2, 3), "int16")).fetch()
    np.testing.assert_array_equal(got, want)


def test_freed_arrays_are_sent_before_the_next_message(far: Far) -> None:
    numbers = [ClientIds(0).take() for _ in range(3)]
    arrays = [RemoteArray(far.host, n, ArrayType((), "int8")) for n in numbers]
    arrays.clear()
    far.host.order(m.CopyArray(1, 2))
    freed = far.connection.receive()
    assert isinstance(freed, m.FreeArrays) and set(freed.arrays) == set(numbers)
    assert far.connection.receive() == m.CopyArray(1, 2)


@pytest.mark.parametrize("how", ["end", "noise", "unasked", "too large", "a number that is none"])
def test_waiting_requests_and_runs_fail_when_the_host_is_lost(how: str, far: Far) -> None:
    run = far.run(m.RunPlan(0, 0, 0, 10, ()))
    raised: list[str] = []

    def ask() -> None:
        try:
            far.host.ask(load)
        except PathwaysError as error:
            raised.append(error.code)

    asking = threading.Thread(target=ask)
    asking.start()
    assert isinstance(far.connection.receive(), m.RunPlan) and isinstance(far.connection.receive(), m.LoadPlan)
    match how:
        case "end":
            far.connection.close()
            while far.host.lost is None:  # the controller says nothing for a long time
                far.host.lose_late(math.inf)
        case "noise":
            far.raw.sendall(HEADER.pack(3, 1) + b"abc")
        case "unasked":
            far.connection.post(m.Fence("island1", ""))
        case "too large":
            far.raw.sendall(HEADER.pack(1 << 60, encoding.MESSAGES.index(m.Done)))
        case _:
            far.connection.post(m.Failed(0, 1, {"one": write_diagnostic(CAUSE)}))
    asking.join(60)
    run.block_until_ready()
    assert raised == ["PWC0910"] and far.lost.wait(60)
    if how != "a number that is none":
        assert run.everything is not None and run.everything.code == "PWC0910"
    with pytest.raises(PathwaysError):
        far.host.ask(load)
    after = far.run(m.RunPlan(0, 1, 0, 10, ()))
    assert after.is_ready() and after.everything is far.host.lost
    far.host.order(m.CopyArray(1, 2))  # raises no error: the run that needs the copy has one


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_run_goes_on_if_a_host_is_lost_before_it_has_received_the_arguments(is_lost: bool) -> None:
    """The run fails with the cause of the loss. Another error is one of the client."""

    class Refusing:
        lost = CAUSE if is_lost else None

        def flush(self) -> None:
            raise PathwaysError(CAUSE)

    flush = cast("Any", remote_engine)._flush
    if is_lost:
        flush(Refusing())
    else:
        with pytest.raises(PathwaysError, match="boom"):
            flush(Refusing())
