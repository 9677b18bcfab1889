"""Tests who tells a client that its run has ended: its hosts, or the controller."""

import socket

from support.plans_by_hand import plan_of

from pathways.dialect.plan.nouns import Plan
from pathways.runtime.host.posting import ClientPost
from pathways.runtime.host.run_ends import MAX_ISLANDS_TELLING, told_directly
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.connection import Connection
from pathways.runtime.wire.ids import first_id

DONE, FAILED = m.Done(first_id(3), 7), m.Failed(first_id(3), 7, {"0": "{}"})
TOLD = [m.Done(first_id(3), 7, is_told=True), m.Failed(first_id(3), 7, {"0": "{}"}, is_told=True)]


def plan(islands: int = 1) -> Plan:
    return plan_of({f"island{number}": () for number in range(islands)})


def test_a_client_that_reads_is_told_by_its_hosts() -> None:
    here, there = socket.socketpair()
    near, far = Connection(here), Connection(there)
    clients = {3: ClientPost(near)}
    assert [told_directly(said, plan(), clients) for said in (DONE, FAILED)] == TOLD
    assert [far.receive(), far.receive()] == [DONE, FAILED]
    assert told_directly(DONE, plan(MAX_ISLANDS_TELLING), clients) == TOLD[0] and far.receive() == DONE
    assert told_directly(DONE, plan(MAX_ISLANDS_TELLING + 1), clients) is DONE
    assert told_directly(replace_client(DONE, 4), plan(), clients) == replace_client(DONE, 4)
    near.close()
    assert told_directly(DONE, plan(), clients) is DONE
    far.close()


def replace_client(said: m.Done, client: int) -> m.Done:
    return m.Done(first_id(client), said.nanoseconds)


def test_a_client_that_does_not_read_is_told_by_the_controller() -> None:
    here, there = socket.socketpair()
    near, far = Connection(here), Connection(there)
    near.post_soon(m.PutArray(1, 2, 3, bytes(1 << 22)))
    assert told_directly(DONE, plan(), {3: ClientPost(near)}) is DONE
    far.receive()
    near.wait_until_sent(10)
    assert told_directly(DONE, plan(), {3: ClientPost(near)}) == TOLD[0] and far.receive() == DONE
    near.close()
    far.close()
