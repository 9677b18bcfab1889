"""Values that a network has lost: where no host of a run computes, and one waits, its island connects anew."""

import json
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pathways.dialect.diagnostics import PathwaysError
from pathways.runtime.client.remote_gang import IslandHost
from pathways.runtime.client.remote_host import RemoteHost
from pathways.runtime.control.partitions import Partitions
from pathways.runtime.threads import start_thread
from pathways.runtime.wire import messages as m


@dataclass(frozen=True, eq=False)
class LostValues:
    """Looks for them among the hosts of a cluster, as they are then: they come and go."""

    hosts: Callable[[], Mapping[str, IslandHost]]
    telling: threading.Lock
    """Held while hosts connect anew, and while a run is started: what it offers would end between the two."""
    _partitions: Partitions = field(default_factory=Partitions)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while one is judged: several hosts may tell of it at once."""

    def look_for(self, host: RemoteHost, message: m.Missing) -> None:
        """Asks the hosts of a run whether they compute, in a thread of its own: this one reads what a host says."""
        start_thread("pathways-missing", self._look_for, host, message)

    def _look_for(self, host: RemoteHost, message: m.Missing) -> None:
        named = self.hosts()
        hosts = list(named.values())
        target = next((one for one in hosts if host in one.members), None)
        source = named.get(message.island)
        there = [member for one in hosts for member in one.members if message.run in member.runs()]
        try:
            waits = [member.request(m.CallRoll) for member in there]
            idle = [json.loads(wait().value)["idle"] for wait in waits]
        except PathwaysError:  # one of them is gone, which ends what waits for it
            return
        if source is None or target is None:
            return
        with self._lock:
            cause = self._partitions.found(message, target.island, idle)
        if cause is not None:
            print(f"note: {cause.brief}", file=sys.stderr, flush=True)
            with self.telling:
                for island, mend in self._partitions.mends(cause).items():
                    named[island].post(mend)
