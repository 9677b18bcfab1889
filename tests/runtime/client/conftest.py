"""The fixture that shows which calls enter the queue, for the tests of direct calls."""

from collections.abc import Iterator
from typing import Any

import pytest

from pathways.api.process import process
from pathways.runtime.client.controller import Controller
from pathways.runtime.host.devices.in_flight_limit import Gang


@pytest.fixture
def queued(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Records the numbers of runs that enter the queue. What earlier tests have left on devices sends none there."""
    found: list[int] = []
    enter = Controller.enter

    def recorded(self: Controller, request: Any, *of: Any) -> Any:
        found.append(request.number)
        return enter(self, request, *of)

    monkeypatch.setattr(Controller, "enter", recorded)
    monkeypatch.setattr(Gang, "_has_room", lambda *_: True)
    yield found
    controller = process().controller
    controller.flights.drain(30)
    scheduler = controller.run_queue.scheduler
    assert not controller.flights.enqueuing and not scheduler.active and not scheduler.entries
