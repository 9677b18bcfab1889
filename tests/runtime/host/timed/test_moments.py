"""Tests moments, timers and ports of timed hosts: pure, or with times that have passed."""

import fcntl
import itertools
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pathways.runtime.host.timed.devices import GangLaunches
from pathways.runtime.host.timed.moments import Moment, Timer, after_all, now
from pathways.runtime.host.timed.ports import Ports


def test_work_is_called_when_the_last_moment_is_known() -> None:
    moments, found = [Moment(), Moment(2.0), Moment()], list[float]()
    after_all(moments, found.append)
    moments[2].know(5.0)
    assert not found
    moments[0].know(3.0)
    assert found == [5.0]
    after_all(moments, found.append)
    after_all([], found.append)
    assert found == [5.0, 5.0, 0.0]


def test_a_long_chain_of_moments_needs_no_deep_stack() -> None:
    chain = [Moment() for _ in range(5000)]
    for before, after in itertools.pairwise(chain):
        after_all([before], lambda time, after=after: after.know(time + 1.0))
    chain[0].know(0.0)
    assert chain[-1].time == 4999.0


def test_a_moment_is_ready_when_its_time_has_come() -> None:
    assert Moment(0.0).is_ready() and not Moment().is_ready() and not Moment(now() + 1e6).is_ready()
    later = Moment()
    known = threading.Thread(target=later.know, args=(now(),))
    known.start()
    later.block_until_ready()
    assert later.is_ready()
    known.join()


def test_a_timer_calls_what_is_due_in_the_order_of_times() -> None:
    found, over = list[int](), threading.Event()
    timer, begin = Timer(), now()
    timer.at(begin + 0.002, over.set)
    timer.at(begin + 0.001, lambda: found.append(2))
    timer.at(begin - 1.0, lambda: found.append(1))
    assert over.wait(60) and found == [1, 2]
    timer.close()


@given(st.permutations(range(3)))
def test_a_launch_of_several_hosts_begins_with_the_last_of_them(order: list[int]) -> None:
    launches, begins = GangLaunches(), [Moment() for _ in range(3)]
    ends = [launches.join(7, begin, 3, 10.0) for begin in begins]
    assert launches.join(8, Moment(1.0), 1, 2.0).time == 3.0
    for number in order:
        assert ends[0].time is None
        begins[number].know(float(number))
    assert [end.time for end in ends] == [12.0] * 3


@pytest.mark.parametrize("processes", [1, 2])
def test_a_transfer_takes_both_ports_when_both_are_free(tmp_path: Path, processes: int) -> None:
    """Several processes share the ports through the file."""
    ports = [Ports(tmp_path, 3) for _ in range(processes)]
    first, last = ports[0], ports[-1]
    assert first.take(0, 1, 10.0, 2.0) == 12.0
    assert last.take(0, 2, 10.0, 1.0) == 13.0  # the port out of island 0 is taken until 12
    assert first.take(2, 1, 10.0, 1.0) == 13.0  # the port into island 1 too
    assert last.take(1, 0, 10.0, 1.0) == 11.0
    assert first.take(0, 1, 20.0, 1.0) == 21.0
    for each in ports:
        each.close()


def test_a_transfer_begins_after_one_that_another_process_began_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Times are read only while no other process changes them."""
    here, elsewhere = Ports(tmp_path, 2), Ports(tmp_path, 2)
    lock, first = fcntl.lockf, list[float]()

    def waits_for_the_other(file: Any, command: int) -> None:
        if command == fcntl.LOCK_EX and not first:
            monkeypatch.setattr(fcntl, "lockf", lock)
            first.append(elsewhere.take(0, 1, 10.0, 2.0))
        lock(file, command)

    monkeypatch.setattr(fcntl, "lockf", waits_for_the_other)
    assert here.take(0, 1, 10.0, 1.0) == 13.0 and first == [12.0]
    for each in (here, elsewhere):
        each.close()
