"""Tests when a host that sends no heartbeats is lost."""

import pytest

from pathways.dialect.diagnostics import PathwaysError
from pathways.runtime.control.health import TIMEOUT, HeartbeatMonitor, host_timeout
from pathways.runtime.time_limits import MAX_POLL_GAP_S


def test_a_host_is_lost_after_the_heartbeat_timeout() -> None:
    monitor = HeartbeatMonitor(10.0)
    assert monitor.judge(100.0, {"a": 100.0, "b": 95.0}) == {}
    for tenth in range(50):
        assert monitor.judge(100.0 + tenth / 10, {"a": 100.0, "b": 95.0}) == {}
    assert monitor.judge(105.0, {"a": 100.0, "b": 95.0}) == {}  # exactly the limit is still allowed
    assert monitor.judge(105.5, {"a": 105.0, "b": 95.0}) == {"b": 10.5}


def test_time_in_which_this_process_was_stopped_does_not_count() -> None:
    monitor = HeartbeatMonitor(10.0)
    monitor.judge(100.0, {"a": 100.0})
    assert monitor.judge(100.0 + MAX_POLL_GAP_S + 60, {"a": 100.0}) == {}
    now = 100.0 + MAX_POLL_GAP_S + 60
    while now < 100.0 + MAX_POLL_GAP_S + 70:
        now += 0.5
        assert monitor.judge(now, {"a": 100.0}) == {}
    assert monitor.judge(now + 0.5, {"a": 100.0}) == {"a": 10.5}


def test_short_pauses_between_checks_count_toward_the_timeout() -> None:
    monitor = HeartbeatMonitor(3.0)
    monitor.judge(0.0, {"a": 0.0})
    assert monitor.judge(MAX_POLL_GAP_S, {"a": 0.0}) == {}
    assert monitor.judge(2 * MAX_POLL_GAP_S, {"a": 0.0}) == {"a": 2 * MAX_POLL_GAP_S}


@pytest.mark.parametrize("value", ["0", "-1", "soon", "", "nan"])
def test_an_invalid_heartbeat_timeout_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TIMEOUT, value)
    with pytest.raises(PathwaysError) as caught:
        host_timeout()
    assert caught.value.code == "PWC0707"
    monkeypatch.setenv(TIMEOUT, "0.5")
    assert host_timeout() == 0.5
