"""What is under way: one list of all threads, in order; nothing stays in it."""

import threading
from collections.abc import Iterator

import pytest

from pathways.dialect import activities
from pathways.dialect.activities import Activity, under_way


class Told:
    """A display that notes what it is told."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def begun(self) -> None:
        self.said.append(f"begun, {len(under_way())} there")

    def ended(self) -> None:
        self.said.append("ended")


@pytest.fixture
def told() -> Iterator[Told]:
    display = Told()
    before = activities.follow(display)
    yield display
    activities.follow(before)


def test_activities_are_there_for_as_long_as_their_blocks(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([5.0, 7.0])
    monkeypatch.setattr(activities, "clock", lambda: next(now))
    with Activity("outer") as outer:
        with Activity("inner", 3, "parts", detail="first") as inner:
            assert under_way() == [outer, inner] and (outer.begun, inner.begun) == (5.0, 7.0)
            assert outer.thread == inner.thread == threading.get_ident()
        assert under_way() == [outer]
    assert under_way() == [] and told.said == ["begun, 1 there", "begun, 2 there", "ended"]


def test_an_error_ends_an_activity(told: Told) -> None:
    with pytest.raises(KeyError), Activity("fails"):
        raise KeyError
    assert under_way() == [] and told.said[-1] == "ended"


def test_a_display_hears_of_the_end_when_no_thread_has_anything(told: Told) -> None:
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
    assert "ended" not in told.said
    end.set()
    thread.join()
    assert told.said[-1] == "ended" and under_way() == []


def test_what_has_waited_before_its_block_began_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activities, "clock", lambda: 9.0)
    with Activity("waits", since=8.5) as waits:
        assert waits.begun == 8.5
