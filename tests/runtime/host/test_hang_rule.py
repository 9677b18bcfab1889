"""What is called a hang, and what is not: the rule alone, without a clock."""

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
def test_what_gets_on_is_fine(idle: float, devices: float, called: float, beside: bool) -> None:
    assert judge(evidence(LIMIT - 0.1, idle, devices, called, beside), LIMIT) is Verdict.FINE


@given(SECONDS, st.floats(0, LIMIT, exclude_max=True), st.booleans())
def test_nothing_hangs_while_the_process_computes(still: float, idle: float, beside: bool) -> None:
    for devices in (0.0, 1e4, None):
        assert judge(evidence(still, idle, devices, 0, beside), LIMIT) is not Verdict.HUNG


def test_a_step_of_hours_alone_is_not_even_suspected() -> None:
    assert judge(evidence(still=1e5), LIMIT) is Verdict.FINE


def test_a_process_that_does_nothing_proves_a_hang() -> None:
    assert judge(evidence(idle=LIMIT, devices_idle=LIMIT), LIMIT) is Verdict.HUNG
    assert judge(evidence(idle=LIMIT - 1), LIMIT) is not Verdict.HUNG


def test_a_callback_that_does_nothing_proves_a_hang_beside_others_that_compute() -> None:
    assert judge(evidence(called=LIMIT, beside=True), LIMIT) is Verdict.HUNG
    assert judge(evidence(called=LIMIT, idle=None), LIMIT) is Verdict.HUNG
    assert judge(evidence(called=LIMIT - 1, beside=True), LIMIT) is not Verdict.HUNG


def test_a_run_that_is_still_for_as_long_as_the_limit_is_judged() -> None:
    assert judge(evidence(still=LIMIT, idle=LIMIT), LIMIT) is Verdict.HUNG
    assert judge(evidence(still=LIMIT, beside=True), LIMIT) is Verdict.SUSPECTED


def test_what_cannot_be_told_is_suspected() -> None:
    assert judge(evidence(beside=True), LIMIT) is Verdict.SUSPECTED  # whose CPU time is it?
    assert judge(evidence(devices_idle=LIMIT), LIMIT) is Verdict.SUSPECTED  # Python computes, devices do not
    assert judge(evidence(idle=None, devices_idle=None), LIMIT) is Verdict.SUSPECTED  # a GPU does not say


def test_stopped_time_is_not_counted() -> None:
    stillness = Stillness(longest=1.0)
    for now in (0.0, 0.5, 1.0, 1000.0, 1000.5):
        stillness.look(now)
        seconds = stillness.of("run", "a mark")
    assert seconds == 0.5 + 0.5 + 1.0 + 0.5
    assert stillness.of("run", "another mark") == 0.0


def test_what_is_forgotten_begins_anew() -> None:
    stillness = Stillness(longest=1.0)
    for now in (0.0, 0.5):
        stillness.look(now)
        stillness.of("run", 1)
    stillness.keep(set())
    assert stillness.of("run", 1) == 0.0


def test_a_suspicion_is_told_at_doubling_intervals() -> None:
    told = Doubling(LIMIT)
    assert [still for still in range(0, 100) if told.is_due("run", float(still))] == [10, 20, 40, 80]
    assert [still for still in (9, 95, 100, 161) if told.is_due("another", float(still))] == [95, 161]
