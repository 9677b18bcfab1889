"""A cluster that cannot start names the host and the reason; one whose process is killed leaves nothing behind."""

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from support.clusters import PATIENCE
from support.processes import start_python

from pathways.api.process import process_policy
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.topology import parse_topology
from pathways.runtime.client.cluster import Cluster
from pathways.runtime.control import members

HANGS = "import threading; threading.Event().wait()"
FAILS = "import sys; print('no room'); sys.exit(3)"


@pytest.mark.parametrize(("program", "said"), [(FAILS, "ended with 3: no room"), (HANGS, "did not start in 0.5 s")])
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
        monkeypatch.setattr(members, "START", 0.5)
    with pytest.raises(PathwaysError, match="is gone") as caught:
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
