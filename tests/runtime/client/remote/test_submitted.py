"""Tests the messages that a client of a shared cluster sends for a run, and when the client delays them."""

import threading
from types import SimpleNamespace
from typing import Any

from pathways.runtime.client.remote.ended_arrays import MAX_FREED, MAX_UNLOADED_WITH_RUN, EndedArrays
from pathways.runtime.client.remote.hosts import RemoteDevice, RunParcel, StartedRun
from pathways.runtime.client.remote.submitted import AHEAD, MAX_KEPT, are_ahead, parcels_of, submitted
from pathways.runtime.client.remote_array import RemoteRun
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.encoding import pack_parcels, read_frames, read_parcels


def test_freed_arrays_are_sent_once_and_before_the_next_run() -> None:
    ended = EndedArrays()
    ended.add(5)
    ended.add_plan(6)
    host: Any = SimpleNamespace(epoch=3, take_ended=ended.take_with_run)
    run = StartedRun(8, 7, None, False, {RemoteDevice("pod", 0, "cpu", "cpu", 2): 100}, None)
    start, argument = m.RunPlan(7, 8, 0, 9, (5,)), m.PutArray(4, 7, 0, b"x")

    def parcels(*before: m.Message) -> list[tuple[int, int, list[m.Message]]]:
        assert submitted(run, 0).memory == (2, 100)
        blob = pack_parcels(parcels_of({1: RunParcel(host, before, start)}))
        return [(island, epoch, read_frames(frames)) for island, epoch, frames in read_parcels(blob)]

    assert parcels(argument) == [(1, 3, [argument, m.FreeArrays((5,)), m.UnloadPlan(6), start])]
    assert parcels() == [(1, 3, [start])]
    for number in range(MAX_FREED + 3):
        ended.add(number)
        ended.add_plan(number)
    ((_, _, found),) = parcels()
    assert len(found) == 1 + MAX_UNLOADED_WITH_RUN + 1 and found[0] == m.FreeArrays(tuple(range(MAX_FREED)))
    assert len(ended.take()) == 1 + MAX_FREED + 3 - MAX_UNLOADED_WITH_RUN  # the rest


def test_a_run_is_delayed_only_if_all_its_islands_have_enough_work() -> None:
    def hosts(*under_way: int) -> Any:
        return [SimpleNamespace(under_way=count) for count in under_way]

    assert are_ahead(hosts(AHEAD + 1, AHEAD + 1))
    assert not are_ahead(hosts(AHEAD + 1, AHEAD))
    assert MAX_KEPT < AHEAD  # otherwise all runs under way could be delayed here


def test_the_end_of_a_run_wakes_all_waiting_threads() -> None:
    run = RemoteRun()
    threads = [threading.Thread(target=run.block_until_ready) for _ in range(4)]
    for thread in threads:
        thread.start()
    run.end({})
    for thread in threads:
        thread.join(30.0)
        assert not thread.is_alive()
    run.block_until_ready()
    assert run.is_ready()
