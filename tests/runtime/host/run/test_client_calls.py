"""Tests calls of client functions: results, errors, which client may answer, and timeouts of unanswered calls."""

import math
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.plans_by_hand import computation, plan_of

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.dtypes import ArrayType
from pathways.dialect.host_callbacks import find
from pathways.dialect.mlir import bytecode, make_context, parse, portable
from pathways.runtime.host.devices.callbacks import RaisedElsewhere
from pathways.runtime.host.run import client_calls
from pathways.runtime.host.run.client_calls import ClientCalls, ClientFunction, with_functions
from pathways.runtime.wire import messages as m

X = np.arange(4, dtype=np.int16)
RESULTS = (ArrayType((2,), "int16"), ArrayType((), "float32"))
WHOLE = np.array([5, 6], np.int16).tobytes() + np.float32(0.5).tobytes()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> ClientCalls:
    monkeypatch.setattr(client_calls, "POLL_INTERVAL_S", 0.01)
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
    asked = answers(calls, lambda call: calls.deliver(3, m.Returned(call.call, "", WHOLE)))
    first, second = function(calls)(X, np.float32(2))
    assert first.tolist() == [5, 6] and first.dtype == np.int16 and second == np.float32(0.5) and second.shape == ()
    assert (asked[0].function, asked[0].value) == (77, '[["int16", [4]], ["float32", []]]')
    assert asked[0].blob == X.tobytes() + np.float32(2).tobytes()


def test_only_the_called_client_can_answer(calls: ClientCalls) -> None:
    def say(call: m.CallBack) -> None:
        calls.deliver(4, m.Returned(call.call, "not mine", b""))
        calls.deliver(3, m.Returned(call.call + 1, "another call", b""))
        calls.deliver(3, m.Returned(call.call, "", WHOLE))

    answers(calls, say)
    assert function(calls)(X)[0].tolist() == [5, 6]


def raised(calls: ClientCalls) -> str:
    with pytest.raises(RaisedElsewhere) as caught:
        function(calls)(X)
    return str(caught.value)


def test_errors_of_the_client_are_raised_by_the_call(calls: ClientCalls) -> None:
    assert "is lost" in raised(calls)
    answers(calls, lambda call: calls.deliver(3, m.Returned(call.call, "KeyError: 7", b"")))
    assert raised(calls) == "KeyError: 7"
    answers(calls, lambda call: calls.deliver(3, m.Returned(call.call, "", WHOLE[:-1])))
    assert raised(calls) == "the callback returned 7 bytes instead of 8"
    answers(calls, lambda call: calls.end(3))
    assert "is lost" in raised(calls)


def test_a_call_without_heartbeats_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_calls, "POLL_INTERVAL_S", 0.01)
    monkeypatch.setenv("PATHWAYS_HOST_TIMEOUT", "0.05")
    calls = ClientCalls()
    answers(calls, lambda call: None)
    assert "no message from the client for 0.05 seconds" in raised(calls)
    assert calls.polls  # shows the watchdog that the call makes progress


def test_an_idle_call_times_out_and_a_computing_call_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_calls, "POLL_INTERVAL_S", 0.01)
    monkeypatch.setenv("PATHWAYS_HANG_TIMEOUT", "0.3")
    calls = ClientCalls()

    def say(call: m.CallBack, computes: bool) -> None:
        over = threading.Event()
        for _ in range(60):  # longer than the limit
            calls.deliver(3, m.Calling(call.call, computes))
            over.wait(0.01)
        calls.deliver(3, m.Returned(call.call, "", WHOLE))

    answers(calls, lambda call: say(call, False))
    assert "the callback has not returned, and has computed nothing for 0.3 seconds" in raised(calls)
    answers(calls, lambda call: say(call, True))
    assert function(calls)(X)[0].tolist() == [5, 6]


def test_a_hang_timeout_of_zero_is_no_limit_and_an_invalid_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATHWAYS_HANG_TIMEOUT", "0")
    limit: Any = client_calls._hang_limit  # pyright: ignore[reportPrivateUsage]
    assert limit() == math.inf
    monkeypatch.setenv("PATHWAYS_HANG_TIMEOUT", "soon")
    with pytest.raises(PathwaysError, match="PATHWAYS_HANG_TIMEOUT"):
        ClientCalls()


def test_a_client_that_comes_anew_is_called_by_its_new_way_alone(calls: ClientCalls) -> None:
    def old(_: m.Message) -> None:
        raise AssertionError("the old way")

    calls.begin(3, old)
    asked = answers(calls, lambda call: calls.deliver(3, m.Returned(call.call, "", WHOLE)))
    calls.end(3, old)  # the end of the old way is noticed late
    assert function(calls)(X)[1] == 0.5 and len(asked) == 1
    calls.begin(4, old)
    calls.end(3)
    assert "is lost" in raised(calls)
    with pytest.raises(AssertionError):
        function(calls, 4)(X)


def test_a_client_that_goes_ends_its_own_calls_alone(calls: ClientCalls) -> None:
    def say(call: m.CallBack) -> None:
        calls.end(4)
        calls.deliver(3, m.Returned(call.call, "", WHOLE))

    answers(calls, say)
    calls.begin(4, lambda _: None)
    assert function(calls)(X)[0].tolist() == [5, 6]


def test_each_call_has_a_number_of_its_own_and_says_whose_function_it_calls(calls: ClientCalls) -> None:
    asked = answers(calls, lambda call: calls.deliver(3, m.Returned(call.call, "", b"")))
    for has_no_results in (True, False):
        assert ClientFunction(calls, 3, 77, "sine", has_no_results, ())() == ()
    assert len({call.call for call in asked}) == 2 and [call.has_no_results for call in asked] == [True, False]
    assert {call.computation for call in asked} == {"sine"} and function(calls).progress() == calls.polls


def module(index: int | None) -> bytes:
    """Makes a module that calls back function `index`; None: it calls none."""
    config = f"has_side_effect = true, mhlo.backend_config = {{index = {index} : ui64}}"
    call = f"stablehlo.custom_call @xla_ffi_python_cpu_callback(%x) {{{config}}} : (tensor<4xf32>) -> tensor<2xi16>"
    source = f"""func.func public @main(%x: tensor<4xf32>) {{
      {"" if index is None else f"%y = {call}"}
      return }}"""
    return portable(bytecode(parse(source, make_context()).operation))


RESULT = ArrayType((2,), "int16")


def test_computations_call_the_functions_of_their_client(calls: ClientCalls) -> None:
    made = [
        computation("plain"), replace(computation("silent"), module=module(1)),
        replace(computation("told", outputs=(RESULT,)), module=module(0)),
    ]  # fmt: skip
    plan = plan_of({"pod": ()}, computations=made)
    bound = with_functions(plan, {1: (50, 51), 2: (60,)}, 3, calls)
    assert [len(c.callbacks) for c in bound.computations] == [0, 2, 1] and bound.computations[0] is made[0]
    found: list[Any] = [find(number) for c in bound.computations for number in c.callbacks]
    assert [(f.client, f.number, f.computation, f.has_no_results, tuple(f.results)) for f in found] == [
        (3, 50, "silent", True, ()), (3, 51, "silent", True, (RESULT,)), (3, 60, "told", False, (RESULT,))
    ]  # fmt: skip
    assert all(f.calls is calls for f in found)


def test_a_plan_that_calls_no_function_stays_as_it_is(calls: ClientCalls) -> None:
    plan = plan_of({"pod": ()}, computations=[computation(), replace(computation(), module=module(None))])
    assert with_functions(plan, {}, 3, calls) is plan


@pytest.mark.parametrize(("index", "functions"), [(1, {0: (50,)}), (0, {}), (0, {1: (50,)})])
def test_a_computation_that_calls_a_function_without_a_number_is_refused(
    calls: ClientCalls, index: int, functions: dict[int, tuple[int, ...]]
) -> None:
    plan = plan_of({"pod": ()}, computations=[replace(computation("sine"), module=module(index)), computation()])
    with pytest.raises(PathwaysError, match="sine") as caught:
        with_functions(plan, functions, 3, calls)
    assert caught.value.code == "PWC0510"


def test_a_computation_that_calls_back_on_each_device_alone_is_refused(calls: ClientCalls) -> None:
    plan = plan_of({"pod": ()}, computations=[computation(local=module(0))])
    with pytest.raises(PathwaysError) as caught:
        with_functions(plan, {}, 3, calls)
    assert caught.value.code == "PWC0510"
