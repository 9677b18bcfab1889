"""Runs jobs as discrete events: they wait for their host, for each other, for devices, for network ports and for cores.
The result is when each job starts and ends, and what it waited for last. Pure functions.

A heap of times takes the place of processes, as SimPy has them: a step of a large pipeline has thousands of jobs, and
questions of the kind "what if?" are answered at once.
"""

import heapq
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Waits(StrEnum):
    """The last thing that a job waited for."""

    NOTHING = "nothing"
    DATA = "data"
    DEVICES = "devices"
    HOST = "host"
    NETWORK = "network"


class Job(NamedTuple):
    """A piece of work. `data` are the earlier jobs, by number, that make its operands.

    A host enqueues it, which takes the host `overhead` seconds: when the operands that other hosts make have arrived,
    and the jobs of its own host that make operands, and those of `behind`, are enqueued. Of several such jobs it takes
    the first. The devices of its `gang` (-1: none) run their jobs in the order in which they are enqueued. A job starts
    when all of its `ports` are free. It occupies them for `seconds`, and ends `latency` later. It uses `cores` of the
    shared cores. Another host that reads its result requests it when the result of the job `after` has arrived there.
    """

    seconds: float
    latency: float
    host: int
    overhead: float
    data: Sequence[int]
    gang: int
    ports: Sequence[Hashable]
    cores: int = 0
    after: int = -1
    behind: Sequence[int] = ()


@dataclass(frozen=True)
class Played:
    """The times at which each job starts and ends, why not earlier, and the job that it waited for (-1: none)."""

    starts: list[float]
    ends: list[float]
    waits: list[Waits]
    causes: list[int]

    @property
    def seconds(self) -> float:
        return max(self.ends, default=0.0)


def run_jobs(
    jobs: Sequence[Job], begins: Sequence[float], sharing: Sequence[Sequence[int]] = (), cores: float | None = None
) -> Played:
    """Runs jobs, each of which waits only for earlier ones. `begins` says when each host may first enqueue.

    `sharing` lists for each gang those that have a device of it, with itself. If `cores` is less than all running jobs
    need, they share the cores equally.
    """
    return _Engine(jobs, begins, sharing, cores).run()


_FREE, _ENQUEUED, _DONE, _ENDED, _CORES = range(5)


class _Host:
    """A host, the jobs that it may enqueue, and whether it is enqueuing one or has yet to begin."""

    def __init__(self) -> None:
        self.ready: list[int] = []
        self.is_busy = True


class _Engine:
    def __init__(
        self, jobs: Sequence[Job], begins: Sequence[float], sharing: Sequence[Sequence[int]], cores: float | None
    ) -> None:
        count = len(jobs)
        self.jobs, self.begins, self.sharing = jobs, begins, sharing
        self.cores = _Cores(cores) if cores is not None else None
        self.hosts = [_Host() for _ in begins]
        self.left = [1 + len(job.data) for job in jobs]
        """The number of jobs that a job waits for to start, and 1 more until it is enqueued."""
        self.unready = [len(job.data) + len(job.behind) for job in jobs]
        """The number of operands, and of earlier jobs, that keep its host from enqueuing it."""
        self.followers: dict[int, list[int]] = defaultdict(list)
        """The jobs that are enqueued behind a job."""
        self.arrivals = [-1] * count
        """The job whose result arrived from another host before its host could enqueue it; -1: none."""
        self.users: list[list[tuple[int, Waits]]] = [[] for _ in jobs]
        for number, job in enumerate(jobs):
            for before in job.data:
                self.users[before].append((number, Waits.DATA))
            for before in job.behind:
                self.followers[before].append(number)
        self.has_ended = [False] * count
        self.has_arrived = [False] * count
        self.unrequested: dict[int, list[int]] = {}
        """Results that are requested when that of another job has arrived."""
        self.last: dict[int, int] = {}
        """The last job that was enqueued on each gang."""
        self.events: list[tuple[float, int, int, int]] = []
        self.order = 0
        self.busy: set[Hashable] = set()
        self.waiting: dict[Hashable, list[tuple[int, int]]] = defaultdict(list[tuple[int, int]])
        """For each port, a heap of jobs that wait for it, each with its place in the order in which all came."""
        self.came = 0
        self.played = Played([0.0] * count, [0.0] * count, [Waits.NOTHING] * count, [-1] * count)

    def run(self) -> Played:
        for number, unready in enumerate(self.unready):
            if not unready:
                self.hosts[self.jobs[number].host].ready.append(number)  # sorted, so a heap
        for host, begin in enumerate(self.begins):
            self.push(begin, _FREE, host)
        while self.events:
            now, _, kind, number = heapq.heappop(self.events)
            if kind == _FREE:
                self.next_of(number, now)
            elif kind == _ENQUEUED:
                self.enqueued(number, now)
            elif kind == _DONE:
                self.done(number, now)
            elif kind == _ENDED:
                self.end(number, now)
            elif self.cores is not None and number == self.cores.version:
                for each in self.cores.finished(now):
                    self.done(each, now)
                self.plan_cores(now)
        return self.played

    def push(self, when: float, kind: int, number: int) -> None:
        self.order += 1
        heapq.heappush(self.events, (when, self.order, kind, number))

    def next_of(self, host: int, now: float) -> None:
        """Lets a host enqueue the first job that it may."""
        at = self.hosts[host]
        at.is_busy = bool(at.ready)
        if at.ready:
            number = heapq.heappop(at.ready)
            self.push(now + self.jobs[number].overhead, _ENQUEUED, number)

    def make_ready(self, number: int, now: float, cause: int) -> None:
        """Counts an operand that no longer delays a job's host. Its maker `cause` has arrived, or is enqueued there."""
        self.unready[number] -= 1
        if self.unready[number]:
            return
        host = self.jobs[number].host
        has_arrived = self.jobs[cause].host != host
        self.arrivals[number] = cause if has_arrived else self.arrivals[cause]
        at_once = has_arrived and not self.hosts[host].is_busy
        self.played.waits[number] = Waits.DATA if at_once else Waits.HOST
        self.played.causes[number] = self.arrivals[number]
        heapq.heappush(self.hosts[host].ready, number)
        if not self.hosts[host].is_busy:
            self.next_of(host, now)

    def enqueued(self, number: int, now: float) -> None:
        """Puts a job into the queues of its devices, behind those that were enqueued before."""
        job = self.jobs[number]
        if job.gang >= 0:
            for gang in self.sharing[job.gang]:
                before = self.last.get(gang)
                if before is not None and not self.has_ended[before] and before not in job.data:
                    self.left[number] += 1
                    self.users[before].append((number, Waits.DEVICES))
            self.last[job.gang] = number
        for user, why in self.users[number]:
            if why == Waits.DATA and self.jobs[user].host == job.host:
                self.make_ready(user, now, number)
        for follower in self.followers.pop(number, ()):
            self.make_ready(follower, now, number)
        self.left[number] -= 1
        if not self.left[number]:
            self.begin(number, now)
        self.next_of(job.host, now)

    def begin(self, number: int, now: float) -> None:
        job = self.jobs[number]
        if job.ports and not self.busy.isdisjoint(job.ports):
            self.came += 1
            self.wait_for_port(number, self.came)
            return
        self.busy.update(job.ports)
        self.played.starts[number] = now
        if job.cores and self.cores is not None and job.seconds > 0:
            self.cores.add(number, job.seconds, job.cores, now)
            self.plan_cores(now)
        else:
            self.push(now + job.seconds, _DONE, number)

    def plan_cores(self, now: float) -> None:
        assert self.cores is not None
        if (following := self.cores.following(now)) is not None:
            self.push(following, _CORES, self.cores.version)

    def done(self, number: int, now: float) -> None:
        """Frees the ports of a job, and starts the transfers that waited for them, in their order."""
        job = self.jobs[number]
        if job.ports:
            self.busy.difference_update(job.ports)
            self.begin_waiting(job.ports, number, now)
        if job.latency:
            self.push(now + job.latency, _ENDED, number)
        else:
            self.end(number, now)

    def wait_for_port(self, number: int, came: int) -> None:
        """Puts a job into the queue of one of its ports that is taken."""
        port = next(port for port in self.jobs[number].ports if port in self.busy)
        heapq.heappush(self.waiting[port], (came, number))

    def begin_waiting(self, ports: Sequence[Hashable], cause: int, now: float) -> None:
        """Starts the first jobs that wait for ports that have become free, until those are taken again.

        A job whose other port is taken then waits for that one, and keeps its place in the order.
        """
        while queues := [self.waiting[port] for port in ports if port not in self.busy and self.waiting[port]]:
            came, number = heapq.heappop(min(queues))
            if self.busy.isdisjoint(self.jobs[number].ports):
                self.played.waits[number], self.played.causes[number] = Waits.NETWORK, cause
                self.begin(number, now)
            else:
                self.wait_for_port(number, came)

    def end(self, number: int, now: float) -> None:
        self.played.ends[number], self.has_ended[number] = now, True
        for user, why in self.users[number]:
            self.left[user] -= 1
            if not self.left[user]:
                self.played.waits[user], self.played.causes[user] = why, number
                self.begin(user, now)
        arriving = [number]
        while arriving:
            each = arriving.pop()
            after = self.jobs[each].after
            if after >= 0 and not self.has_arrived[after]:
                self.unrequested.setdefault(after, []).append(each)
                continue
            self.has_arrived[each] = True
            arriving += self.unrequested.pop(each, [])
            for user, why in self.users[each]:
                if why == Waits.DATA and self.jobs[user].host != self.jobs[each].host:
                    self.make_ready(user, now, number)


class _Cores:
    """Cores that running jobs share equally.

    `work` is the time of a job that has had all the cores it needs since the begin. If a job starts or ends, the rate
    of `work` changes, and not the end of each job.
    """

    def __init__(self, cores: float) -> None:
        self.cores = cores
        self.version = 0
        self.needed = 0
        self.work, self.since = 0.0, 0.0
        self.ends: list[tuple[float, int, int]] = []
        """For each running job, the `work` at which it ends, its number, and the cores that it needs."""

    def _advance(self, now: float) -> None:
        self.work += (now - self.since) * self._rate()
        self.since = now

    def _rate(self) -> float:
        return min(1.0, self.cores / self.needed) if self.needed else 1.0

    def add(self, number: int, seconds: float, cores: int, now: float) -> None:
        self._advance(now)
        self.needed += cores
        heapq.heappush(self.ends, (self.work + seconds, number, cores))

    def following(self, now: float) -> float | None:
        """Returns when the next job ends if no other starts. An earlier answer is invalid after this one."""
        self.version += 1
        return now + max(0.0, self.ends[0][0] - self.work) / self._rate() if self.ends else None

    def finished(self, now: float) -> list[int]:
        """Removes the job that ends now, and those that end with it. Returns their numbers."""
        self._advance(now)
        self.work = max(self.work, self.ends[0][0])  # despite rounding
        found: list[int] = []
        while self.ends and self.ends[0][0] <= self.work:
            _, number, cores = heapq.heappop(self.ends)
            self.needed -= cores
            found.append(number)
        return found
