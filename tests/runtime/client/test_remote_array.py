"""Tests arrays of another process: when they are there, why they never will be, and when they are freed."""

import threading
from typing import Any

import numpy as np
import pytest

from pathways.dialect.diagnostics import Diagnostic, PathwaysError
from pathways.dialect.dtypes import ArrayType
from pathways.runtime.client.arrays import (
    copied,
    copied_shard,
    fetched,
    fetched_shard,
    is_any_array,
    sharding_of,
    start_fetching,
)
from pathways.runtime.client.remote_array import Parts, RemoteArray, RemoteRun
from pathways.runtime.errors import ComputationFailed

TYPE = ArrayType((2, 3), "int16")


def cause(text: str) -> Diagnostic:
    return ComputationFailed(computation="f", island="island0", cause=text)


class Store:
    """The arrays of a host, by number: each holds its number, and its shards one number more each."""

    def __init__(self) -> None:
        self.freed: list[int] = []
        self.lost: Diagnostic | None = None

    def free(self, number: int) -> None:
        self.freed.append(number)

    def fetch(self, number: int, shard: int) -> tuple[tuple[int, ...], bytes]:
        shape = (2, 3) if shard < 0 else (1, 3)
        return shape, np.full(shape, number + shard + 1, np.int16).tobytes()

    def copy(self, number: int, shard: int) -> int:
        return number + 100 + 10 * (shard + 1)


def raised(array: RemoteArray) -> Diagnostic:
    with pytest.raises(PathwaysError) as caught:
        array.block_until_ready()
    return caught.value.diagnostic


def test_an_array_without_a_run_is_there_until_its_host_is_lost() -> None:
    store = Store()
    array = RemoteArray(store, 7, TYPE)
    assert array.is_ready() and array.failure() is None and not array.is_deleted()
    np.testing.assert_array_equal(array.fetch(), np.full((2, 3), 7, np.int16))
    np.testing.assert_array_equal(array.fetch(1), np.full((1, 3), 9, np.int16))
    store.lost = cause("gone")
    assert raised(array) is store.lost


def test_the_death_of_an_array_frees_it_alone() -> None:
    store = Store()
    array = RemoteArray(store, 7, TYPE)
    copy = array.copied()
    assert copy.number == 107 and copy.store is store and copy.type is TYPE
    del array
    assert store.freed == [7]
    del copy
    assert store.freed == [7, 107]


def test_a_result_that_failed_raises_its_cause_and_others_are_there() -> None:
    run, bad = RemoteRun(), cause("bad")
    first, second = (RemoteArray(Store(), n, TYPE, run, n) for n in range(2))
    assert not first.is_ready() and first.failure() is None
    run.end({1: bad})
    first.block_until_ready()
    assert first.is_ready() and first.failure() is None and second.failure() is bad and raised(second) is bad
    assert raised(second.copied()) is bad and first.copied().failure() is None


def test_only_the_first_end_of_a_run_counts() -> None:
    run, bad = RemoteRun(), cause("bad")
    run.end({0: bad}, found=(3, bad))
    run.end({1: bad}, cause("all"))
    assert run.is_ready() and run.causes == {0: bad} and run.everything is None and run.found == (3, bad)


def test_a_lost_host_is_the_cause_of_all_results() -> None:
    run, everything, bad = RemoteRun(), cause("gone"), cause("bad")
    run.end({0: bad}, everything)
    assert run.cause(0) is everything and run.cause(5) is everything
    run.cancelled = bad
    assert run.cause(5) is bad


def test_a_run_without_loops_is_not_cancelled() -> None:
    assert not RemoteRun().cancel(cause("stop"))
    given: list[Diagnostic] = []
    stop = cause("stop")
    for ends in (True, False):

        def cancel(why: Diagnostic, ends: bool = ends) -> bool:
            given.append(why)
            return ends

        assert RemoteRun(cancel).cancel(stop) is ends
    assert given == [stop, stop]


def test_all_parts_of_a_run_that_have_not_ended_are_cancelled_together() -> None:
    told: list[Diagnostic] = []
    parts = Parts(told.append)
    ended, first, second = (parts.add() for _ in range(3))
    ended.end({})
    stop = cause("stop")
    assert first.cancel(stop) and told == [stop]
    assert first.cancelled is stop is second.cancelled and ended.cancelled is None
    assert first.is_ready() and RemoteArray(Store(), 1, TYPE, second, 0).failure() is stop
    first.wait_for_results()  # it does not wait for the end of what was cancelled
    assert not second.cancel(cause("again")) and told == [stop]


def test_a_thread_that_waits_for_a_run_goes_on_at_its_end() -> None:
    run = RemoteRun()
    thread = threading.Thread(target=run.wait_for_results, daemon=True)
    thread.start()
    run.end({})
    thread.join(20)
    assert not thread.is_alive()
    run.block_until_ready()


def test_a_remote_array_is_used_as_a_local_one_is() -> None:
    array: Any = RemoteArray(Store(), 7, TYPE)
    side: Any = None
    assert is_any_array(array) and not is_any_array(np.ones(3)) and sharding_of(array) is None
    start_fetching(array)
    np.testing.assert_array_equal(fetched(array), np.full((2, 3), 7, np.int16))
    np.testing.assert_array_equal(fetched_shard(array, 0), np.full((1, 3), 8, np.int16))
    assert copied(array, side).number == 107
    shard = copied_shard(array, 2, ArrayType((1, 3), "int16"))
    assert (shard.number, shard.type.shape) == (137, (1, 3))
