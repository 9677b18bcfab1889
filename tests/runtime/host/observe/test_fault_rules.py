"""Tests where faults happen, how often, and whose runs they meet; no fault is brought to a device."""

import json
from typing import Any

import pytest
from support.plans_by_hand import plan_of, run

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.dtypes import ArrayType
from pathways.runtime.host.observe.events import write_events
from pathways.runtime.host.observe.faults import FAULT_KINDS, Fault, read_fault, waiting
from pathways.runtime.host.observe.on_host import HostObservers
from pathways.runtime.host.observe.perfetto import Recording
from pathways.runtime.host.run.observer import Observer
from pathways.runtime.wire.ids import first_id

STEP = run(4, name="loss", parts=("0F1 dense model.py:7 f", "- add"))
PLAN = plan_of({"island0": [STEP]})


@pytest.mark.parametrize(
    ("conditions", "matches"),
    [({}, True), ({"program": "program"}, True), ({"program": "loss"}, False), ({"computation": "loss"}, True),
     ({"computation": "dense"}, True), ({"computation": "add"}, True), ({"computation": "program"}, False),
     ({"step": 4}, True), ({"step": 0}, False), ({"client": "main"}, True), ({"client": "other"}, False),
     ({"client": "main", "step": 4, "program": "program"}, True), ({"client": "main", "step": 5}, False),
     ({"client": ""}, False)],
)  # fmt: skip
def test_a_fault_meets_a_step_if_all_of_its_conditions_hold(conditions: dict[str, Any], matches: bool) -> None:
    assert Fault("raise", **conditions).matches(PLAN, STEP, "main") is matches


@pytest.mark.parametrize(
    ("after", "times", "happens"),
    [(0, 1, "x...."), (0, 2, "xx..."), (1, 1, ".x..."), (2, 2, "..xx."), (0, 0, "....."), (9, 1, ".....")],
)
def test_a_fault_happens_so_many_times_after_so_many_that_pass(after: int, times: int, happens: str) -> None:
    fault = Fault("delay", after=after, times=times)
    assert [fault.take() for _ in happens] == [c == "x" for c in happens]
    assert fault.happened == happens.count("x")


def test_a_fault_is_read_with_its_fields_and_defaults() -> None:
    found = read_fault(json.dumps({"kind": "delay", "seconds": 2, "step": 3, "client": None, "device": 1}))
    assert (found.kind, found.seconds, found.step, found.client, found.device) == ("delay", 2, 3, None, 1)
    assert (found.seconds, found.times, found.after, found.happened) == (2, 1, 0, 0)
    assert [read_fault(json.dumps({"kind": kind})).kind for kind in FAULT_KINDS] == list(FAULT_KINDS)
    plain = read_fault('{"kind": "raise"}')
    assert (plain.device, plain.seconds, plain.times, plain.after) == (0, 0.1, 1, 0)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "3", "{}", "[" * 100_000, '{"kind": "burn"}', '{"kind": ["raise"]}', '{"kind": "raise", "step": "3"}',
     '{"kind": "raise", "step": true}', '{"kind": "raise", "times": 1.5}', '{"kind": "raise", "happened": 1}',
     '{"kind": "raise", "device": null}', '{"kind": "raise", "more": 1}', '{"step": 3}'],
)  # fmt: skip
def test_what_is_no_fault_is_refused(text: str) -> None:
    with pytest.raises(PathwaysError) as caught:
        read_fault(text)
    said = str(caught.value)
    assert caught.value.code == "PWC0911" and "raise, delay, hang, lose" in said and "[" * 81 not in said


def test_a_program_that_waits_returns_its_first_operand() -> None:
    text = waiting(ArrayType((2, 3), "float32"))
    assert "%x: tensor<2x3xf32>, %late: tensor<1xi32>" in text and "return %x : tensor<2x3xf32>" in text


def observers() -> HostObservers:
    executables: Any = None
    return HostObservers(executables, lambda count: count, lambda message: None)


def run_of(client: int) -> int:
    return first_id(client) + 5


def test_a_fault_is_brought_to_runs_of_its_client_alone() -> None:
    host, own = observers(), Observer()
    assert host.of_run(run_of(3), None) == () and host.of_run(run_of(3), own) == (own,)
    assert host.inject(3, '{"kind": "raise"}') == "0"
    (fault, last) = host.of_run(run_of(3), own)
    assert last is own and host.of_run(run_of(4), own) == (own,)
    assert host.of_run(run_of(3), None) == (fault,)


def test_an_end_of_a_fault_says_how_often_it_happened() -> None:
    host = observers()
    assert host.inject(3, '{"kind": "raise", "times": 2}') == "0"
    host.inject(4, '{"kind": "raise"}')
    for client, times in ((3, 2), (4, 1)):
        fault: Any = host.of_run(run_of(client), None)[0]
        for _ in range(times):
            assert fault.fault.take()
    assert host.inject(3, '{"kind": "delay"}') == "2"  # another takes its place
    assert host.inject(3, "") == "0" and host.inject(3, "") == "0" and host.of_run(run_of(3), None) == ()
    host.forget(4)
    host.forget(4)
    assert host.of_run(run_of(4), None) == ()


def test_no_fault_may_lose_devices_that_other_clients_use() -> None:
    host = observers()
    assert host.inject(3, '{"kind": "lose"}') == "0"
    host.is_shared = True
    host.inject(3, '{"kind": "hang"}')
    with pytest.raises(PathwaysError) as caught:
        host.inject(3, '{"kind": "lose"}')
    assert caught.value.code == "PWC0912" and host.of_run(run_of(3), None) == ()


def test_a_refused_fault_ends_the_one_before() -> None:
    host = observers()
    host.inject(3, '{"kind": "raise"}')
    with pytest.raises(PathwaysError):
        host.inject(3, "{}")
    assert host.of_run(run_of(3), None) == ()


def test_a_recording_is_of_one_client_until_it_is_ended() -> None:
    host = observers()
    assert host.record(3, 0) == b"" and host.of_run(run_of(3), None) == ()
    assert host.record(3, 1) == b""
    host.inject(3, '{"kind": "raise"}')
    fault, recorder = host.of_run(run_of(3), None)
    most: Any = recorder
    assert most.max_launches == 1 and host.of_run(run_of(4), None) == () and fault is not recorder
    assert host.record(3, 0) == write_events(Recording(), {}) and host.of_run(run_of(3), None) == (fault,)
    assert host.record(3, 0) == b""
