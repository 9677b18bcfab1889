"""Tests how many threads a process may still start, by limits that the test sets."""

import resource
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pathways.runtime.host.devices import thread_limits
from pathways.runtime.host.devices.thread_limits import room

NONE = resource.RLIM_INFINITY
PLENTY = 1 << 30
MIB = 1 << 20
Limits = Callable[..., None]


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Limits:
    """Sets the limits of the process; there is no container until the test makes one."""
    monkeypatch.setattr(thread_limits, "_CGROUP", tmp_path)

    def change(stack: int = NONE, space: int = NONE, count: int = NONE) -> None:
        found = {resource.RLIMIT_STACK: stack, resource.RLIMIT_AS: space, resource.RLIMIT_NPROC: count}
        monkeypatch.setattr(resource, "getrlimit", lambda kind: (found[kind], NONE))

    return change


def used() -> int:
    """Returns the bytes of address space that this process uses."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def test_without_limits_there_is_plenty_of_room(limits: Limits) -> None:
    limits()
    assert room() == PLENTY


def test_threads_that_run_take_room_of_the_limit_on_threads(limits: Limits) -> None:
    limits(count=threading.active_count() + 1000)
    assert abs(room() - 1000) <= 5  # helper threads of other tests may end meanwhile
    limits(count=0)
    assert room() == 0


LIMITS = [(NONE, 8 * MIB), (0, 8 * MIB), (1 << 40, 8 * MIB), (2 * MIB, 2 * MIB), (1, 1)]
"""Stack limits, and the bytes that a thread then takes. A limit of a TiB or more limits nothing."""


@pytest.mark.parametrize(("stack", "bytes_a_thread"), LIMITS)
def test_each_thread_takes_a_stack_of_the_address_space(limits: Limits, stack: int, bytes_a_thread: int) -> None:
    limits(stack=stack, space=used() + 4096 * 8 * MIB)
    wanted = min(PLENTY, 4096 * 8 * MIB // bytes_a_thread)
    assert wanted * 0.9 <= room() <= wanted * 1.1
    limits(stack=stack, space=MIB)
    assert room() == 0


@pytest.mark.parametrize(("most", "current", "left"), [("100", "30", 70), ("30", "100", 0), ("max", "30", PLENTY)])
def test_a_container_may_limit_threads(limits: Limits, tmp_path: Path, most: str, current: str, left: int) -> None:
    limits()
    (tmp_path / "pids.max").write_text(f"{most}\n")
    (tmp_path / "pids.current").write_text(f"{current}\n")
    assert room() == left


def test_the_smallest_limit_counts(limits: Limits, tmp_path: Path) -> None:
    limits(count=threading.active_count() + 1000)
    (tmp_path / "pids.max").write_text("40")
    (tmp_path / "pids.current").write_text("30")
    assert room() == 10
