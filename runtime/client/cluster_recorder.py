"""Records the runs of a cluster: what the controller sees of them, and what each host does, on one clock."""

import sys
import time

from pathways.dialect.diagnostics import PathwaysError
from pathways.runtime.client.clocks import Ping, ahead
from pathways.runtime.client.hosts import Hosts, ask_each
from pathways.runtime.client.remote_host import RemoteHost
from pathways.runtime.host.observe.events import EventReader
from pathways.runtime.host.observe.perfetto import Recording
from pathways.runtime.host.observe.recorder import MOST_LAUNCHES, RunRecorder
from pathways.runtime.wire import messages as m

PINGS = 8
"""Messages to each host by which its clock is compared with ours."""


class ClusterRecorder(RunRecorder):
    """Records from `start` to `stop`. Of a host that ends meanwhile nothing is known, which a note says."""

    def __init__(self, cluster: Hosts) -> None:
        super().__init__()
        self._cluster = cluster
        self._hosts: dict[str, RemoteHost] = {}
        """The hosts that record, by island: one that takes the place of another does not."""
        self._ahead: dict[str, int] = {}

    def start(self) -> None:
        """Has all hosts begin; waits for those that are being started anew."""
        hosts: dict[str, RemoteHost] = {}
        for island in self._cluster.hosts:
            try:
                for member in self._cluster.host(island).members:
                    self._ahead[member.island] = ahead([_ping(member) for _ in range(PINGS)])
                    hosts[member.island] = member
            except (PathwaysError, ValueError) as error:
                _note(island, error)
        most = MOST_LAUNCHES // max(1, len(hosts))
        for island, answer in ask_each(hosts, lambda _, number: m.Record(number, most)).items():
            if isinstance(answer, PathwaysError):
                _note(island, answer)
            else:
                self._hosts[island] = hosts[island]

    def stop(self) -> Recording:
        """Ends it on all hosts; returns what was recorded."""
        reader = EventReader(self.plans)
        found: list[Recording] = []
        answers = ask_each(self._hosts, lambda _, number: m.Record(number, 0))
        for number, (island, answer) in enumerate(answers.items()):
            try:
                if isinstance(answer, PathwaysError):
                    raise answer
                found.append(reader.read(answer.blob, island, self._ahead[island], number))
            except (PathwaysError, ValueError) as error:
                _note(island, error)
        return Recording(
            list(self.runs.values()),
            [la for one in found for la in one.launches],
            [move for one in found for move in one.moves],
            [span for one in found for span in one.spans],
        )


def _ping(host: RemoteHost) -> Ping:
    sent = time.perf_counter_ns()
    answer = host.ask(m.TellTime)
    return Ping(sent, int(answer.value), time.perf_counter_ns())


def _note(island: str, error: PathwaysError | ValueError) -> None:
    why = str(error)
    if isinstance(error, PathwaysError):
        said = error.diagnostic
        why = f"{said.text(said.title)}: {said.text(said.have)}"
    print(f"note: the trace lacks what {island} did: {why}", file=sys.stderr)
