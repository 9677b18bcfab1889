"""Starts the timed hosts of an island (`host/timed/`), as one process: their devices compute nothing, so that hundreds
of hosts fit on one machine. `client/remote/timed_cluster.py` uses it.
"""

import json
from collections.abc import Sequence

from pathways.dialect.topology import Island
from pathways.runtime.launch.host_start import log_of
from pathways.runtime.launch.local_hosts import CONTROLLER, LocalHosts, LocalLauncher, sockets_of
from pathways.runtime.launch.spawn import spawn
from pathways.runtime.wire.credentials import TICKET

TIMED_HOSTS = "pathways.runtime.host.timed.serve"
"""The main module of the process."""


class TimedLauncher(LocalLauncher):
    """Starts the hosts of each island in one process."""

    def start(self, island: Island, epoch: int, tickets: Sequence[str]) -> LocalHosts:
        log = log_of(self._logs, island.name)
        listen = [sockets_of(self._folder, island, epoch, rank)[-1] for rank in range(island.hosts)]
        arguments = ["--folder", str(self._folder), "--socket", str(self._folder / CONTROLLER), "--listen", *listen]
        arguments += ["--island", island.name, "--devices", str(island.devices)]
        arguments += ["--platform", self._platform, "--hosts", json.dumps(dict(self._ranks.hosts))]
        process = spawn(TIMED_HOSTS, arguments, log, environment={TICKET: json.dumps(list(tickets))})
        made = LocalHosts((process,) * island.hosts, (log,) * island.hosts, None)
        self._started = [*(hosts for hosts in self._started if not hosts.has_exited), made]
        return made
