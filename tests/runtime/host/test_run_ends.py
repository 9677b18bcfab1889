"""Tests who tells a client that its run has ended: its hosts, or the controller."""

from support.clusters import PATIENCE, becomes
from support.plans_by_hand import plan_of
from support.streams import started_loop, stream_pair

from pathways.dialect.plan.nouns import Plan
from pathways.runtime.host.posting import ClientPost
from pathways.runtime.host.run_ends import MAX_ISLANDS_TELLING, report_directly
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
    assert report_directly(DONE, plan(), {3: ClientPost(near.peer)}) is DONE
    far.receive()
    assert becomes(lambda: near.peer.is_taken)
    assert report_directly(DONE, plan(), {3: ClientPost(near.peer)}) == REPORTED[0] and far.receive() == DONE
    far.close()
