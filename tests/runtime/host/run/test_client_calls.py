"""Tests calls of client functions: results, errors, which client may answer, and timeouts of unanswered calls."""

import math
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.dtypes import ArrayType
from pathways.runtime.host.devices.callbacks import RaisedElsewhere
from pathways.runtime.host.run import client_calls
from pathways.runtime.host.run.client_calls import ClientCalls, ClientFunction
from pathways.runtime.wire import messages as m

X = np.arange(4, dtype=np.int16)
RESULTS = (ArrayType((2,), "int16"), ArrayType((), "float32"))
WHOLE = np.array([5, 6], np.int16).tobytes() + np.float32(0.5).tobytes()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> ClientCalls:
    monkeypatch.setattr(client_calls, "LOOK", 0.01)
    return ClientCalls()


def function(calls: ClientCalls, client: int = 3) -> ClientFunction:
    return ClientFunction(calls, client, 77, "sine", False, RESULTS)


def answers(calls: ClientCalls, say: Callable[[m.CallBack], None]) -> list[m.CallBack]:
    """Lets client 3 answer from another thread, as a connection does; returns the calls that it received."""
    asked: list[m.CallBack] = []

    def post(message: m.Message) -> None:
        assert isinstance(message, m.CallBack)
        asked.append(message)
        threading.Thread(target=say, args=(message,)).start()

    calls.begin(3, post)
    return asked


def test_a_call_sends_arrays_to_the_client_and_returns_its_results(calls: ClientCalls) -> None:
    asked = answers(calls, lambda call: calls.hear(3, m.Returned(call.call, "", WHOLE)))
    first, second = function(calls)(X, np.float32(2))
    assert first.tolist() == [5, 6] and first.dtype == np.int16 and second == np.float32(0.5) and second.shape == ()
    assert (asked[0].function, asked[0].value) == (77, '[["int16", [4]], ["float32", []]]')
    assert asked[0].blob == X.tobytes() + np.float32(2).tobytes()


def test_only_the_called_client_can_answer(calls: ClientCalls) -> None:
    def say(call: m.CallBack) -> None:
        calls.hear(4, m.Returned(call.call, "not mine", b""))
        calls.hear(3, m.Returned(call.call + 1, "another call", b""))
        calls.hear(3, m.Returned(call.call, "", WHOLE))

    answers(calls, say)
    assert function(calls)(X)[0].tolist() == [5, 6]


def raised(calls: ClientCalls) -> str:
    with pytest.raises(RaisedElsewhere) as caught:
        function(calls)(X)
    return str(caught.value)


def test_errors_of_the_client_are_raised_by_the_call(calls: ClientCalls) -> None:
    assert "is gone" in raised(calls)
    answers(calls, lambda call: calls.hear(3, m.Returned(call.call, "KeyError: 7", b"")))
    assert raised(calls) == "KeyError: 7"
    answers(calls, lambda call: calls.hear(3, m.Returned(call.call, "", WHOLE[:-1])))
    assert raised(calls) == "it has returned 7 bytes, of 8"
    answers(calls, lambda call: calls.end(3))
    assert "is gone" in raised(calls)


def test_a_call_without_heartbeats_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_calls, "LOOK", 0.01)
    monkeypatch.setenv("PATHWAYS_HOST_TIMEOUT", "0.05")
    calls = ClientCalls()
    answers(calls, lambda call: None)
    assert "nothing was heard of the process of the function for 0.05 seconds" in raised(calls)
    assert calls.looks  # shows the watchdog that the call makes progress


def test_an_idle_call_times_out_and_a_computing_call_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_calls, "LOOK", 0.01)
    monkeypatch.setenv("PATHWAYS_HANG_TIMEOUT", "0.3")
    calls = ClientCalls()

    def say(call: m.CallBack, computes: bool) -> None:
        over = threading.Event()
        for _ in range(60):  # longer than the limit
            calls.hear(3, m.Calling(call.call, computes))
            over.wait(0.01)
        calls.hear(3, m.Returned(call.call, "", WHOLE))

    answers(calls, lambda call: say(call, False))
    assert "the function has not returned, and computes nothing for 0.3 seconds" in raised(calls)
    answers(calls, lambda call: say(call, True))
    assert function(calls)(X)[0].tolist() == [5, 6]


def test_a_hang_timeout_of_zero_is_no_limit_and_an_invalid_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATHWAYS_HANG_TIMEOUT", "0")
    limit: Any = client_calls._hang_limit  # pyright: ignore[reportPrivateUsage]
    assert limit() == math.inf
    monkeypatch.setenv("PATHWAYS_HANG_TIMEOUT", "soon")
    with pytest.raises(PathwaysError, match="PATHWAYS_HANG_TIMEOUT"):
        ClientCalls()
