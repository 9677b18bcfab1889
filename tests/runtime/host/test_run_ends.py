"""Tests when a run on a host is done, and that its client learns it from the hosts or from the controller."""

from types import SimpleNamespace
from typing import Any

import pytest
from support.clusters import PATIENCE, becomes
from support.plans_by_hand import plan_of
from support.streams import started_loop, stream_pair

from pathways.dialect.plan.nouns import Plan
from pathways.runtime.errors import ComputationFailed
from pathways.runtime.host.devices.layouts import Shards
from pathways.runtime.host.posting import ClientPost
from pathways.runtime.host.run.poison import Poison
from pathways.runtime.host.run_ends import MAX_ISLANDS_TELLING, is_done, report_directly
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.ids import first_id

DONE, FAILED = m.Done(first_id(3), 7), m.Failed(first_id(3), 7, {"0": "{}"})
REPORTED = [m.Done(first_id(3), 7, is_reported=True), m.Failed(first_id(3), 7, {"0": "{}"}, is_reported=True)]


def plan(islands: int = 1) -> Plan:
    return plan_of({f"island{number}": () for number in range(islands)})


def test_a_client_that_reads_is_told_by_its_hosts() -> None:
    near, far = stream_pair(started_loop())
    clients = {3: ClientPost(near.peer)}
    assert [report_directly(said, plan(), clients) for said in (DONE, FAILED)] == REPORTED
    assert [far.receive(), far.receive()] == [DONE, FAILED]
    assert report_directly(DONE, plan(MAX_ISLANDS_TELLING), clients) == REPORTED[0] and far.receive() == DONE
    assert report_directly(DONE, plan(MAX_ISLANDS_TELLING + 1), clients) is DONE
    assert report_directly(replace_client(DONE, 4), plan(), clients) == replace_client(DONE, 4)
    far.close()
    assert near.ended.wait(PATIENCE)
    assert report_directly(DONE, plan(), clients) is DONE


def replace_client(said: m.Done, client: int) -> m.Done:
    return m.Done(first_id(client), said.nanoseconds)


def test_a_client_that_does_not_read_is_told_by_the_controller() -> None:
    near, far = stream_pair(started_loop())
    near.post(m.PutArray(1, 2, 3, bytes(1 << 22)))
    assert becomes(lambda: not near.peer.is_taken)  # a busy loop writes a posted message later
    assert report_directly(DONE, plan(), {3: ClientPost(near.peer)}) is DONE
    far.receive()
    assert becomes(lambda: near.peer.is_taken)
    assert report_directly(DONE, plan(), {3: ClientPost(near.peer)}) == REPORTED[0] and far.receive() == DONE
    far.close()


class Value:
    """A result of a run: a computed array, one that is still computed, or one that a later run has overwritten."""

    def __init__(self, state: str) -> None:
        self._state = state

    def is_deleted(self) -> bool:
        return self._state == "deleted"

    def is_ready(self) -> bool:
        assert self._state != "deleted", "PJRT would raise"
        return self._state == "ready"


FAILURE = Poison(ComputationFailed(computation="f", island="island0", cause="a reason"))
READY, PENDING, DELETED = (Value(state) for state in ("ready", "pending", "deleted"))


@pytest.mark.parametrize(
    ("values", "done"),
    [
        ([READY, READY], True),
        ([READY, PENDING], False),
        ([READY, DELETED], False),
        ([READY, FAILURE], False),
        ([Shards([READY]), Shards([READY, READY])], True),
        ([Shards([READY, PENDING])], False),
    ],
)
def test_a_run_of_one_launch_is_done_once_all_its_results_are_ready(values: list[Any], done: bool) -> None:
    results: list[Any] = [(None, value) for value in values]
    for shows_end in (True, False):
        part: Any = SimpleNamespace(shows_end=shows_end)
        assert is_done(part, results) is (done and shows_end)
