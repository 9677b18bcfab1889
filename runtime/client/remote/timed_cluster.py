"""Starts a cluster of timed hosts: controller, hosts and streams are real, and devices compute nothing. `pw.cluster`
with `timed` calls it.
"""

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.plan.nouns import Plan
from pathways.dialect.ranks import ranks_in
from pathways.dialect.topology import Island, Topology
from pathways.runtime.client.remote.cluster import Cluster
from pathways.runtime.control.scheduling import SchedulingPolicy
from pathways.runtime.host.timed.figures import allow_many_files, module_key, write_figures
from pathways.runtime.launch.local_hosts import LocalLauncher
from pathways.runtime.launch.timed_hosts import TimedLauncher
from pathways.runtime.wire.errors import NotOverProcesses

CallSeconds: TypeAlias = Callable[[Plan], Mapping[tuple[int, str], float]]
"""Returns the seconds of each computation (by number) on each island of a plan."""


class TimedCluster(Cluster):
    """The machine of a process that has started a cluster of timed hosts."""

    def __init__(self, topology: Topology, platform: str, policy: SchedulingPolicy, seconds_of: CallSeconds) -> None:
        self._seconds_of = seconds_of
        self._calls: dict[str, dict[str, float]] = {}
        self._writing = threading.Lock()
        """Guards the file of figures: several threads may load plans."""
        super().__init__(topology, platform, policy)

    def make_launcher(self, folder: Path, topology: Topology, platform: str) -> LocalLauncher:
        allow_many_files()
        self._figures = folder, topology
        self._write()
        return TimedLauncher(folder, platform, ranks_in(topology), is_temporary=True)

    def add(self, island: Island) -> None:
        """Raises PWC0912: the figures of all islands are set when the cluster starts."""
        have, rule = f"{island.name}, added to timed hosts", "a topology that has all islands from the start"
        raise PathwaysError(NotOverProcesses(what="adding an island", have_=have, rule=rule))

    def _write(self) -> None:
        folder, topology = self._figures
        links = {i.name: (i.ici_gbps * 1e9, (i.ici_us or 0.0) * 1e-6) for i in topology.islands}
        write_figures(folder, links, (topology.dcn_gbps * 1e9, (topology.dcn_us or 0.0) * 1e-6), self._calls)

    def prepare(self, plan: Plan) -> None:
        """Writes how long the computations of a plan take, for the hosts. Raises PWC0309."""
        found = self._seconds_of(plan)
        with self._writing:
            for (number, island), seconds in found.items():
                computation = plan.computations[number]
                keys = [module_key(code) for code in (computation.module, computation.local) if code]
                self._calls.setdefault(island, {}).update(dict.fromkeys(keys, seconds))
            self._write()
