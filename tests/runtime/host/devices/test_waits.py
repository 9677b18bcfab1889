"""Tests waits for values if no helper thread can be started, with values that the test sets."""

import pytest

from pathways.runtime.host.devices import waits
from pathways.runtime.host.devices.waits import until_done, wait_up_to


class Value:
    """A value that is ready once it is waited for, or fails."""

    def __init__(self, *, fails: bool = False) -> None:
        self.fails, self.is_ready = fails, False

    def block_until_ready(self) -> None:
        self.is_ready = True
        if self.fails:
            raise RuntimeError("it failed")


@pytest.fixture(autouse=True)
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """No helper waits, and none can be started."""
    monkeypatch.setattr(waits, "_idle", [])
    monkeypatch.setattr(waits, "started", lambda _: False)  # pyright: ignore


def test_without_a_helper_the_caller_itself_waits_for_all_values() -> None:
    for wait in (lambda values: until_done(values, []), lambda values: wait_up_to(values, 1e6)):  # pyright: ignore
        values = [Value(), Value(fails=True), Value()]
        wait(values)
        assert all(value.is_ready for value in values)
