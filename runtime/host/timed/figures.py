"""Reads how long timed devices take: for calls, for copies inside an island, and for transfers between islands. The
client that starts the hosts writes the file (`client/remote/timed_cluster.py`), again before each plan.
"""

import hashlib
import json
import resource
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pathways.dialect.files import write_whole

FIGURES_FILE = "figures.json"
"""The file in the folder of a cluster."""


def allow_many_files() -> None:
    """Allows this process all file descriptors that it may have: each host of an island needs three."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def module_key(module: bytes | str) -> str:
    """Returns the key of a computation: the hash of its module."""
    return hashlib.sha256(module if isinstance(module, bytes) else module.encode()).hexdigest()


def write_figures(
    folder: Path,
    islands: Mapping[str, tuple[float, float]],
    network: tuple[float, float],
    calls: Mapping[str, Mapping[str, float]],
) -> None:
    """Writes the figures of timed hosts.

    `islands` and `network` have a rate (bytes a second) and a latency (seconds): of the links inside each island, and
    between islands. `calls` has the seconds of computations, by island and `module_key`.
    """
    text = json.dumps({"islands": dict(islands), "network": network, "calls": {i: dict(c) for i, c in calls.items()}})
    write_whole(folder / FIGURES_FILE, text)


@dataclass(eq=False)
class Figures:
    """The figures of one island."""

    folder: Path
    island: str
    names: Sequence[str] = ()
    """The names of all islands, in the order of the topology."""
    ici_rate: float = 1.0
    ici_seconds: float = 0.0
    network_rate: float = 1.0
    network_seconds: float = 0.0
    _calls: Mapping[str, float] = field(default_factory=dict[str, float])

    def seconds(self, module: bytes | str) -> float | None:
        """Returns how long a call takes; None for a module that is no computation of a plan."""
        key = module_key(module)
        if key not in self._calls:
            self.read()
        return self._calls.get(key)

    def read(self) -> None:
        """Reads the file again. Raises OSError."""
        found: dict[str, Any] = json.loads((self.folder / FIGURES_FILE).read_text())
        self.names = list(found["islands"])
        self.ici_rate, self.ici_seconds = found["islands"][self.island]
        self.network_rate, self.network_seconds = found["network"]
        self._calls = found["calls"].get(self.island, {})
