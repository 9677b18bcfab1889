"""Assigns devices of this process to the islands that a plan names, and tracks lost devices. On CPU it creates devices
on demand. It must not enqueue any work.

The controller (`client/controller.py`) and each host process (`host/serve.py`) have one `Machine`.

On CPU, devices are created on demand. When they run out, another PJRT client is added, so that later plans never
disturb earlier ones. On other platforms, islands are disjoint groups of the host's devices. Programs that name the same
island share its devices. An island keeps its devices while a plan is loaded on it or an array is stored on it. Devices
of unused islands are reused before new ones are created: a CPU device costs four threads until the process exits.
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
"""The first launch id. XLA treats 0 as unset and then chooses its own id, a different one on each device."""


@dataclass(frozen=True, eq=False)
class PhysicalIsland:
    """The devices bound to an island, in the order of the abstract island, each with its queue of work in flight."""

    name: str
    devices: tuple[pjrt.Device, ...]
    queues: tuple[DeviceQueue, ...]
    key: str
    """The unique name of the island in this process. If several hosts share the island, the name of this host."""
    lost: dict[int, str] = field(default_factory=dict[int, str])
    """Lost devices by position, each with the reason."""
    causes: dict[int, Diagnostic] = field(default_factory=dict[int, Diagnostic])
    """Full diagnostics of lost devices by position, if there is more than the reason, such as a hang."""
    users: "weakref.WeakSet[object]" = field(default_factory=weakref.WeakSet[object])
    """Objects that keep the island bound: loaded plans, keepers, or the machine if the island is never released."""

    def at(self, positions: Sequence[int]) -> tuple[pjrt.Device, ...]:
        return tuple(self.devices[p] for p in positions)


class Keeper:
    """Keeps islands bound while it is alive (`Machine.keep`), for arrays that wait for memory or will be placed."""


class Machine:
    """The devices of this process, and the islands bound to them."""

    is_local: ClassVar[bool] = True
    """Whether the devices are in this process, so that its watchdog can check their progress."""
    schedules_here: ClassVar[bool] = True
    """Whether this process schedules runs and reserves memory. If not, the controller of the cluster does."""

    def __init__(self, platform: str) -> None:
        self.platform = platform
        self.row = platform_named(platform)
        self._bound: dict[tuple[str, int], PhysicalIsland] = {}
        self._queues: dict[pjrt.Device, DeviceQueue] = {}
        self._spare: dict[int, list[pjrt.Device]] = {}
        """Unused devices by the number of their PJRT client. All devices of one program come from one client."""
        self._client_of: dict[pjrt.Device, int] = {}
        """The number of the PJRT client of each device that was created on demand."""
        self._hung_clients: set[int] = set()
        """Clients that had a hang. Their threads stay blocked, so their devices are not reused."""
        self._made = 0
        """The number of devices created on demand."""
        self._bound_since, self._collect_after = 0, MIN_DEVICES_BETWEEN_COLLECTIONS
        """Devices bound since the last garbage collection, and the count that triggers the next."""
        self.devices_in_use: Callable[[], Container[Hashable]] = frozenset[Hashable]
        """Returns the devices that hold arrays or have runs in flight, even if no plan is loaded on them."""
        self._lock = threading.Lock()
        self._next_launch = FIRST_LAUNCH
        self.changes = 0
        """Counts losses and recoveries of devices."""

    def retire(self, client: str) -> None:
        """Releases the state of a closed client, named by its label. This class keeps no state per client."""

    def take_launches(self, count: int) -> int:
        """Reserves `count` launch ids and returns the first. Two launches in flight must not share an id.

        XLA matches the participants of a collective by launch id.
        """
        with self._lock:
            first = self._next_launch if self._next_launch + count < 1 << 31 else FIRST_LAUNCH
            self._next_launch = first + count
            return first

    def lose(self, island: PhysicalIsland, position: int, reason: str, cause: Diagnostic | None = None) -> None:
        """Marks a device as lost. Plans loaded on the device must be placed again.

        A `cause` means a hang: threads of the device's PJRT client are stuck, so new islands use another client.
        """
        with self._lock:
            if cause is not None:
                island.causes[position] = cause
                self._hung_clients.update(self._client_of[d] for d in island.devices if d in self._client_of)
                self._spare = {c: spare for c, spare in self._spare.items() if c not in self._hung_clients}
            island.lost[position] = reason
            self.changes += 1

    def recover(self, island: PhysicalIsland, position: int) -> None:
        """Marks a lost device as available again. Nothing is stored on it."""
        with self._lock:
            island.lost.pop(position, None)
            island.causes.pop(position, None)
            island.queues[position].recover()
            self.changes += 1

    def lost_on(self, island: PhysicalIsland) -> tuple[int, ...]:
        """Returns the positions on an island that have no device at this moment."""
        return tuple(sorted(island.lost))

    def keep_for_ever(self) -> None:
        """Keeps all PJRT clients alive: in a forked process, their destructors would wait for their threads forever."""
        for device in self._queues:
            pjrt.keep_for_ever(device)

    @property
    def lost_islands(self) -> frozenset[str]:
        """The names of islands that have lost a device, so that nothing can be placed on them."""
        return frozenset(i.name for i in self.islands if i.lost)

    @property
    def islands(self) -> list[PhysicalIsland]:
        """A copy of the list of islands in binding order. Other threads may bind more at the same time."""
        return list(self._bound.values())

    def named(self, key: str) -> PhysicalIsland | None:
        """Returns the island with this unique name in this process; None if there is none."""
        return next((i for i in self.islands if i.key == key), None)

    def island_of(self, device: Hashable) -> PhysicalIsland | None:
        """Returns the island that contains a device; None for a device of another machine."""
        return next((i for i in self.islands if device in i.devices), None)

    def islands_for(self, plan: Plan, user: object = None) -> dict[str, PhysicalIsland]:
        """Finds the physical island of each stream. It stays bound while `user` is alive; forever if `user` is None.

        Raises PWC0503 (too few devices) or PWC0605 (another platform).
        """
        if plan.platform != self.platform:
            here = f"this process runs on {self.platform}"
            raise PathwaysError(WrongPlatform(program=plan.name, plan_platform=plan.platform, have_=here))
        return self.bound([plan.topology.island(s.island) for s in plan.streams], plan.name, user)

    def bound(self, wanted: Sequence[Island], program: str, user: object = None) -> dict[str, PhysicalIsland]:
        """Finds or binds the islands that a program needs. Raises PWC0503 (too few devices).

        The islands stay bound while `user` is alive, or forever if `user` is None.
        """
        user = self if user is None else user
        if self._should_collect(wanted):
            gc.collect()  # without the lock: a finalizer may run a program
        with self._lock:
            there = [self._bound[i.name, i.size] for i in wanted if (i.name, i.size) in self._bound]
            for physical in there:  # before `_pool`, which releases islands that have no user
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
        """Binds the island of this name and size to these devices."""
        queues = tuple(self._queues.setdefault(d, DeviceQueue(self.row.in_flight)) for d in devices)
        taken = {bound.key for bound in self._bound.values()}
        key = name if name not in taken else f"{name}({len(devices)})"
        self._bound[name, len(devices)] = PhysicalIsland(name, tuple(devices), queues, key)

    def keep(self, devices: Iterable[pjrt.Device], user: object) -> None:
        """Keeps the islands of these devices bound while `user` is alive.

        `user` stands for arrays that wait for memory on the islands, or that will be placed there.
        """
        wanted = set(devices)
        with self._lock:
            for island in self._bound.values():
                if not wanted.isdisjoint(island.devices):
                    island.users.add(user)

    def devices_with(self, queues: Container[DeviceQueue]) -> set[pjrt.Device]:
        """Returns the devices whose queues are among these."""
        return {device for device, queue in list(self._queues.items()) if queue in queues}

    def unbind(self, island: PhysicalIsland) -> None:
        """Removes an island. An island that is bound later under the same name is a different one."""
        with self._lock:
            self._bound.pop((island.name, len(island.devices)), None)

    def join(self, island: Island, group: ProcessGroup, key: str) -> None:
        """Binds an island to devices shared by a group of processes: the first `island.devices` of each process.

        Raises PWC0503 if the platform cannot create devices on demand, or the group cannot be formed.
        """
        will = self.row.made_at_will
        if will is None:
            have = f"{self.platform} devices, which are not created on demand"
            needs = f"devices that {island.hosts} processes can create together"
            raise PathwaysError(NotEnoughDevices(program=key, have_=have, needs=needs))
        made = will.spare * max(island.devices, will.fewest)
        self._check_room(key, made, will)
        try:
            all_of_them = make_group_devices(made, group)
        except RuntimeError as error:
            needs = f"{island.hosts} processes that connect at {group.address}"
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
        """Takes the devices of all islands from one PJRT client, so that copies between them stay within the client."""
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
        """Returns whether to collect garbage before new devices are created.

        This is the case only after as many devices were bound as are in use, which bounds the cost of collections.
        """
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
        """Returns the shortest list of unused devices of one client that has enough devices; None if there is none."""
        return min((spare for spare in self._spare.values() if len(spare) >= count), key=len, default=None)

    def _release_unused(self) -> None:
        """Releases islands that have no user, no array and no run in flight. Their devices become spare."""
        in_use = self.devices_in_use()
        for key, island in list(self._bound.items()):
            client = self._client_of.get(island.devices[0])
            if client is None or client in self._hung_clients or island.users or island.lost:
                continue
            if not any(device in in_use for device in island.devices):
                del self._bound[key]
                self._spare[client] = sorted([*self._spare[client], *island.devices], key=pjrt.ordinal)

    def _check_room(self, program: str, made: int, will: MadeAtWill) -> None:
        """Counts devices that are about to be created. Raises PWC0503 if they exceed a limit of devices or threads."""
        if self._made + made > will.max_count:
            have = f"{self._made} {self.platform.upper()} devices created in this process, at most {will.max_count}"
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
    """Groups the host's devices into islands: TPUs by slice, other devices together."""
    groups: dict[int, list[pjrt.Device]] = {}
    for device in pjrt.host_devices():
        groups.setdefault(getattr(device, "slice_index", 0) or 0, []).append(device)
    return [groups[k] for k in sorted(groups)]
