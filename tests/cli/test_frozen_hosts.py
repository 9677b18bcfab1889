"""`pwc stack` shows the stacks of a frozen host by py-spy, or says how to see them."""

import os
import signal
import stat
from pathlib import Path

import pytest
from support.clusters import freeze
from support.processes import pwc_here
from support.shared import shared_cluster

from pathways.cli.frozen_hosts import stacks_of_frozen
from pathways.runtime.wire.client_messages import NO_ANSWER


def said(pid: int) -> dict[str, object]:
    hosts = [{"name": "pod", "pid": pid, "here": True}, {"name": "well", "pid": 1, "here": True}]
    return {"islands": [{"hosts": [*hosts, {"name": "far", "pid": 2, "here": False}]}]}


@pytest.fixture
def fake_py_spy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts a program in front of the path that prints the process id that it is given."""
    program = tmp_path / "py-spy"
    program.write_text('#!/bin/sh\necho "Thread of $3"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


@pytest.mark.usefixtures("fake_py_spy")
def test_only_hosts_without_an_answer_are_read_by_py_spy() -> None:
    found = stacks_of_frozen({"pod": NO_ANSWER, "well": "Thread 1", "far": NO_ANSWER}, said(77))
    assert found == {"pod": f"{NO_ANSWER}; its stacks, read by py-spy:\nThread of 77"}


def test_without_py_spy_or_a_process_the_text_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "pip install py-spy" in stacks_of_frozen({"pod": NO_ANSWER}, said(77))["pod"]
    assert "not known" in stacks_of_frozen({"pod": NO_ANSWER}, said(0))["pod"]


@pytest.mark.long("a shared cluster is started for it: 6 s")
@pytest.mark.usefixtures("fake_py_spy")
def test_the_stacks_of_a_stopped_host_are_asked_of_py_spy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATHWAYS_HOST_TIMEOUT", "60")  # else a busy machine may replace it before it is asked
    with shared_cluster("islands=2,devices=1") as cluster:
        pid = cluster.hosts()["island1"]
        freeze(pid)
        try:
            code, out, _ = pwc_here("stack", "--address", cluster.address)
        finally:
            os.kill(pid, signal.SIGCONT)
    assert code == 0 and f"island1 | Thread of {pid}" in out and "island0 | Thread of" not in out
