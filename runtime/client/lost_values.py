"""Values that a network has lost: where no host of a run computes, and one waits, its island connects anew."""

import json
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pathways.dialect.diagnostic_json import write_diagnostic
from pathways.dialect.diagnostics import PathwaysError
from pathways.runtime.client.remote_gang import IslandHost
from pathways.runtime.client.remote_host import RemoteHost
from pathways.runtime.control.gang_roll import hangs
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.errors import NothingComesThrough


@dataclass(frozen=True, eq=False)
class LostValues:
    """Looks for them among the hosts of a cluster, as they are then: they come and go."""

    hosts: Callable[[], Mapping[str, IslandHost]]
    _mended: deque[tuple[int, str, str]] = field(default_factory=lambda: deque[tuple[int, str, str]](maxlen=256))
    """Runs, and islands that were connected anew for them: several hosts of an island may tell of it."""

    def look_for(self, host: RemoteHost, message: m.Missing) -> None:
        """Asks the hosts of a run whether they compute, in a thread of its own: this one reads what a host says."""
        threading.Thread(target=self._look_for, args=(host, message), name="pathways-missing", daemon=True).start()

    def _look_for(self, host: RemoteHost, message: m.Missing) -> None:
        named = self.hosts()
        hosts = list(named.values())
        target = next((one for one in hosts if host in one.members), None)
        source = named.get(message.island)
        there = [member for one in hosts for member in one.members if message.run in member.runs()]
        try:
            waits = [member.request(m.CallRoll) for member in there]
            idle = [json.loads(wait().value)["idle"] for wait in waits]
            if source is None or target is None or not idle or not hangs(float(message.seconds), idle):
                return
            if (told := (message.run, source.island, target.island)) in self._mended:
                return
            self._mended.append(told)
            cause = NothingComesThrough(source=source.island, target=target.island, seconds=message.seconds)
            print(f"note: {cause.text(cause.title)}: {cause.text(cause.have)}", file=sys.stderr, flush=True)
            for one, other in ((source, target), (target, source)):
                one.post(m.Mend(other.island, write_diagnostic(cause)))
        except PathwaysError:  # one of them is gone, which ends what waits for it
            return
