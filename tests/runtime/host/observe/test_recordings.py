"""Tests what recordings keep of runs and steps, with a profiler that says what the test does."""

from types import SimpleNamespace
from typing import Any

import pytest
from support.plans_by_hand import copy, plan_of, receive, run, send

from pathways.dialect.plan.instructions import Instruction
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.devices.islands import PhysicalIsland
from pathways.runtime.host.observe.on_host import HostObservers
from pathways.runtime.host.observe.perfetto import DeviceSpan, Moved
from pathways.runtime.host.observe.recorder import Profiling, Recorder, RunRecorder
from pathways.runtime.host.run.frame import Frame, Step
from pathways.runtime.wire.ids import first_id

PLAN = plan_of({"pod": (run(0), run(1))})
DEVICES: Any = ("a", "b", "c")
POD = PhysicalIsland("pod", DEVICES, (), "pod")


class Profiler:
    """XLA's profiler: each session ends with what `found` holds then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sessions = 0
        self.open: set[int] = set()
        self.found: dict[tuple[int, int], tuple[int, int]] = {}
        self.fails = False
        monkeypatch.setattr(pjrt, "start_profile", self.start)
        monkeypatch.setattr(pjrt, "stop_profile", self.stop)
        monkeypatch.setattr(pjrt, "ordinal", lambda device: "abc".index(device) + 10)

    def start(self) -> int:
        assert not self.open  # a process has one session at a time
        self.sessions += 1
        self.open.add(self.sessions)
        return self.sessions

    def stop(self, session: int) -> dict[tuple[int, int], tuple[int, int]]:
        self.open.remove(session)
        if self.fails:
            raise RuntimeError("the profiler is broken")
        found, self.found = self.found, {}
        return found


@pytest.fixture
def profiler(monkeypatch: pytest.MonkeyPatch) -> Profiler:
    return Profiler(monkeypatch)


def test_recordings_share_a_profiler_and_each_sees_its_own_time(profiler: Profiler) -> None:
    profiling = Profiling()
    first, second = profiling.begin(), profiling.begin()
    assert profiler.sessions == 1
    profiler.found = {(1, 10): (5, 9), (2, 10): (7, 8)}
    profiling.end(first)
    assert first == {(1, 10): (5, 9), (2, 10): (7, 8)} == second and profiler.sessions == 2
    profiler.found = {(1, 10): (3, 12), (2, 10): (7, 9), (3, 10): (1, 2)}
    profiling.end(second)
    assert first == {(1, 10): (5, 9), (2, 10): (7, 8)} and profiler.sessions == 2 and not profiler.open
    assert second == {(1, 10): (3, 12), (2, 10): (7, 9), (3, 10): (1, 2)}
    profiling.end(profiling.begin())
    assert profiler.sessions == 3


def test_a_launch_that_spans_sessions_has_its_first_start_and_its_last_end(profiler: Profiler) -> None:
    profiling = Profiling()
    found = profiling.begin()
    for begin, end in ((5, 9), (2, 4), (6, 11)):
        other = profiling.begin()
        profiler.found = {(1, 10): (begin, end)}
        profiling.end(other)
    profiling.end(found)
    assert found == {(1, 10): (2, 11)}


def test_a_broken_profiler_ends_the_recording_all_the_same(profiler: Profiler) -> None:
    profiling = Profiling()
    found = profiling.begin()
    profiler.fails = True
    with pytest.raises(RuntimeError):
        profiling.end(found)
    profiler.fails = False
    profiler.found = {(1, 10): (5, 9)}
    again = profiling.begin()
    profiling.end(again)
    assert found == {} and again == {(1, 10): (5, 9)} and not profiler.open


def seen(
    recorder: Recorder, instruction: Instruction, begin: int, devices: Any = (), launch: int = -1, base: int = 100
) -> None:
    flight: Any = SimpleNamespace(number=7, plan=PLAN)
    step = Step(lambda _: None, instruction, POD, PLAN, devices=devices, launch=launch)
    recorder.after_step(flight, step, Frame(0, (), base), begin, begin + 5)


def test_a_recording_holds_launches_transfers_and_times_of_devices(profiler: Profiler) -> None:
    recorder = Recorder()
    recorder.start()
    f = run(0)
    seen(recorder, f, 1, ("c", "a"), launch=3)
    for begin, instruction in enumerate((receive(4, 1, 2), copy(5, 1, 2), send(6, 1, 2)), 20):
        seen(recorder, instruction, begin)
    profiler.found = {(103, 10): (8, 9), (103, 12): (6, 7), (103, 11): (1, 2), (104, 10): (3, 4)}
    found = recorder.stop()
    (launch,) = found.launches
    assert (launch.launch, launch.number, launch.base, launch.island, launch.run) == (103, 7, 100, "pod", f)
    assert (launch.positions, launch.plan, launch.begin, launch.end) == ((2, 0), PLAN, 1, 6)
    assert found.moves == [Moved(7, "pod", "receive", 4, 20, 25), Moved(7, "pod", "copy", 5, 21, 26)]
    assert found.spans == [DeviceSpan(103, "pod", 0, 8, 9), DeviceSpan(103, "pod", 2, 6, 7)]
    assert recorder.plans == {7: PLAN} and recorder in POD.users and not profiler.open


def test_a_recording_keeps_at_most_so_many_launches_and_transfers() -> None:
    recorder = Recorder(max_launches=2)
    for n in range(4):
        seen(recorder, run(n), n, ("a",), launch=n)
        seen(recorder, copy(n, 0, 1), n)
    found = recorder.stop()
    assert [one.launch for one in found.launches] == [100, 101] and [one.step for one in found.moves] == [0, 1]
    assert found.spans == []  # it was never started


def test_stages_of_known_runs_are_noted_in_order() -> None:
    recorder = RunRecorder()
    recorder.submitted(7, PLAN, "main")
    for number in (7, 8):
        recorder.scheduled(number)
        recorder.enqueued(number)
        recorder.done(number)
    (span,) = recorder.runs.values()
    assert (span.number, span.program, span.client) == (7, "program", "main") and recorder.plans == {7: PLAN}
    assert 0 < span.submitted <= span.scheduled <= span.enqueued <= span.done


def test_a_host_profiles_only_while_a_client_records(profiler: Profiler) -> None:
    executables: Any = None
    host = HostObservers(executables, lambda count: count, lambda message: None)
    host.record(3, 9)
    assert profiler.open
    (recorder,) = host.of_run(first_id(3), None)
    assert isinstance(recorder, Recorder)
    seen(recorder, PLAN.streams[0].instructions[0], 1, ("a",), launch=0)
    profiler.found = {(100, 10): (8, 9)}
    assert b'"spans":[[100,0,8,9]]' in host.record(3, 0) and not profiler.open
