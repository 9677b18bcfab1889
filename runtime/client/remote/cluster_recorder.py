"""Records the runs of a cluster: what the controller sees of them, and what each host does, on one clock."""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from pathways.dialect.diagnostics import PathwaysError
from pathways.runtime.client.remote.hosts import Hosts, ask_each
from pathways.runtime.client.remote.remote_host import RemoteHost
from pathways.runtime.host.observe.events import EventReader
from pathways.runtime.host.observe.perfetto import Recording
from pathways.runtime.host.observe.recorder import MOST_LAUNCHES, RunRecorder
from pathways.runtime.wire import messages as m

PINGS = 8
"""Messages to each host by which its clock is compared with ours."""


@dataclass(frozen=True)
class Ping:
    """A message was sent and its answer came, at two times of our clock; between them the other's clock said `told`."""

    sent: int
    told: int
    back: int


def ahead(pings: Sequence[Ping]) -> int:
    """Returns how far the other clock is ahead, as the fastest of some pings says: it is wrong by half of its time.

    Where it may be the same clock, as on one machine, it is: every time was told between sending and answer.
    """
    if all(p.sent <= p.told <= p.back for p in pings):
        return 0
    best = min(pings, key=lambda p: p.back - p.sent)
    return best.told - (best.sent + best.back) // 2


class ClusterRecorder(RunRecorder):
    """Records from `start` to `stop`. Of a host that ends meanwhile nothing is known, which a note says."""

    def __init__(self, cluster: Hosts) -> None:
        super().__init__()
        self._cluster = cluster
        self._hosts: dict[str, RemoteHost] = {}
        """The hosts that record, by name: one that takes the place of another does not."""
        self._ahead: dict[str, int] = {}
        self._islands: dict[str, str] = {}
        """By host."""

    def start(self) -> None:
        """Has all hosts begin; waits for those that are being started anew."""
        hosts: dict[str, RemoteHost] = {}
        for island in self._cluster.known():
            try:
                for member in self._cluster.host(island).members:
                    self._ahead[member.name] = ahead([_ping(member) for _ in range(PINGS)])
                    hosts[member.name] = member
                    self._islands[member.name] = island
            except (PathwaysError, ValueError) as error:
                _note(island, error)
        most = MOST_LAUNCHES // max(1, len(hosts))
        for island, answer in ask_each(hosts, lambda _, number: m.Record(number, self._cluster.client, most)).items():
            if isinstance(answer, PathwaysError):
                _note(island, answer)
            else:
                self._hosts[island] = hosts[island]

    def stop(self) -> Recording:
        """Ends it on all hosts; returns what was recorded."""
        reader = EventReader(self.plans)
        found: list[Recording] = []
        answers = ask_each(self._hosts, lambda _, number: m.Record(number, self._cluster.client, 0))
        numbers = {island: number for number, island in enumerate(self._islands.values())}
        begun: dict[str, Recording] = {}
        """Of each island that of its first host, which has enqueued what the others have."""
        for name, answer in answers.items():
            island = self._islands[name]
            try:
                if isinstance(answer, PathwaysError):
                    raise answer
                found.append(reader.read(answer.blob, island, self._ahead[name], numbers[island]))
                begun.setdefault(island, found[-1])
            except (PathwaysError, ValueError) as error:
                _note(name, error)
        return Recording(
            list(self.runs.values()),
            [la for one in begun.values() for la in one.launches],
            [move for one in begun.values() for move in one.moves],
            [span for one in found for span in one.spans],
        )


def _ping(host: RemoteHost) -> Ping:
    sent = time.perf_counter_ns()
    answer = host.ask(m.TellTime)
    return Ping(sent, int(answer.value), time.perf_counter_ns())


def _note(island: str, error: PathwaysError | ValueError) -> None:
    why = error.diagnostic.brief if isinstance(error, PathwaysError) else str(error)
    print(f"note: the trace lacks what {island} did: {why}", file=sys.stderr)
