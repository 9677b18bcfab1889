"""Tests the rule that decides whether a run hangs, without a clock."""

from hypothesis import given
from hypothesis import strategies as st

from pathways.runtime.host.observe.hang_rule import Doubling, Evidence, Stillness, Verdict, judge

LIMIT = 10.0
SECONDS = st.floats(0, 1e6)


def evidence(
    still: float = 1e4, idle: float | None = 0, devices_idle: float | None = 0, called: float = 0, beside: bool = False
) -> Evidence:
    return Evidence(still, idle, devices_idle, called, beside)


@given(SECONDS, SECONDS, SECONDS, st.booleans())
def test_a_run_with_progress_within_the_limit_is_fine(idle: float, devices: float, called: float, beside: bool) -> None:
    assert judge(evidence(LIMIT - 0.1, idle, devices, called, beside), LIMIT) is Verdict.FINE


@given(SECONDS, st.floats(0, LIMIT, exclude_max=True), st.booleans())
def test_no_run_is_hung_while_the_process_computes(still: float, idle: float, beside: bool) -> None:
    for devices in (0.0, 1e4, None):
        assert judge(evidence(still, idle, devices, 0, beside), LIMIT) is not Verdict.HUNG


def test_a_long_step_of_the_only_run_is_fine() -> None:
    assert judge(evidence(still=1e5), LIMIT) is Verdict.FINE


def test_an_idle_process_proves_a_hang() -> None:
    assert judge(evidence(idle=LIMIT, devices_idle=LIMIT), LIMIT) is Verdict.HUNG
    assert judge(evidence(idle=LIMIT - 1), LIMIT) is not Verdict.HUNG


def test_an_idle_callback_proves_a_hang_while_other_runs_compute() -> None:
    assert judge(evidence(called=LIMIT, beside=True), LIMIT) is Verdict.HUNG
    assert judge(evidence(called=LIMIT, idle=None), LIMIT) is Verdict.HUNG
    assert judge(evidence(called=LIMIT - 1, beside=True), LIMIT) is not Verdict.HUNG


def test_a_run_without_progress_for_exactly_the_limit_is_judged() -> None:
    assert judge(evidence(still=LIMIT, idle=LIMIT), LIMIT) is Verdict.HUNG
    assert judge(evidence(still=LIMIT, beside=True), LIMIT) is Verdict.SUSPECTED


def test_a_run_with_inconclusive_evidence_is_suspected() -> None:
    assert judge(evidence(beside=True), LIMIT) is Verdict.SUSPECTED  # the CPU time may belong to another run
    assert judge(evidence(devices_idle=LIMIT), LIMIT) is Verdict.SUSPECTED  # Python computes, the devices do not
    assert judge(evidence(idle=None, devices_idle=None), LIMIT) is Verdict.SUSPECTED  # a GPU reports no idle time


def test_time_while_the_process_is_stopped_is_not_counted() -> None:
    stillness = Stillness(longest=1.0)
    for now in (0.0, 0.5, 1.0, 1000.0, 1000.5):
        stillness.poll(now)
        seconds = stillness.of("run", "a mark")
    assert seconds == 0.5 + 0.5 + 1.0 + 0.5
    assert stillness.of("run", "another mark") == 0.0


def test_a_forgotten_run_starts_again_at_zero() -> None:
    stillness = Stillness(longest=1.0)
    for now in (0.0, 0.5):
        stillness.poll(now)
        stillness.of("run", 1)
    stillness.keep(set())
    assert stillness.of("run", 1) == 0.0


def test_a_suspicion_is_reported_at_doubling_intervals() -> None:
    reports = Doubling(LIMIT)
    assert [still for still in range(0, 100) if reports.is_due("run", float(still))] == [10, 20, 40, 80]
    assert [still for still in (9, 95, 100, 161) if reports.is_due("another", float(still))] == [95, 161]


def test_a_thing_is_still_since_its_mark_last_changed() -> None:
    stillness = Stillness(longest=100.0)
    for now, mark in ((5.0, 1), (8.0, 1), (20.0, 2), (27.0, 2)):
        stillness.poll(now)
        seconds = stillness.of("run", mark)
    assert seconds == 27.0 - 20.0 and stillness.of("another", 2) == 0.0


def test_a_clock_that_steps_back_counts_for_nothing() -> None:
    stillness = Stillness(longest=1.0)
    for now in (10.0, 10.5, 3.0, 3.25):
        stillness.poll(now)
        seconds = stillness.of("run", 1)
    assert seconds == 0.5 + 0.25


def test_only_kept_runs_keep_their_doubled_interval() -> None:
    reports = Doubling(LIMIT)
    assert reports.is_due("kept", LIMIT) and reports.is_due("ended", LIMIT)
    reports.keep({"kept"})
    assert not reports.is_due("kept", LIMIT) and reports.is_due("ended", LIMIT)
