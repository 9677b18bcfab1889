"""Records when the controller and each host of a cluster work on which run. It converts the clocks of all processes to
one. `pw.trace` uses it to write one file for the whole cluster.
"""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from pathways.dialect.diagnostics import PathwaysError
from pathways.runtime.client.remote.hosts import Hosts, ask_each
from pathways.runtime.client.remote.remote_host import RemoteHost
from pathways.runtime.host.observe.events import EventReader
from pathways.runtime.host.observe.perfetto import Recording
from pathways.runtime.host.observe.recorder import MAX_LAUNCHES, RunRecorder
from pathways.runtime.wire import messages as m

PINGS_PER_HOST = 8
"""Number of messages to each host for the comparison of its clock with the local clock."""


@dataclass(frozen=True)
class Ping:
    """A round trip to a host. `sent` and `back` are local times; `reported` is the host's time between them."""

    sent: int
    reported: int
    back: int


def ahead(pings: Sequence[Ping]) -> int:
    """Returns how far the other clock is ahead, from the fastest ping. The error is at most half of its round trip.

    Returns 0 if both may be the same clock, as on one machine: every reply time is between sending and receipt.
    """
    if all(p.sent <= p.reported <= p.back for p in pings):
        return 0
    best = min(pings, key=lambda p: p.back - p.sent)
    return best.reported - (best.sent + best.back) // 2


class ClusterRecorder(RunRecorder):
    """Records from `start` to `stop`. A printed note names hosts that are lost meanwhile, whose events are missing."""

    def __init__(self, cluster: Hosts) -> None:
        super().__init__()
        self._cluster = cluster
        self._hosts: dict[str, RemoteHost] = {}
        """The hosts that record, by name. Hosts that replace lost ones do not record."""
        self._ahead: dict[str, int] = {}
        self._islands: dict[str, str] = {}
        """The island of each host."""

    def start(self) -> None:
        """Starts recording on all hosts. Waits for hosts that are being restarted."""
        hosts: dict[str, RemoteHost] = {}
        for island in self._cluster.known():
            try:
                for member in self._cluster.host(island).members:
                    self._ahead[member.name] = ahead([_ping(member) for _ in range(PINGS_PER_HOST)])
                    hosts[member.name] = member
                    self._islands[member.name] = island
            except (PathwaysError, ValueError) as error:
                _note(island, error)
        max_launches = MAX_LAUNCHES // max(1, len(hosts))
        for island, answer in ask_each(
            hosts, lambda _, number: m.Record(number, self._cluster.client, max_launches)
        ).items():
            if isinstance(answer, PathwaysError):
                _note(island, answer)
            else:
                self._hosts[island] = hosts[island]

    def stop(self) -> Recording:
        """Stops recording on all hosts; returns the recorded events."""
        reader = EventReader(self.plans)
        found: list[Recording] = []
        answers = ask_each(self._hosts, lambda _, number: m.Record(number, self._cluster.client, 0))
        numbers = {island: number for number, island in enumerate(self._islands.values())}
        begun: dict[str, Recording] = {}
        """The recording of each island's first host, which enqueues the same work as the island's other hosts."""
        for name, answer in answers.items():
            island = self._islands[name]
            try:
                if isinstance(answer, PathwaysError):
                    raise answer
                found.append(reader.read(bytes(answer.blob), island, self._ahead[name], numbers[island]))
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
    answer = host.ask(m.ReportTime)
    return Ping(sent, int(answer.value), time.perf_counter_ns())


def _note(island: str, error: PathwaysError | ValueError) -> None:
    why = error.diagnostic.brief if isinstance(error, PathwaysError) else str(error)
    print(f"note: the trace has no events of {island}: {why}", file=sys.stderr)
