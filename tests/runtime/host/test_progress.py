"""Waiting for the first of several values."""

import threading
from typing import Any

import pytest

from pathways.runtime.host.devices.layouts import Shards
from pathways.runtime.host.run import progress
from pathways.runtime.host.run.progress import Pulled, wait_any


class Value:
    """A value that is there when it is said to be, or fails."""

    def __init__(self, fails: bool = False) -> None:
        self.there = threading.Event()
        self.fails = fails

    def is_ready(self) -> bool:
        return self.there.is_set()

    def block_until_ready(self) -> None:
        self.there.wait()
        if self.fails:
            raise RuntimeError("its source is gone")


def pulled(*values: Value) -> Pulled:
    return Pulled(Shards(values))


@pytest.fixture
def no_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits is woken, and does not look again and again."""

    def look(_: float) -> None:
        raise AssertionError("it looks")

    monkeypatch.setattr(progress.time, "sleep", look)


def begin(*pendings: Any) -> tuple[threading.Thread, list[bool]]:
    """Waits for any of these in a thread, which notes when that is over."""
    over: list[bool] = []
    thread = threading.Thread(target=lambda: (wait_any(pendings), over.append(True)))
    thread.start()
    return thread, over


@pytest.mark.usefixtures("no_looking")
@pytest.mark.parametrize("first", range(3))
@pytest.mark.parametrize("fails", [False, True])
def test_any_value_ends_the_wait_for_several(first: int, fails: bool) -> None:
    values = [Value(fails) for _ in range(3)]
    pendings = [pulled(v) for v in values]
    thread, over = begin(*pendings)
    assert not over
    values[first].there.set()
    thread.join()
    assert over and [p.is_known() for p in pendings] == [n == first for n in range(3)]
    left = [p for p in pendings if not p.is_known()]
    thread, over = begin(*left)  # helpers wait for these already
    values[(first + 1) % 3].there.set()
    thread.join()
    assert over
    wait_any(pendings)  # some are known
    for value in values:
        value.there.set()
    wait_any(left)  # all are


@pytest.mark.usefixtures("no_looking")
def test_a_value_is_there_with_all_of_its_pieces() -> None:
    one, two, other = Value(), Value(), Value()
    both = pulled(one, two)
    thread, over = begin(both, pulled(other))
    one.there.set()
    assert not both.is_known() and not over
    two.there.set()
    thread.join()
    assert over and both.is_known()
    other.there.set()


def test_without_helpers_somebody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [Value(), Value()]
    monkeypatch.setattr("pathways.runtime.host.devices.waits._helper", lambda: Refused())
    monkeypatch.setattr(progress.time, "sleep", lambda _: values[1].there.set())
    wait_any([pulled(v) for v in values])
    assert not values[0].is_ready()


class Refused:
    """A helper whose thread could not be started."""

    is_there = False
