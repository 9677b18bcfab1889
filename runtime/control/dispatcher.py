"""Queues the runs of all clients of a cluster. When the scheduler allows a run, it sends the run to the hosts, in the
same order everywhere. The controller calls it.

It uses the scheduler of a single process (scheduling/), but no thread waits: an event returns the runs that begin, and
their messages are sent before the next event is processed.
"""

import secrets
import traceback
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from pathways.dialect.diagnostic_json import write_diagnostic
from pathways.dialect.diagnostics import Diagnostic, PathwaysError
from pathways.dialect.topology import readable
from pathways.runtime.control.client_parcels import IslandParcel, check_after_run, own_parcels, sent_parcels
from pathways.runtime.control.device_numbers import DeviceNumbers
from pathways.runtime.control.member import Member, Rank, relay_of
from pathways.runtime.control.scheduling import Cost, Request, SchedulingPolicy
from pathways.runtime.control.scheduling.memory_ledger import Ledger
from pathways.runtime.control.scheduling.scheduler import Scheduler
from pathways.runtime.control.sessions import ClientSession, ClusterRun, FrameAfterRuns, KnownPlan
from pathways.runtime.errors import NeverFits
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.client_messages import WEIGHT
from pathways.runtime.wire.encoding import Parcel
from pathways.runtime.wire.errors import BadMessage, ControllerFailed, HostLost
from pathways.runtime.wire.fields import MAX_TRANSFERS
from pathways.runtime.wire.load_proofs import has_shape, proven

MAX_HELD_BYTES = 1 << 50
"""Maximum bytes that a client may report as held on a device."""
MAX_RUNS_PER_CLIENT = 1 << 16
"""Maximum number of incomplete runs of a client."""
MAX_WAITING_BYTES = 1 << 26
"""Maximum bytes of a client's queued messages."""
MAX_KEPT_COSTS = 1 << 12
"""Maximum number of plans whose cost is kept; the oldest are dropped."""


class Dispatcher:
    """The queue of all runs that are not complete."""

    def __init__(self, members: Sequence[Member], policy: SchedulingPolicy) -> None:
        self._members = members
        self.devices = DeviceNumbers()
        self.ledger = Ledger()
        self.scheduler = Scheduler(policy, self.ledger)
        self.runs: dict[int, ClusterRun] = {}
        for member in members:
            self.add(member)
        self.ended_on: Counter[int] = Counter()
        """Number of completed runs on each island, by island number."""
        self._costs: dict[str, Cost] = {}

    def add(self, member: Member) -> int:
        """Numbers the devices of an added island, and sets their memory limits; returns the first number."""
        before = len(self.devices)
        member.first = self.devices.add(member.name, member.island.size)
        for at in range(member.island.size):
            self.ledger.limits.pop((member.name, at), None)
            if len(self.devices) > before:  # arrays on its earlier devices are lost and no longer counted
                self.ledger.held.pop((member.name, at), None)
            if member.island.memory is not None:
                self.ledger.limit((member.name, at), member.island.memory)
        self._begin(self.scheduler.limits_changed())
        return member.first

    def is_used(self, member: Member) -> bool:
        """Whether any run is queued for the island or in progress on it."""
        return any(member.number in run.parcels for run in self.runs.values())

    def cost_of(self, digest: str) -> Cost:
        """Returns a plan's run cost, shared by clients: separate costs would depend on how clients alternate."""
        if digest not in self._costs and len(self._costs) >= MAX_KEPT_COSTS:
            del self._costs[next(iter(self._costs))]
        return self._costs.setdefault(digest, Cost())

    def loaded(self, session: ClientSession, message: m.Loaded) -> None:
        """Records proofs that an island's hosts have loaded a plan. Ignores hosts that were lost meanwhile."""
        plan = session.plans.get(message.plan)
        if plan is None or not 0 <= message.island < len(self._members):
            have, rule = f"plan {message.plan} on island {message.island}", "a known plan and a known island"
            raise PathwaysError(BadMessage(have_=have, rule=rule))
        member, proofs = self._members[message.island], message.proofs.split(" ")
        keys = [session.key_of(rank) for rank in member.ranks]
        if member.is_up and len(keys) == len(proofs):
            loaded = {proven(key, message.plan, proof) for key, proof in zip(keys, proofs, strict=True)}
            if len(loaded) == 1 and "" not in loaded:
                plan.loaded[message.island], plan.fits = (member.epoch.number, loaded.pop()), None

    def _is_loaded(self, run: ClusterRun) -> bool:
        """Whether all hosts of a run have loaded the same plan, with exactly the run's islands and known branches."""
        found = [(*run.plan.loaded.get(number, (-1, "")), epoch) for number, (epoch, _, _) in run.parcels.items()]
        loaded = {what if at == epoch else "" for at, what, epoch in found}
        if len(loaded) != 1 or "" in loaded:
            return False
        plan, islands = run.plan, run.request.islands
        if plan.fits != islands and has_shape(loaded.pop(), islands, plan.branches):
            plan.fits = islands
        return plan.fits == islands

    def submit(self, session: ClientSession, message: m.Submit) -> None:
        """Queues a client's run. Raises PWC0911 for an invalid run, PWC0916 if it names an id of another client."""
        parcels, first, unloaded = sent_parcels(message, session.number, secrets.randbelow(MAX_TRANSFERS))
        if not parcels or any(island >= len(self._members) for island in parcels) or message.run in self.runs:
            have, rule = f"run {message.run} of {len(parcels)} islands", "a new run number, and known islands"
            raise PathwaysError(BadMessage(have_=have, rule=rule))
        self._admit(session, message, parcels, first, unloaded)

    def submit_own(self, session: ClientSession, message: m.Submit, parcels: Iterable[Parcel]) -> None:
        """Queues a run of the client in this process, which sends no encoded parcels."""
        self._admit(session, message, *own_parcels(parcels))

    def _admit(
        self,
        session: ClientSession,
        message: m.Submit,
        parcels: dict[int, IslandParcel],
        first: int,
        unloaded: Iterable[int],
    ) -> None:
        """Queues a run or refuses it. `first`: id of its first result; `unloaded`: plans that the client unloads."""
        for number in unloaded:
            session.unload(number)
        plan = session.plans.get(message.plan) or KnownPlan("a program", None, Cost())
        names = frozenset(self._members[island].name for island in parcels)
        if plan.branches and not self._are_on(plan.branches, parcels):
            raise PathwaysError(BadMessage(have_="branches on hosts outside of the run", rule="branches of the plan"))
        memory = self.devices.memory(message.memory, names, self.ledger.limits)
        request = Request(
            message.run, session.label(message.inside), plan.name,
            names, max(message.weight, 1) / WEIGHT,
            plan.cost, memory,
        )  # fmt: skip
        run = ClusterRun(request, session, parcels, plan, (message.plan, first))
        for device, size in request.bytes.items():
            limit = self.ledger.limits[device]
            if size > limit:
                island, more = self.devices[self.devices.number(device)][0], readable(size - limit)
                cause = NeverFits(program=plan.name, island=island, limit=f"{limit:,}", size=f"{size:,}", more=more)
                self._refuse(run, cause)
                for number, parcel in parcels.items():
                    self._send_after(session, number, FrameAfterRuns(parcel.epoch, parcel.before))
                return
        self._count_waiting(session, sum(parcel.size for parcel in parcels.values()))
        if session.runs >= MAX_RUNS_PER_CLIENT:
            raise PathwaysError(BadMessage(have_=f"{MAX_RUNS_PER_CLIENT:,} incomplete runs", rule="fewer runs"))
        session.count_run(request.client, 1)
        self.runs[message.run] = run
        for number in parcels:
            session.lines[number].append(run)
        self._line_up(session, run)

    def _are_on(self, branches: Mapping[int, tuple[str, frozenset[str]]], islands: Iterable[int]) -> bool:
        """Whether only hosts of these islands take part in the branches of a plan."""
        there = {rank.name for island in islands for rank in self._members[island].ranks}
        return all(hosts <= there for _, hosts in branches.values())

    def pass_on(self, session: ClientSession, message: m.Relayed) -> None:
        """Sends a client's message to an island after its runs. Raises PWC0911 and PWC0916 if it is invalid."""
        frame_after = check_after_run(message.blob, session.number)
        if isinstance(frame_after, m.UnloadPlan):
            session.unload(frame_after.plan)
        if not 0 <= message.island < len(self._members):
            raise PathwaysError(BadMessage(have_=f"island {message.island}", rule="an island of this cluster"))
        self._send_after(session, message.island, FrameAfterRuns(message.epoch, message.blob))

    def _send_after(self, session: ClientSession, island: int, frame_after: FrameAfterRuns) -> None:
        """Sends frames to an island after the client's queued runs there."""
        line = session.lines[island]
        if line:
            self._count_waiting(session, len(frame_after.frame))
            line.append(frame_after)
        else:
            self._send(island, *frame_after)

    @staticmethod
    def _count_waiting(session: ClientSession, size: int) -> None:
        """Adds to the bytes of a client's queued messages. Raises PWC0911 if they exceed the limit."""
        session.waiting_bytes += size
        if session.waiting_bytes > MAX_WAITING_BYTES:
            have = f"{session.waiting_bytes:,} bytes in the queue of {session.label(0)}"
            raise PathwaysError(BadMessage(have_=have, rule=f"at most {MAX_WAITING_BYTES:,}"))

    def _send(self, island: int, epoch: int, data: bytes) -> None:
        member = self._members[island]
        if member.epoch.number == epoch:
            member.send(data)

    def hold(self, session: ClientSession, message: m.Hold) -> None:
        """Counts bytes that a client holds on devices. Bytes of a queued run's results count when the run begins."""
        run = self.runs.get(message.run)
        if run is not None and run.session is session and run.life.state in ("behind", "in line"):
            self._count_waiting(session, _size_of(message))
            run.holds.append((session.label(message.inside), message))
        else:
            self._hold(session, session.label(message.inside), message)

    def _hold(self, session: ClientSession, label: str, message: m.Hold) -> None:
        held = session.held[label]
        for number, size in self.devices.pairs(message.memory):
            if abs(held[number] + size) > MAX_HELD_BYTES:
                have = f"{size:,} bytes more that {label} holds on device {number}"
                raise PathwaysError(BadMessage(have_=have, rule=f"at most {MAX_HELD_BYTES:,} in total"))
            held[number] += size
            session.total[number] += size
            limit = self.ledger.limits.get(self.devices[number], MAX_HELD_BYTES)
            more = max(0, min(session.total[number], limit)) - session.counted[number]
            session.counted[number] += more
            if more:
                self._begin(self.scheduler.hold((self.devices[number],), more))

    def _line_up(self, session: ClientSession, run: ClusterRun) -> None:
        if run.life.state == "behind" and session.is_next(run):
            run.life.transition("line up")
            self._begin(self.scheduler.submit(run.request))

    def _begin(self, numbers: Iterable[int]) -> None:
        """Sends scheduled runs to their hosts, and the runs that become schedulable by that."""
        waiting = list(numbers)
        while waiting:
            run = self.runs.get(waiting.pop(0))
            if run is None:  # failed meanwhile
                continue
            try:
                waiting += self._dispatch(run)
            except Exception as error:  # a bug of this package: other runs continue
                waiting += self._failed(run, controller_failed("a run", error))

    def _dispatch(self, run: ClusterRun) -> list[int]:
        """Sends a run to its hosts; returns the runs that are scheduled next."""
        members = {island: self._members[island] for island in run.parcels}
        absent = next((x for n, x in members.items() if not x.is_up or x.epoch.number != run.parcels[n].epoch), None)
        if absent is None and not self._is_loaded(run):
            have = f"a run of {run.plan.name} on {', '.join(sorted(run.request.islands))}"
            rule = "exactly the islands and branches of its plan, after all their hosts have loaded it"
            following = self._drop(run, BadMessage(have_=have, rule=rule))
        elif absent is not None:
            cause = absent.lost or HostLost(island=absent.name, reason="another host has replaced it")
            following = self._drop(run, cause)
        else:
            run.life.transition("begin")
            run.left = {rank.number for member in members.values() for rank in member.ranks}
            if run.plan.branches is not None:
                run.relay = relay_of(run.request.number, members.values(), run.plan.branches)
                run.relay.begin()
            for island, parcel in run.parcels.items():
                self._send(island, parcel.epoch, parcel.before + parcel.run)
            following = self.scheduler.enqueued(run.request.number, run.request.bytes or None)
        self._leave_line(run)
        return following

    def _leave_line(self, run: ClusterRun) -> None:
        """Sends the frames queued after a run, up to its client's next run; enqueues that run if it is first."""
        session, following = run.session, dict[ClusterRun, None]()
        session.waiting_bytes -= sum(parcel.size for parcel in run.parcels.values())
        for island, parcel in run.parcels.items():
            line = session.lines[island]
            at = line.index(run)
            if run.life.state == "on hosts" or not parcel.before:
                del line[at]
            else:  # the run was refused, and later runs may read these arrays
                line[at] = FrameAfterRuns(parcel.epoch, parcel.before)
                session.waiting_bytes += len(parcel.before)
            while line and isinstance(frame_after := line[0], FrameAfterRuns):
                self._send(island, *frame_after)
                session.waiting_bytes -= len(frame_after.frame)
                line.popleft()
            if line and isinstance(line[0], ClusterRun):
                following[line[0]] = None
        for label, held in run.holds:
            session.waiting_bytes -= _size_of(held)
            self._hold(session, label, held)
        run.holds.clear()
        for each in following:
            self._line_up(session, each)

    def _drop(self, run: ClusterRun, cause: Diagnostic) -> list[int]:
        """Ends a run that no host has received."""
        self._refuse(run, cause)
        self._remove(run)
        return self.scheduler.cancel(run.request.number)

    def _refuse(self, run: ClusterRun, cause: Diagnostic) -> None:
        """Notifies the client and the connected hosts of a refused run: later runs may read its results."""
        run.life.transition("be refused")
        text = write_diagnostic(cause)
        for island, parcel in run.parcels.items():
            member = self._members[island]
            if member.epoch.number == parcel.epoch:
                member.post(m.RefuseRun(*run.refusal, text))
        run.session.peer.send(m.RunRefused(run.request.number, text))

    def hosts_at(self, number: int) -> list[Rank]:
        """Returns the hosts that have not completed their partition of a run."""
        left = self.runs[number].left if number in self.runs else ()
        return [rank for member in self._members for rank in member.ranks if rank.number in left]

    def ended(self, rank: Rank, number: int, nanoseconds: int) -> None:
        """Handles the completion of a host's partition of a run, which took `nanoseconds` there."""
        run = self.runs.get(number)
        if run is not None and rank.number in run.left:
            rank.member.worked = True
            run.seconds = max(run.seconds, nanoseconds / 1e9)
            if len(run.left) == 1:
                run.plan.cost.measured(run.seconds)
            self._part_ended(run, rank.number)

    def _part_ended(self, run: ClusterRun, host: int) -> None:
        run.left.discard(host)
        if not run.left:
            run.life.transition("end")
            run.session.had[run.request.client].count(run)
            self._remove(run)
            self.ended_on.update(list(run.parcels))
            self._begin(self.scheduler.finished(run.request.number))

    def _remove(self, run: ClusterRun) -> None:
        """Removes a run that is complete or will not begin."""
        del self.runs[run.request.number]
        run.session.count_run(run.request.client, -1)

    def island_lost(self, member: Member, cause: Diagnostic) -> None:
        """Completes the partitions of a lost island's runs. Queued runs for the island are refused when scheduled."""
        hosts = {rank.number for rank in member.ranks}
        for run in [run for run in self.runs.values() if hosts & run.left]:
            if run.relay is not None:
                run.relay.doom(cause)
            for host in hosts & run.left:
                self._part_ended(run, host)

    def cancel(self, number: int, cause: Diagnostic) -> None:
        """Ends the data-dependent loops of a run, or removes the run from the queue."""
        run = self.runs.get(number)
        if run is None:
            return
        if run.life.state == "on hosts":
            if run.relay is not None:
                run.relay.cancel(cause)
            return
        following = self._drop(run, cause)
        self._leave_line(run)
        self._begin(following)

    def fail(self, number: int, cause: Diagnostic) -> None:
        """Refuses a run in any state after an internal error of this package, so that its client does not wait."""
        if (run := self.runs.get(number)) is not None:
            self._begin(self._failed(run, cause))

    def _failed(self, run: ClusterRun, cause: Diagnostic) -> list[int]:
        following = self._drop(run, cause)
        if any(run in run.session.lines[island] for island in run.parcels):
            self._leave_line(run)
        return following

    def left_by(self, session: ClientSession, cause: Diagnostic) -> None:
        """Removes a client: drops its queued runs and ends their loops. Other running work completes by itself."""
        following: list[int] = []
        for run in [run for run in self.runs.values() if run.session is session]:
            if run.life.state != "on hosts":
                run.life.transition("be refused")
                del self.runs[run.request.number]
                following += self.scheduler.cancel(run.request.number)
            elif run.relay is not None:
                run.relay.cancel(cause)
        session.lines.clear()
        for number, size in session.counted.items():
            following += self.scheduler.hold((self.devices[number],), -size)
        session.held.clear()
        session.total.clear()
        session.counted.clear()
        self._begin(n for n in following if n in self.runs)


def _size_of(message: m.Hold) -> int:
    """Returns the approximate memory size of a message in bytes."""
    return 64 + 16 * len(message.memory)


def controller_failed(what: str, error: Exception) -> ControllerFailed:
    """Prints an unexpected internal error, and returns the diagnostic for waiting clients."""
    traceback.print_exception(error)
    return ControllerFailed(what=what, problem=f"{type(error).__name__}: {error}")
