"""Tests loading of plans at a host: the plan of one client does not wait for those of others."""

import queue
import threading
from typing import Any

import numpy as np

import pathways as pw
from pathways.api.process import process
from pathways.dialect.plan.nouns import Plan
from pathways.dialect.plan.plan_file import write_plan
from pathways.runtime.host.host import Host
from pathways.runtime.host.load.peer_hosts import PeerHosts
from pathways.runtime.wire import messages as m


def test_a_plan_that_loads_for_long_delays_no_other_client() -> None:
    x = np.arange(4, dtype=np.float32)
    compiled = pw.program(lambda x: x + 1.0).lower(x).compile()
    blob, machine = write_plan(compiled.plan), process().machine
    begun, blocked, answers = threading.Event(), threading.Event(), queue.SimpleQueue[Any]()
    order: list[int] = []

    def islands_of(plan: Plan) -> Any:
        client = int(threading.current_thread().name.rpartition("-")[2])
        if client == 1:
            begun.set()
            assert blocked.wait(60)
        order.append(client)
        return {island.key: island for island in machine.islands}

    nowhere: Any = None
    host = Host("island0", machine, islands_of, PeerHosts(nowhere, nowhere), lambda *_: None)
    try:
        assert not host.notice(m.LoadPlan(11, 1 << 48, "slow.bin", False, {}, blob), answers.put)
        assert begun.wait(60)
        host.notice(m.LoadPlan(21, 2 << 48, "quick.bin", False, {}, blob), answers.put)
        quick = answers.get(timeout=60)
        assert (quick.request, quick.error, order) == (21, "", [2])
    finally:
        blocked.set()
    slow = answers.get(timeout=60)
    assert (slow.request, slow.error, order) == (11, "", [2, 1])
