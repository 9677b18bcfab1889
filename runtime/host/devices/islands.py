"""The resource manager, embedded: binds the abstract islands of a plan to physical devices.

On CPU, devices are made at will, by PJRT clients that are added when the devices run out, so that later plans never
disturb earlier ones. Elsewhere islands are disjoint groups of the host's devices. Programs that name the same island
share its devices. An island keeps its devices while a plan is loaded there or an array lies there. Devices of unused
islands are reused before new ones are created: a CPU device costs four threads until the process exits.
"""

import gc
import threading
import weakref
from collections.abc import Callable, Container, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from pathways.dialect.diagnostics import Diagnostic, PathwaysError
from pathways.dialect.plan.nouns import Plan
from pathways.dialect.platforms import MadeAtWill, platform_named
from pathways.dialect.topology import Island
from pathways.runtime.errors import NotEnoughDevices, WrongPlatform
from pathways.runtime.host.devices import pjrt, thread_limits
from pathways.runtime.host.devices.group import ProcessGroup, make_group_devices
from pathways.runtime.host.devices.in_flight_limit import DeviceQueue

MIN_DEVICES_BETWEEN_COLLECTIONS = 64
"""Minimum number of devices bound between two garbage collections. Collections free plans in reference cycles, which
keep islands bound."""
FIRST_LAUNCH = 1
"""XLA takes 0 for none, and numbers such an execution itself: another on each device."""


@dataclass(frozen=True, eq=False)
class PhysicalIsland:
    """Devices in the order of the abstract island, each with its queue of work in flight."""

    name: str
    devices: tuple[pjrt.Device, ...]
    queues: tuple[DeviceQueue, ...]
    key: str
    """Its name in this process: no other island has it. Of several hosts' island, that of this host."""
    lost: dict[int, str] = field(default_factory=dict[int, str])
    """Lost devices by position, each with the reason."""
    causes: dict[int, Diagnostic] = field(default_factory=dict[int, Diagnostic])
    """Errors for lost devices, where there is more to say than the reason."""
    users: "weakref.WeakSet[object]" = field(default_factory=weakref.WeakSet[object])
    """Objects that keep the island bound: loaded plans, or the machine for islands that are never released."""

    def at(self, positions: Sequence[int]) -> tuple[pjrt.Device, ...]:
        return tuple(self.devices[p] for p in positions)


class Keeper:
    """Keeps islands bound while it is alive: a wait for room there, or a place for arrays (`Machine.keep`)."""


class Machine:
    """All devices of this process."""

    is_local: ClassVar[bool] = True
    """Whether they are in this process: a watchdog sees then whether they work."""
    schedules_here: ClassVar[bool] = True
    """Whether runs wait in this process for turns and for memory; else the controller of a cluster has the lines."""

    def __init__(self, platform: str) -> None:
        self.platform = platform
        self.row = platform_named(platform)
        self._bound: dict[tuple[str, int], PhysicalIsland] = {}
        self._queues: dict[pjrt.Device, DeviceQueue] = {}
        self._spare: dict[int, list[pjrt.Device]] = {}
        """Unused devices by the number of their PJRT client: the devices of one program come from one client."""
        self._client_of: dict[pjrt.Device, int] = {}
        """The number of the PJRT client of each device that was made at will."""
        self._hung_clients: set[int] = set()
        """Clients that had a hang. Their threads stay blocked, so their devices are not reused."""
        self._made = 0
        """Devices made at will."""
        self._bound_since, self._collect_after = 0, MIN_DEVICES_BETWEEN_COLLECTIONS
        """Devices bound since the last garbage collection, and the count that triggers the next."""
        self.devices_in_use: Callable[[], Container[Hashable]] = frozenset[Hashable]
        """Returns the devices that have arrays or runs in flight, whether a plan is loaded there or not."""
        self._lock = threading.Lock()
        self._next_launch = FIRST_LAUNCH
        self.changes = 0
        """Counts devices that were lost or came back."""

    def retire(self, client: str) -> None:
        """Notes that a client of this process was closed, by its label. Nothing is kept for each here."""

    def take_launches(self, count: int) -> int:
        """Takes `count` launch ids, returns the first; all in flight differ, or collectives of equal ids would meet."""
        with self._lock:
            first = self._next_launch if self._next_launch + count < 1 << 31 else FIRST_LAUNCH
            self._next_launch = first + count
            return first

    def lose(self, island: PhysicalIsland, position: int, reason: str, cause: Diagnostic | None = None) -> None:
        """Marks a device as lost. Plans that are loaded there must be placed anew.

        With a `cause`, a hang, threads of its client are stuck: new islands get devices of another client.
        """
        with self._lock:
            if cause is not None:
                island.causes[position] = cause
                self._hung_clients.update(self._client_of[d] for d in island.devices if d in self._client_of)
                self._spare = {c: spare for c, spare in self._spare.items() if c not in self._hung_clients}
            island.lost[position] = reason
            self.changes += 1

    def recover(self, island: PhysicalIsland, position: int) -> None:
        """Marks a device as back, with nothing on it."""
        with self._lock:
            island.lost.pop(position, None)
            island.causes.pop(position, None)
            island.queues[position].recover()
            self.changes += 1

    def lost_on(self, island: PhysicalIsland) -> tuple[int, ...]:
        """Positions on an island that have no device at this moment."""
        return tuple(sorted(island.lost))

    def keep_for_ever(self) -> None:
        """Keeps all PJRT clients alive: in a forked process, a destructor would wait for their threads for ever."""
        for device in self._queues:
            pjrt.keep_for_ever(device)

    @property
    def lost_islands(self) -> frozenset[str]:
        """The names of islands where nothing can be placed: they have lost a device."""
        return frozenset(i.name for i in self.islands if i.lost)

    @property
    def islands(self) -> list[PhysicalIsland]:
        """All islands in the order in which they were bound; other threads may bind more meanwhile."""
        return list(self._bound.values())

    def named(self, key: str) -> PhysicalIsland | None:
        """Returns the island of this name in this process."""
        return next((i for i in self.islands if i.key == key), None)

    def island_of(self, device: Hashable) -> PhysicalIsland | None:
        """Returns the island that a device is of; None for one of another machine."""
        return next((i for i in self.islands if device in i.devices), None)

    def islands_for(self, plan: Plan, user: object = None) -> dict[str, PhysicalIsland]:
        """Finds the physical island of each stream. It stays bound while `user` is alive, or forever if that is None.

        Raises PWC0503 (too few devices) or PWC0605 (another platform).
        """
        if plan.platform != self.platform:
            here = f"this process runs on {self.platform}"
            raise PathwaysError(WrongPlatform(program=plan.name, plan_platform=plan.platform, have_=here))
        return self.bound([plan.topology.island(s.island) for s in plan.streams], plan.name, user)

    def bound(self, wanted: Sequence[Island], program: str, user: object = None) -> dict[str, PhysicalIsland]:
        """Finds or binds the devices of islands that this program needs. They stay bound while `user` is alive, or
        forever if that is None. Raises PWC0503.
        """
        user = self if user is None else user
        if self._should_collect(wanted):
            gc.collect()  # not under the lock: a finalizer may run a program
        with self._lock:
            there = [self._bound[i.name, i.size] for i in wanted if (i.name, i.size) in self._bound]
            for physical in there:  # before `_pool`, which releases islands without users
                physical.users.add(user)
            missing = [i for i in wanted if (i.name, i.size) not in self._bound]
            pool = self._pool(program, missing) if missing else {}
            for island in wanted:
                key = island.name, island.size
                _check_kind(program, island, self._bound[key].devices if key in self._bound else pool[island.name])
            for island in missing:
                self.bind(island.name, pool[island.name])
                self._bound[island.name, island.size].users.add(user)
            return {i.name: self._bound[i.name, i.size] for i in wanted}

    def bind(self, name: str, devices: Sequence[pjrt.Device]) -> None:
        """Binds islands of this name and size to these devices from now on."""
        queues = tuple(self._queues.setdefault(d, DeviceQueue(self.row.in_flight)) for d in devices)
        taken = {bound.key for bound in self._bound.values()}
        key = name if name not in taken else f"{name}({len(devices)})"
        self._bound[name, len(devices)] = PhysicalIsland(name, tuple(devices), queues, key)

    def keep(self, devices: Iterable[pjrt.Device], user: object) -> None:
        """Keeps the islands of these devices bound while `user` is alive: a wait for room there, a place for arrays."""
        wanted = set(devices)
        with self._lock:
            for island in self._bound.values():
                if not wanted.isdisjoint(island.devices):
                    island.users.add(user)

    def devices_with(self, queues: Container[DeviceQueue]) -> set[pjrt.Device]:
        """Returns the devices whose queues are among these."""
        return {device for device, queue in list(self._queues.items()) if queue in queues}

    def unbind(self, island: PhysicalIsland) -> None:
        """Forgets an island: one of its name that is bound from now on is another."""
        with self._lock:
            self._bound.pop((island.name, len(island.devices)), None)

    def join(self, island: Island, group: ProcessGroup, key: str) -> None:
        """Binds an island to devices that this process has together with others: of each, so many of the first.

        Raises PWC0503 where that is not possible.
        """
        will = self.row.made_at_will
        if will is None:
            have, needs = f"{self.platform} devices, which are not made at will", f"{island.hosts} processes of them"
            raise PathwaysError(NotEnoughDevices(program=key, have_=have, needs=needs))
        made = will.spare * max(island.devices, will.fewest)
        self._check_room(key, made, will)
        try:
            all_of_them = make_group_devices(made, group)
        except RuntimeError as error:
            needs = f"{island.hosts} processes that meet at {group.address}"
            raise PathwaysError(NotEnoughDevices(program=key, have_=str(error), needs=needs)) from None
        devices = tuple(d for own in all_of_them for d in own[: island.devices])
        queues = tuple(self._queues.setdefault(d, DeviceQueue(self.row.in_flight_across)) for d in devices)
        self._bound[island.name, island.size] = PhysicalIsland(island.name, devices, queues, key)

    def _pool(self, program: str, wanted: Sequence[Island]) -> dict[str, list[pjrt.Device]]:
        if self.row.made_at_will is not None:
            return self._make(program, wanted, self.row.made_at_will)
        groups = host_islands()
        taken = {d for bound in self._bound.values() for d in bound.devices}
        free = [[d for d in group if d not in taken] for group in groups]
        pool: dict[str, list[pjrt.Device]] = {}
        for island in wanted:
            group = next((g for g in free if len(g) >= island.size), None)
            if group is None:
                have = f"{', '.join(str(len(g)) for g in free)} free devices on {len(groups)} islands"
                needs = ", ".join(f"{i.name}: {i.size}" for i in wanted)
                raise PathwaysError(NotEnoughDevices(program=program, have_=have, needs=needs))
            pool[island.name], group[: island.size] = group[: island.size], []
        return pool

    def _make(self, program: str, wanted: Sequence[Island], will: MadeAtWill) -> dict[str, list[pjrt.Device]]:
        """Makes devices for all islands, of one PJRT client if it has room, so that copies between them stay in it."""
        for island in wanted:
            if island.kind not in ("any", will.kind):
                raise _wrong_kind(program, island, will.kind)
        total = sum(i.size for i in wanted)
        spare = self._smallest_spare(total)
        if spare is None:
            self._release_unused()
            spare = self._smallest_spare(total)
        if spare is None:
            usable = max(total, will.fewest)
            made = will.spare * usable
            self._check_room(program, made, will)
            client = len(self._client_of)
            spare = self._spare[client] = pjrt.make_devices(made)[:usable]
            self._client_of.update(dict.fromkeys(spare, client))
        pool: dict[str, list[pjrt.Device]] = {}
        for island in wanted:
            pool[island.name], spare[: island.size] = spare[: island.size], []
        self._bound_since += total
        return pool

    def _should_collect(self, wanted: Sequence[Island]) -> bool:
        """Returns whether garbage is collected before devices are made: only after as many were bound as are in use."""
        if self.row.made_at_will is None or self._bound_since < self._collect_after:
            return False
        with self._lock:
            missing = sum(i.size for i in wanted if (i.name, i.size) not in self._bound)
            if not missing or self._smallest_spare(missing) is not None:
                return False
            in_use = sum(len(island.devices) for island in self._bound.values())
            self._bound_since, self._collect_after = 0, max(MIN_DEVICES_BETWEEN_COLLECTIONS, in_use)
        return True

    def _smallest_spare(self, count: int) -> list[pjrt.Device] | None:
        """Returns the shortest list of unused devices of one client that has enough; None where there is none."""
        return min((spare for spare in self._spare.values() if len(spare) >= count), key=len, default=None)

    def _release_unused(self) -> None:
        """Releases islands that have no user, no array and no run in flight: their devices are spare."""
        in_use = self.devices_in_use()
        for key, island in list(self._bound.items()):
            client = self._client_of.get(island.devices[0])
            if client is None or client in self._hung_clients or island.users or island.lost:
                continue
            if not any(device in in_use for device in island.devices):
                del self._bound[key]
                self._spare[client] = sorted([*self._spare[client], *island.devices], key=pjrt.ordinal)

    def _check_room(self, program: str, made: int, will: MadeAtWill) -> None:
        """Counts devices that are about to be made. Raises PWC0503 where they are too many."""
        if self._made + made > will.most:
            have = f"{self._made} {self.platform.upper()} devices made in this process, of at most {will.most}"
            needs = f"{made} more; delete programs and arrays on slices that you no longer use: del step, x"
            raise PathwaysError(NotEnoughDevices(program=program, have_=have, needs=needs))
        if (room := thread_limits.room()) < will.threads * made:
            have = f"room for {room:,} more threads, by the limits of this process or of its container"
            needs = f"{will.threads * made:,} threads for {made} {self.platform.upper()} devices"
            raise PathwaysError(NotEnoughDevices(program=program, have_=have, needs=needs))
        self._made += made


def _check_kind(program: str, island: Island, devices: Sequence[pjrt.Device]) -> None:
    kind = str(devices[0].device_kind)
    if island.kind not in ("any", kind):
        raise _wrong_kind(program, island, kind)


def _wrong_kind(program: str, island: Island, kind: str) -> PathwaysError:
    needs = f"{island.name} of kind {island.kind}"
    return PathwaysError(NotEnoughDevices(program=program, have_=f"devices of kind {kind}", needs=needs))


def host_islands() -> list[list[pjrt.Device]]:
    """Groups the host's devices into islands: TPUs by their slice, others together."""
    groups: dict[int, list[pjrt.Device]] = {}
    for device in pjrt.host_devices():
        groups.setdefault(getattr(device, "slice_index", 0) or 0, []).append(device)
    return [groups[k] for k in sorted(groups)]
