"""Tests what a host answers to runs of a loaded plan, message by message, on devices of this process."""

import queue
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pathways as pw
from pathways.api.process import process
from pathways.dialect.diagnostic_json import read_diagnostic
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.plan.plan_file import write_plan
from pathways.runtime.host import client_threads
from pathways.runtime.host.host import Host
from pathways.runtime.host.load.peer_hosts import PeerHosts
from pathways.runtime.host.run import runs_in_flight
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.ids import first_id

X = np.arange(4, dtype=np.float32)
FIRST = first_id(1)
PLAN, ARGUMENT, RESULT = FIRST, FIRST + 1, FIRST + 10


class OneHost:
    """A host that has loaded a plan of one argument and one result, and the messages that it posts."""

    def __init__(self) -> None:
        self._posted: queue.SimpleQueue[Any] = queue.SimpleQueue()
        plan, nowhere = pw.program(lambda x: x + 1.0).lower(X).compile().plan, object()
        hosts: Any = PeerHosts(nowhere, nowhere)  # pyright: ignore
        machine = process().machine
        self._host = Host("island0", machine, lambda plan: machine.islands_for(plan, self), hosts, self._post)
        assert self.answer(m.LoadPlan(1, PLAN, "plan.bin", False, {}, write_plan(plan))).error == ""

    def _post(self, *messages: m.Message) -> None:
        for message in messages:
            self._posted.put(message)

    def answer(self, *messages: m.Message) -> Any:
        """Handles messages; returns the next message that the host posts."""
        for message in messages:
            if self._host.notice(message):
                self._host.receive(message)
        return self._posted.get(timeout=60)


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[OneHost]:
    """Makes a host whose threads end soon."""
    monkeypatch.setenv("PATHWAYS_HANG_TIMEOUT", "0")
    monkeypatch.setattr(client_threads, "IDLE_S", 0.01)
    monkeypatch.setattr(runs_in_flight, "IDLE_POLL_INTERVAL_S", 0.01)
    yield OneHost()


def test_a_run_is_done_and_its_results_can_be_fetched(host: OneHost) -> None:
    argument = m.PutArray(ARGUMENT, PLAN, 0, X.tobytes())
    done = host.answer(argument, m.RunPlan(PLAN, FIRST, 0, RESULT, (ARGUMENT,)))
    assert isinstance(done, m.Done) and done.run == FIRST
    fetched = host.answer(m.FetchArray(2, RESULT, 0))
    assert fetched.error == "" and np.array_equal(np.frombuffer(fetched.blob, np.float32), X + 1)


@pytest.mark.parametrize("count", [0, 2])
def test_a_run_with_a_wrong_number_of_arguments_fails_with_that_number(host: OneHost, count: int) -> None:
    """A client may send any number, and only its own run fails."""
    failed = host.answer(m.RunPlan(PLAN, FIRST, 0, RESULT, (ARGUMENT,) * count))
    assert isinstance(failed, m.Failed) and list(failed.causes) == ["0"]
    causes = [failed.causes["0"], host.answer(m.FetchArray(2, RESULT, 0)).error]
    for error in (PathwaysError(read_diagnostic(cause)) for cause in causes):
        assert error.code == "PWC0911" and f"a run with {count} arguments" in str(error)
