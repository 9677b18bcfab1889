"""Runs jobs as discrete events: they wait for each other, for devices, for network ports and for cores. The result is
when each job starts and ends, and what it waited for last. Pure functions.

A heap of times takes the place of processes, as SimPy has them: a step of a large pipeline has thousands of jobs, and
questions of the kind "what if?" are answered at once.
"""

import heapq
from collections import deque
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
    """A piece of work. `data` and `devices` are the jobs before it, by number, that make its operands or occupy its
    devices.

    It starts at `release` at the earliest, when all of its `ports` are free. It occupies them for `seconds`, and ends
    `latency` later. It uses `cores` of the shared cores.
    """

    seconds: float
    latency: float
    release: float
    data: Sequence[int]
    devices: Sequence[int]
    ports: Sequence[Hashable]
    cores: int = 0


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


def run_jobs(jobs: Sequence[Job], cores: float | None = None) -> Played:
    """Runs jobs, each of which waits only for earlier ones. If `cores` is less than all running jobs need, they share
    the cores equally."""
    return _Engine(jobs, cores).run()


_RELEASED, _DONE, _ENDED, _CORES = range(4)


class _Engine:
    def __init__(self, jobs: Sequence[Job], cores: float | None) -> None:
        count = len(jobs)
        self.jobs = jobs
        self.cores = _Cores(cores) if cores is not None else None
        self.left = [len(job.data) + len(job.devices) for job in jobs]
        self.users: list[list[tuple[int, Waits]]] = [[] for _ in jobs]
        for number, job in enumerate(jobs):
            for before in job.devices:
                self.users[before].append((number, Waits.DEVICES))
            for before in job.data:  # a job that is both counts as data
                self.users[before].append((number, Waits.DATA))
        self.events: list[tuple[float, int, int, int]] = []
        self.order = 0
        self.busy: set[Hashable] = set()
        self.pending: deque[int] = deque()
        self.played = Played([0.0] * count, [0.0] * count, [Waits.NOTHING] * count, [-1] * count)

    def run(self) -> Played:
        for number, left in enumerate(self.left):
            if not left:
                self.release(number, 0.0)
        while self.events:
            now, _, kind, number = heapq.heappop(self.events)
            if kind == _RELEASED:
                self.begin(number, now)
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

    def release(self, number: int, now: float) -> None:
        release = self.jobs[number].release
        if release > now:
            self.played.waits[number], self.played.causes[number] = Waits.HOST, -1
            self.push(release, _RELEASED, number)
        else:
            self.begin(number, now)

    def begin(self, number: int, now: float) -> None:
        job = self.jobs[number]
        if job.ports and not self.busy.isdisjoint(job.ports):
            self.pending.append(number)
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
            waiting, self.pending = self.pending, deque[int]()
            for each in waiting:
                if self.busy.isdisjoint(self.jobs[each].ports):
                    self.played.waits[each], self.played.causes[each] = Waits.NETWORK, number
                self.begin(each, now)
        if job.latency:
            self.push(now + job.latency, _ENDED, number)
        else:
            self.end(number, now)

    def end(self, number: int, now: float) -> None:
        self.played.ends[number] = now
        for user, why in self.users[number]:
            self.left[user] -= 1
            if not self.left[user]:
                self.played.waits[user], self.played.causes[user] = why, number
                self.release(user, now)


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
