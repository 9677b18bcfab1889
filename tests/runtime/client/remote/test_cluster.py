"""A cluster that cannot start names the host and the reason; one whose process is killed leaves nothing behind."""

import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.clusters import PATIENCE, becomes, this_cluster
from support.processes import start_python

import pathways as pw
from pathways.api.process import process_policy
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.topology import parse_topology
from pathways.runtime.client.remote.cluster import Cluster
from pathways.runtime.control import members, sessions
from pathways.runtime.launch.local_hosts import LocalLauncher

HANGS = "import threading; threading.Event().wait()"
FAILS = "import sys; print('no room'); sys.exit(3)"


@pytest.mark.parametrize(("program", "said"), [(FAILS, "with code 3: no room"), (HANGS, "did not start in 0.5 s")])
def test_the_error_of_a_host_that_cannot_start_names_the_reason(
    program: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    real = subprocess.Popen

    def start(command: list[str], **options: Any) -> Any:
        seen.append(real([sys.executable, "-c", program], **options))
        return seen[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    if program == HANGS:
        monkeypatch.setattr(members, "HOST_START_TIMEOUT_S", 0.5)
    with pytest.raises(PathwaysError, match="is lost") as caught:
        Cluster(parse_topology("islands=2,devices=1"), "cpu", process_policy())
    assert caught.value.code == "PWC0910" and said in str(caught.value)
    assert len(seen) >= 2 and all(p.poll() is not None for p in seen)


OWNER = """
import sys
import pathways as pw
from pathways.api.process import process
with pw.cluster(f"islands=2,hosts={sys.argv[1]},devices=1"):
    print(process().machine.address, flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("count", [1, 2])
def test_hosts_whose_controller_is_killed_leave_no_folder(count: int) -> None:
    with start_python("-c", OWNER, str(count)) as owner:
        assert owner.stdout is not None
        folder = Path(owner.stdout.readline().strip())
        assert folder.name.startswith("pathways-") and any(folder.iterdir())
        owner.kill()
    until = time.monotonic() + PATIENCE
    while folder.exists():
        assert time.monotonic() < until, [path.name for path in folder.iterdir()]
        threading.Event().wait(0.02)


def folders() -> set[str]:
    return {path.name for path in Path(tempfile.gettempdir()).glob("pathways-*")}


def test_a_cluster_that_cannot_start_for_the_system_is_refused_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its Unix socket would have a path that is too long."""
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with pytest.raises(PathwaysError, match="too long") as caught:
        Cluster(parse_topology("islands=1,devices=1"), "cpu", process_policy())
    assert caught.value.code == "PWC0918" and not list(deep.iterdir())


def test_an_interrupt_while_a_cluster_ends_leaves_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    before = folders()
    monkeypatch.setattr(LocalLauncher, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt), pw.cluster(islands=1, devices=1):
        assert folders() > before
    assert folders() == before


def test_a_process_may_have_any_number_of_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MAX_INTRODUCED", 8)
    with pw.cluster(islands=1, devices=1):
        for number in range(20):
            with pw.Client(f"client{number}"):
                assert float(pw.program(lambda x: x + 1)(np.float32(1))) == 2.0
        assert becomes(lambda: not this_cluster().ask("status")["clients"][0]["had"]), "it is kept after its close"


def test_a_run_that_waits_for_memory_does_not_wait_for_its_own_results() -> None:
    x = np.ones((256, 1024), np.float32)  # 1 MiB
    with pw.cluster("islands=1,devices=1,memory=4MiB"):
        step = pw.program(lambda x: (x + 1, x * 2))  # 3 MiB of 4
        for _ in range(6):
            first, second = step(x)
            del first
            assert float(np.asarray(second)[0, 0]) == 2.0


def test_a_plan_that_states_no_memory_is_refused_where_it_can_never_fit(tmp_path: Path) -> None:
    """The limit is that of the cluster, whatever the plan was compiled for."""
    x = np.ones((512, 1024), np.float32)  # 2 MiB
    pw.program(lambda x: x + 1).lower(x).compile("islands=1,devices=1").save(tmp_path / "plan.bin")
    with pw.cluster("islands=1,devices=1,memory=1MiB"):
        with pytest.raises(PathwaysError, match="PWC0506"):
            np.asarray(pw.load(tmp_path / "plan.bin")(x))
        assert float(pw.program(lambda x: x + 1)(np.float32(1))) == 2.0
