"""Reads the Python stacks of host processes that do not answer, by running `py-spy` on them. `pwc stack` calls it. It
must not change anything in these processes.
"""

import shutil
import subprocess
from collections.abc import Mapping
from typing import Any

from pathways.runtime.wire.client_messages import NO_ANSWER

PY_SPY_TIMEOUT_S = 20.0
"""Limits the time in which py-spy reads the stacks of one process."""


def stacks_of_frozen(hosts: Mapping[str, str], status: Mapping[str, Any]) -> dict[str, str]:
    """Returns the stacks of the hosts that did not answer. `hosts` are the answers by name.

    The controller must be on this machine. A process id of a host on another machine is never looked up here.
    """
    pids = {h["name"]: h["pid"] for island in status["islands"] for h in island["hosts"] if h["here"]}
    return {name: _stacks_of(pids[name]) for name, text in hosts.items() if text == NO_ANSWER and name in pids}


def _stacks_of(pid: int) -> str:
    if not pid:
        return f"{NO_ANSWER}, and its process is not known"
    program = shutil.which("py-spy")
    if program is None:
        return f"{NO_ANSWER}; pip install py-spy, and pwc stack shows the stacks of process {pid}"
    try:
        done = subprocess.run(
            [program, "dump", "--pid", str(pid)], capture_output=True, text=True, timeout=PY_SPY_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"{NO_ANSWER}, and py-spy cannot read process {pid}"
    return f"{NO_ANSWER}; its stacks, read by py-spy:\n{(done.stdout or done.stderr).strip()}"
