"""Tests the discrete-event engine: jobs wait for operands, devices, hosts, network ports and cores, and for no more."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pathways.compiler.schedule.timeline import Precedence, play
from pathways.compiler.simulate.engine import Job, Waits, run_jobs


def job(
    seconds: float,
    data: Sequence[int] = (),
    devices: Sequence[int] = (),
    *,
    release: float = 0.0,
    ports: Sequence[str] = (),
    latency: float = 0.0,
    cores: int = 0,
) -> Job:
    return Job(seconds, latency, release, data, devices, ports, cores)


def test_a_job_starts_when_the_last_job_before_it_ends() -> None:
    played = run_jobs([job(1.0), job(3.0), job(2.0, data=[0, 1]), job(1.0, devices=[2])])
    assert played.starts == [0.0, 0.0, 3.0, 5.0] and played.ends == [1.0, 3.0, 5.0, 6.0]
    assert played.waits[2:] == [Waits.DATA, Waits.DEVICES] and played.causes[2:] == [1, 2]
    assert played.seconds == 6.0


def test_a_job_that_is_enqueued_late_waits_for_its_host() -> None:
    played = run_jobs([job(1.0), job(1.0, data=[0], release=4.0), job(1.0, data=[1], release=2.0)])
    assert played.starts == [0.0, 4.0, 5.0]
    assert played.waits[1:] == [Waits.HOST, Waits.DATA] and played.causes[1:] == [-1, 1]


def test_transfers_that_share_a_port_follow_each_other_in_the_order_of_arrival() -> None:
    """The second transfer to `b` is ready first, so it goes first. The one to `c` uses the free time of its port."""
    jobs = [
        job(2.0),
        job(1.0),
        job(4.0, data=[0], ports=["out a", "in b"]),
        job(4.0, data=[1], ports=["out d", "in b"]),
        job(1.0, data=[0], ports=["out a", "in c"]),
    ]
    played = run_jobs(jobs)
    assert played.starts == [0.0, 0.0, 5.0, 1.0, 2.0]
    assert played.waits[2] == Waits.NETWORK and played.causes[2] == 3


def test_a_job_that_makes_an_operand_on_the_same_device_counts_as_data() -> None:
    played = run_jobs([job(1.0), job(1.0, data=[0], devices=[0])])
    assert played.waits[1] == Waits.DATA


def test_latency_delays_the_value_but_not_the_port() -> None:
    jobs = [job(1.0, ports=["x"], latency=5.0), job(1.0, ports=["x"], latency=5.0), job(1.0, data=[1])]
    played = run_jobs(jobs)
    assert played.starts == [0.0, 1.0, 7.0] and played.ends[:2] == [6.0, 7.0]


@pytest.mark.parametrize(("cores", "ends"), [(4, [2.0, 2.0]), (2, [2.0, 2.0]), (1, [4.0, 4.0])])
def test_running_jobs_share_cores(cores: int, ends: list[float]) -> None:
    assert run_jobs([job(2.0, cores=1), job(2.0, cores=1)], cores).ends == ends


def test_a_job_is_slower_only_while_others_need_its_cores() -> None:
    """One second alone, then two jobs on one core at half their rates, then the rest alone."""
    played = run_jobs([job(3.0, cores=1), job(1.0, release=1.0, cores=1)], cores=1)
    assert played.ends == pytest.approx([4.0, 3.0])


def test_a_gang_needs_a_core_for_each_device() -> None:
    assert run_jobs([job(1.0, cores=4)], cores=2).ends == [2.0]
    assert run_jobs([job(1.0, cores=4), job(1.0, cores=4)], cores=2).ends == pytest.approx([4.0, 4.0])


@st.composite
def graphs(draw: st.DrawFn) -> list[tuple[float, list[int], list[int]]]:
    count = draw(st.integers(1, 12))
    found: list[tuple[float, list[int], list[int]]] = []
    for number in range(count):
        before = st.lists(st.integers(0, number - 1), unique=True, max_size=3) if number else st.just([])
        found.append((draw(st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0])), draw(before), draw(before)))
    return found


@given(graphs())
def test_without_shared_resources_the_result_is_that_of_the_schedule_timeline(
    graph: list[tuple[float, list[int], list[int]]],
) -> None:
    played = run_jobs([job(seconds, data, devices) for seconds, data, devices in graph])
    precedence = Precedence([d for _, d, _ in graph], [-1] * len(graph), [s for s, _, _ in graph])
    expected = play(precedence, [tuple(devices) for _, _, devices in graph])
    assert played.starts == expected.starts and played.ends == expected.ends


@given(graphs(), st.integers(1, 3))
def test_cores_and_ports_only_delay_and_lose_no_work(
    graph: list[tuple[float, list[int], list[int]]], cores: int
) -> None:
    free = run_jobs([job(seconds, data, devices) for seconds, data, devices in graph])
    work = [job(s, data, devices, cores=1) for s, data, devices in graph]
    shared = run_jobs(work, cores)
    assert all(a <= b + 1e-9 for a, b in zip(free.ends, shared.ends, strict=True))
    assert shared.seconds >= sum(s for s, _, _ in graph) / cores - 1e-9
    one_port = run_jobs([job(s, data, devices, ports=["x"]) for s, data, devices in graph])
    times = sorted(zip(one_port.starts, one_port.ends, strict=True))
    assert all(end <= start + 1e-9 for (_, end), (start, _) in pairwise(times))
