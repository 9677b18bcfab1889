"""Tests who tells a client that its run has ended: its hosts, or the controller."""

from support.clusters import PATIENCE, becomes
from support.plans_by_hand import plan_of
from support.streams import started_loop, stream_pair

from pathways.dialect.plan.nouns import Plan
from pathways.runtime.host.posting import ClientPost
from pathways.runtime.host.run_ends import MAX_ISLANDS_TELLING, told_directly
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.ids import first_id

DONE, FAILED = m.Done(first_id(3), 7), m.Failed(first_id(3), 7, {"0": "{}"})
TOLD = [m.Done(first_id(3), 7, is_told=True), m.Failed(first_id(3), 7, {"0": "{}"}, is_told=True)]


def plan(islands: int = 1) -> Plan:
    return plan_of({f"island{number}": () for number in range(islands)})


def test_a_client_that_reads_is_told_by_its_hosts() -> None:
    near, far = stream_pair(started_loop())
    clients = {3: ClientPost(near.peer)}
    assert [told_directly(said, plan(), clients) for said in (DONE, FAILED)] == TOLD
    assert [far.receive(), far.receive()] == [DONE, FAILED]
    assert told_directly(DONE, plan(MAX_ISLANDS_TELLING), clients) == TOLD[0] and far.receive() == DONE
    assert told_directly(DONE, plan(MAX_ISLANDS_TELLING + 1), clients) is DONE
    assert told_directly(replace_client(DONE, 4), plan(), clients) == replace_client(DONE, 4)
    far.close()
    assert near.ended.wait(PATIENCE)
    assert told_directly(DONE, plan(), clients) is DONE


def replace_client(said: m.Done, client: int) -> m.Done:
    return m.Done(first_id(client), said.nanoseconds)


def test_a_client_that_does_not_read_is_told_by_the_controller() -> None:
    near, far = stream_pair(started_loop())
    near.post(m.PutArray(1, 2, 3, bytes(1 << 22)))
    assert told_directly(DONE, plan(), {3: ClientPost(near.peer)}) is DONE
    far.receive()
    assert becomes(lambda: near.peer.is_taken)
    assert told_directly(DONE, plan(), {3: ClientPost(near.peer)}) == TOLD[0] and far.receive() == DONE
    far.close()
