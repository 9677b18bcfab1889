"""Shows the stacks of hosts that do not answer, by py-spy. `pwc stack` calls it; it changes nothing in the hosts."""

import shutil
import subprocess
from collections.abc import Mapping
from typing import Any

NO_ANSWER = "it does not answer"
"""The text of the controller in place of the stacks of a host that is frozen."""
PY_SPY_TIMEOUT_S = 20.0
"""Limits the time in which py-spy reads the stacks of one process."""


def stacks_of_frozen(hosts: Mapping[str, str], status: Mapping[str, Any]) -> dict[str, str]:
    """Returns the stacks of the hosts that did not answer. `hosts` are the answers by name.

    The hosts must be processes of this machine.
    """
    pids = {host["name"]: host["pid"] for island in status["islands"] for host in island["hosts"]}
    return {name: _stacks_of(pids.get(name, 0)) for name, text in hosts.items() if text == NO_ANSWER}


def _stacks_of(pid: int) -> str:
    if not pid:
        return f"{NO_ANSWER}, and its process is not known"
    program = shutil.which("py-spy")
    if program is None:
        return f"{NO_ANSWER}; pip install py-spy shows the stacks of process {pid}"
    try:
        done = subprocess.run(
            [program, "dump", "--pid", str(pid)], capture_output=True, text=True, timeout=PY_SPY_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"{NO_ANSWER}, and py-spy does not read process {pid}"
    return f"{NO_ANSWER}; by py-spy:\n{(done.stdout or done.stderr).strip()}"
