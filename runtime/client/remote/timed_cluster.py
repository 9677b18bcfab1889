"""Starts a cluster of timed hosts: controller, hosts and streams are real, and devices compute nothing. `pw.cluster`
with `timed` calls it.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

from pathways.dialect.plan.nouns import Plan
from pathways.dialect.ranks import ranks_in
from pathways.dialect.topology import Topology
from pathways.runtime.client.remote.cluster import Cluster
from pathways.runtime.control.scheduling import SchedulingPolicy
from pathways.runtime.host.timed.figures import module_key, write_figures
from pathways.runtime.launch.local_hosts import LocalLauncher
from pathways.runtime.launch.timed_hosts import TimedLauncher

CallSeconds: TypeAlias = Callable[[Plan], Mapping[tuple[int, str], float]]
"""Returns the seconds of each computation (by number) on each island of a plan."""


class TimedCluster(Cluster):
    """The machine of a process that has started a cluster of timed hosts."""

    def __init__(self, topology: Topology, platform: str, policy: SchedulingPolicy, seconds_of: CallSeconds) -> None:
        self._seconds_of = seconds_of
        self._calls: dict[str, dict[str, float]] = {}
        super().__init__(topology, platform, policy)

    def make_launcher(self, folder: Path, topology: Topology, platform: str) -> LocalLauncher:
        self._figures = folder, topology
        self._write()
        return TimedLauncher(folder, platform, ranks_in(topology), is_temporary=True)

    def _write(self) -> None:
        folder, topology = self._figures
        links = {i.name: (i.ici_gbps * 1e9, (i.ici_us or 0.0) * 1e-6) for i in topology.islands}
        write_figures(folder, links, (topology.dcn_gbps * 1e9, (topology.dcn_us or 0.0) * 1e-6), self._calls)

    def prepare(self, plan: Plan) -> None:
        """Tells the hosts how long the computations of a plan take."""
        for (number, island), seconds in self._seconds_of(plan).items():
            computation = plan.computations[number]
            keys = [module_key(code) for code in (computation.module, computation.local) if code]
            self._calls.setdefault(island, {}).update(dict.fromkeys(keys, seconds))
        self._write()
