"""Activities of all threads are listed in order, and are removed from the list when their blocks end."""

import threading
from collections.abc import Iterator

import pytest

from pathways.dialect import activities
from pathways.dialect.activities import Activity, under_way


class RecordingDisplay:
    """A display that records the events it is notified of."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def begun(self) -> None:
        self.events.append(f"begun, {len(under_way())} there")

    def ended(self) -> None:
        self.events.append("ended")


@pytest.fixture
def recorder() -> Iterator[RecordingDisplay]:
    """Installs a recording display, and restores the previous display afterwards."""
    display = RecordingDisplay()
    before = activities.follow(display)
    yield display
    activities.follow(before)


def test_an_activity_is_listed_while_its_block_runs(
    recorder: RecordingDisplay, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter([5.0, 7.0])
    monkeypatch.setattr(activities, "clock", lambda: next(now))
    with Activity("outer") as outer:
        with Activity("inner", 3, "parts", detail="first") as inner:
            assert under_way() == [outer, inner] and (outer.begun, inner.begun) == (5.0, 7.0)
            assert outer.thread == inner.thread == threading.get_ident()
        assert under_way() == [outer]
    assert under_way() == [] and recorder.events == ["begun, 1 there", "begun, 2 there", "ended"]


def test_an_error_ends_an_activity(recorder: RecordingDisplay) -> None:
    with pytest.raises(KeyError), Activity("fails"):
        raise KeyError
    assert under_way() == [] and recorder.events[-1] == "ended"


def test_a_display_is_notified_when_the_last_activity_ends(recorder: RecordingDisplay) -> None:
    begun, end = threading.Event(), threading.Event()

    def work() -> None:
        with Activity("elsewhere"):
            begun.set()
            end.wait()

    thread = threading.Thread(target=work)
    with Activity("here"):
        thread.start()
        begun.wait()
        assert [one.name for one in under_way()] == ["here", "elsewhere"]
    assert "ended" not in recorder.events
    end.set()
    thread.join()
    assert recorder.events[-1] == "ended" and under_way() == []


def test_since_sets_the_begin_time_of_an_activity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activities, "clock", lambda: 9.0)
    with Activity("waits", since=8.5) as waits:
        assert waits.begun == 8.5


def test_an_activity_counts_from_zero_and_may_have_no_total() -> None:
    found = Activity("waits")
    assert (found.done, found.total, found.unit, found.detail, found.thread) == (0, 0, "", "", 0)
    assert (Activity("loads", 3, "parts", detail="d").total, found.begun) == (3, 0.0)


def test_a_new_display_returns_the_one_before(recorder: RecordingDisplay) -> None:
    other = RecordingDisplay()
    assert activities.follow(other) is recorder and activities.follow(recorder) is other
