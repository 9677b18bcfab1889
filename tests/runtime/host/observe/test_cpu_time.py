"""Tests what counts as computing, with clocks and threads that the test moves."""

import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from pathways.runtime.host.observe import cpu_time
from pathways.runtime.host.observe.cpu_time import SHARE, CpuTime, of_thread

PYTHON, DEVICE, OTHER = threading.get_native_id(), 10_000_001, 10_000_002
TICK_S = 0.01


class System:
    """Clocks, and threads with the CPU time that they have used."""

    def __init__(self, tasks: Path) -> None:
        self.tasks = tasks
        self.now, self.used, self.own = 100.0, 5.0, 1.0
        for native in (PYTHON, DEVICE, OTHER):
            self.thread(native)

    def monotonic(self) -> float:
        return self.now

    def process_time(self) -> float:
        return self.used

    def thread_time(self) -> float:
        return self.own

    def thread(self, native: int, user: int = 0, system: int = 0, state: str = "S") -> None:
        """Writes what Linux shows of a thread, whose name may hold blanks and parentheses."""
        fields = [state, *["0"] * 10, str(user), str(system), *["0"] * 20]
        (self.tasks / str(native)).mkdir(exist_ok=True)
        (self.tasks / str(native) / "stat").write_text(f"{native} (a (thread) R 1) {' '.join(fields)}\n")


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> System:
    found = System(tmp_path)
    monkeypatch.setattr(cpu_time, "_TASKS", tmp_path)
    clocks = {name: getattr(found, name) for name in ("monotonic", "process_time", "thread_time")}
    monkeypatch.setattr(cpu_time, "time", SimpleNamespace(**clocks))
    return found


def looks(cpu: CpuTime, *, closely: bool = True) -> tuple[bool, bool]:
    """Looks once; returns whether the marks of the process and of devices have changed."""
    before = cpu.process, cpu.devices
    cpu.poll(closely=closely)
    return before[0] != cpu.process, before[1] != cpu.devices


def test_a_process_computes_if_it_used_more_than_a_share_of_a_core(system: System) -> None:
    cpu = CpuTime()
    assert looks(cpu) == (True, True)  # nothing is known of the time before
    for seconds, used, computes in (
        (10.0, SHARE / 2, False),
        (10.0, 2 * SHARE, True),
        (0.5, 0.5, True),
        (0.5, 0, False),
    ):
        system.now += seconds
        system.used += used * seconds
        assert looks(cpu) == (computes, False)


def test_the_time_that_the_measurement_takes_is_no_computation(system: System) -> None:
    cpu = CpuTime()
    looks(cpu)
    for own, others, computes in (
        (0.1, 0.0, False), (0.1, 0.05, True), (0.4, 0.005, False),
        (-1.6, 1.7, True), (0.1, 0.0, False),  # another thread measures from now on
    ):  # fmt: skip
        system.now += 0.5
        system.own += own
        system.used += own + others
        assert looks(cpu) == (computes, False)


def test_devices_compute_if_threads_that_python_does_not_know_used_time(system: System) -> None:
    cpu = CpuTime()
    looks(cpu)
    for native, user, kernel, computes in (
        (DEVICE, 100, 0, True), (PYTHON, 500, 0, False), (DEVICE, 100, 3, True), (OTHER, 1, 0, False),
        (OTHER, 2, 0, False), (DEVICE, 110, 3, True),
    ):  # fmt: skip
        system.now += 1.0
        system.thread(native, user, kernel)
        assert looks(cpu) == (computes, computes), (native, user, kernel)


@pytest.mark.parametrize(("state", "wants"), [("R", True), ("D", True), ("S", False), ("Z", False)])
def test_a_device_that_wants_to_run_computes(system: System, state: str, wants: bool) -> None:
    cpu = CpuTime()
    looks(cpu)
    system.now += 1.0
    system.thread(DEVICE, state=state)
    assert looks(cpu) == (wants, wants)
    system.thread(DEVICE)
    system.thread(PYTHON, state="R")
    assert looks(cpu) == (False, False)


def test_devices_that_were_not_looked_at_closely_may_have_computed(system: System) -> None:
    cpu = CpuTime()
    for closely, changed in ((False, True), (False, True), (True, True), (True, False), (False, True), (True, True)):
        system.now += 1.0
        assert looks(cpu, closely=closely)[1] is changed


def test_without_a_list_of_threads_devices_have_no_mark(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_time, "_TASKS", system.tasks / "none")
    cpu = CpuTime()
    assert cpu.devices is None and looks(cpu) == (True, False) and looks(cpu) == (False, False)
    assert of_thread(DEVICE) is None


def test_the_mark_of_a_thread_changes_with_its_time_and_while_it_wants_to_run(system: System) -> None:
    system.thread(DEVICE, 3, 4)
    assert of_thread(DEVICE) == 7
    system.now += 1.0
    assert of_thread(DEVICE) == 7
    system.thread(DEVICE, 3, 5)
    assert of_thread(DEVICE) == 8
    system.thread(DEVICE, 3, 5, "R")
    first = of_thread(DEVICE)
    system.now += 1.0
    assert first != of_thread(DEVICE) == system.now
    assert of_thread(999) is None
    (system.tasks / str(DEVICE) / "stat").write_text("nothing")
    assert of_thread(DEVICE) is None
