"""Tests the discrete-event engine: jobs wait for operands, devices, hosts, network ports and cores, and for no more."""

from collections.abc import Sequence
from itertools import pairwise
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pathways.compiler.schedule.timeline import Precedence, play
from pathways.compiler.simulate.engine import Job, Played, Waits, run_jobs


def job(
    seconds: float,
    data: Sequence[int] = (),
    *,
    gang: int = -1,
    host: int = 0,
    overhead: float = 0.0,
    ports: Sequence[str] = (),
    latency: float = 0.0,
    cores: int = 0,
    after: int = -1,
    behind: Sequence[int] = (),
) -> Job:
    return Job(seconds, latency, host, overhead, data, gang, ports, cores, after, behind)


def run(jobs: Sequence[Job], cores: float | None = None, begins: Sequence[float] = (0.0, 0.0, 0.0)) -> Played:
    """Runs jobs on three hosts, if every gang has devices of its own."""
    return run_jobs(jobs, begins, [[number] for number in range(8)], cores)


def test_a_job_starts_when_the_last_job_before_it_ends() -> None:
    played = run([job(1.0), job(3.0), job(2.0, data=[0, 1], gang=0), job(1.0, gang=0)])
    assert played.starts == [0.0, 0.0, 3.0, 5.0] and played.ends == [1.0, 3.0, 5.0, 6.0]
    assert played.waits[2:] == [Waits.DATA, Waits.DEVICES] and played.causes[2:] == [1, 2]
    assert played.seconds == 6.0


def test_a_job_that_is_enqueued_late_waits_for_its_host() -> None:
    played = run([job(1.0), job(1.0, data=[0], host=1), job(1.0, data=[1], host=1)], begins=[0.0, 4.0])
    assert played.starts == [0.0, 4.0, 5.0]
    assert played.waits[1:] == [Waits.HOST, Waits.DATA] and played.causes[1:] == [0, 1]


def test_jobs_that_a_host_enqueues_since_a_value_arrived_wait_for_that_value() -> None:
    """The last job is enqueued behind the one that makes its operand, and starts after the longest of its device."""
    jobs = [job(2.0), job(1.0, data=[0], host=1, gang=0), job(1.0, data=[0], host=1, gang=1)]
    played = run([*jobs, job(1.0, data=[2], host=1, gang=2)], begins=[0.0, 0.0])
    assert played.starts == [0.0, 2.0, 2.0, 3.0] and played.causes == [-1, 0, 0, 2]


def test_a_host_takes_time_for_each_job_and_enqueues_them_in_order() -> None:
    played = run([job(0.0, overhead=1.0), job(5.0, data=[0], overhead=1.0), job(1.0, overhead=1.0)])
    assert played.starts == [1.0, 2.0, 3.0]


def test_a_host_first_enqueues_what_waits_for_no_other_host() -> None:
    """Job 2 needs a value of the other host, so jobs 3 and 4 are before it in the queue of their device."""
    jobs = [
        job(4.0, host=0),
        job(1.0, host=1),
        job(1.0, data=[0, 1], host=1, gang=0),
        job(3.0, data=[1], host=1, gang=0),
        job(2.0, data=[3], host=1, gang=0),
    ]
    played = run(jobs)
    assert played.starts == [0.0, 0.0, 6.0, 1.0, 4.0]
    assert played.waits[2] == Waits.DEVICES and played.causes[2] == 4


def test_a_job_is_enqueued_behind_earlier_ones_whose_devices_it_would_block() -> None:
    jobs = [job(2.0), job(1.0, data=[0], gang=0, host=1), job(5.0, gang=1, host=1), job(1.0, data=[2], gang=0, host=1)]
    assert run(jobs).starts[1:] == [6.0, 0.0, 5.0]
    jobs[3] = jobs[3]._replace(behind=[1])
    assert run(jobs).starts[1:] == [2.0, 0.0, 5.0]


def test_a_value_that_was_not_requested_does_not_arrive() -> None:
    """The third value is there first. Its host requests it after the first value has arrived."""
    jobs = [
        job(5.0, host=0),
        job(1.0, host=2, after=0),
        job(1.0, data=[0], host=1),
        job(1.0, data=[1], host=1),
    ]
    played = run(jobs)
    assert played.starts[2:] == [5.0, 5.0]


def test_transfers_that_share_a_port_follow_each_other_in_the_order_of_arrival() -> None:
    """The second transfer to `b` is ready first, so it goes first. The one to `c` uses the free time of its port."""
    jobs = [
        job(2.0),
        job(1.0),
        job(4.0, data=[0], ports=["out a", "in b"]),
        job(4.0, data=[1], ports=["out d", "in b"]),
        job(1.0, data=[0], ports=["out a", "in c"]),
    ]
    played = run(jobs)
    assert played.starts == [0.0, 0.0, 5.0, 1.0, 2.0]
    assert played.waits[2] == Waits.NETWORK and played.causes[2] == 3


def test_many_transfers_that_wait_for_one_port_take_turns() -> None:
    """Ports are found without a scan of all that wait: 20,000 transfers would take minutes."""
    jobs = [job(1.0, ports=["out a", f"in {number % 3}"]) for number in range(20_000)]
    played = run(jobs)
    assert played.starts == [float(number) for number in range(20_000)]


def test_a_job_that_makes_an_operand_on_the_same_device_counts_as_data() -> None:
    played = run([job(1.0, gang=0), job(1.0, data=[0], gang=0)])
    assert played.waits[1] == Waits.DATA


def test_latency_delays_the_value_but_not_the_port() -> None:
    jobs = [job(1.0, ports=["x"], latency=5.0), job(1.0, ports=["x"], latency=5.0), job(1.0, data=[1])]
    played = run(jobs)
    assert played.starts == [0.0, 1.0, 7.0] and played.ends[:2] == [6.0, 7.0]


@pytest.mark.parametrize(("cores", "ends"), [(4, [2.0, 2.0]), (2, [2.0, 2.0]), (1, [4.0, 4.0])])
def test_running_jobs_share_cores(cores: int, ends: list[float]) -> None:
    assert run([job(2.0, cores=1), job(2.0, cores=1)], cores).ends == ends


def test_a_job_is_slower_only_while_others_need_its_cores() -> None:
    """One second alone, then two jobs on one core at half their rates, then the rest alone."""
    played = run([job(3.0, cores=1), job(1.0, host=1, cores=1)], cores=1, begins=[0.0, 1.0])
    assert played.ends == pytest.approx([4.0, 3.0])


def test_a_gang_needs_a_core_for_each_device() -> None:
    assert run([job(1.0, cores=4)], cores=2).ends == [2.0]
    assert run([job(1.0, cores=4), job(1.0, cores=4)], cores=2).ends == pytest.approx([4.0, 4.0])


Graph: TypeAlias = list[tuple[float, list[int], frozenset[int]]]
"""Jobs: the seconds, the operands and the devices of each."""


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    found: Graph = []
    for number in range(draw(st.integers(1, 12))):
        before = st.lists(st.integers(0, number - 1), unique=True, max_size=3) if number else st.just([])
        devices = draw(st.frozensets(st.integers(0, 3), max_size=2))
        found.append((draw(st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0])), draw(before), devices))
    return found


def play_graph(graph: Graph, cores: float | None = None, ports: Sequence[str] = (), overhead: float = 0.0) -> Played:
    """Runs a graph on one host."""
    gangs = list(dict.fromkeys(devices for _, _, devices in graph if devices))
    sharing = [[number for number, other in enumerate(gangs) if gang & other] for gang in gangs]
    jobs = [
        job(s, data, gang=gangs.index(devices) if devices else -1, ports=ports, overhead=overhead, cores=1)
        for s, data, devices in graph
    ]
    return run_jobs(jobs, [0.0], sharing, cores)


@given(graphs())
def test_one_host_enqueues_in_order_as_the_schedule_timeline_does(graph: Graph) -> None:
    played = play_graph(graph)
    precedence = Precedence([d for _, d, _ in graph], [-1] * len(graph), [s for s, _, _ in graph])
    sharing = [
        tuple(before for before in range(number) if graph[before][2] & devices)
        for number, (_, _, devices) in enumerate(graph)
    ]
    expected = play(precedence, sharing)
    assert played.starts == expected.starts and played.ends == expected.ends


@given(graphs(), st.integers(1, 3))
def test_cores_ports_and_overheads_only_delay_and_lose_no_work(graph: Graph, cores: int) -> None:
    free = play_graph(graph)
    for delayed in (play_graph(graph, cores), play_graph(graph, ports=["x"]), play_graph(graph, overhead=0.25)):
        assert all(a <= b + 1e-9 for a, b in zip(free.ends, delayed.ends, strict=True))
    assert play_graph(graph, cores).seconds >= sum(s for s, _, _ in graph) / cores - 1e-9
    one_port = play_graph(graph, ports=["x"])
    times = sorted(zip(one_port.starts, one_port.ends, strict=True))
    assert all(end <= start + 1e-9 for (_, end), (start, _) in pairwise(times))
