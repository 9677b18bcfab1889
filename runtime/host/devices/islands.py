"""The resource manager, embedded: binds the abstract islands of a plan to physical devices.

On CPU, devices are made at will, by PJRT clients that are added when the devices run out, so that later plans never
disturb earlier ones. Elsewhere islands are disjoint groups of the host's devices. An island keeps its devices for the
life of the process: programs that name the same island take turns on them.
"""

import threading
from collections.abc import Hashable, Sequence
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

    def at(self, positions: Sequence[int]) -> tuple[pjrt.Device, ...]:
        return tuple(self.devices[p] for p in positions)


class Machine:
    """All devices of this process."""

    is_local: ClassVar[bool] = True
    """Whether they are in this process: a watchdog sees then whether they work."""
    counts_memory: ClassVar[bool] = True
    """Whether who has the machine counts what is held on its devices; else a controller that several share does."""

    def __init__(self, platform: str) -> None:
        self.platform = platform
        self.row = platform_named(platform)
        self._bound: dict[tuple[str, int], PhysicalIsland] = {}
        self._queues: dict[pjrt.Device, DeviceQueue] = {}
        self._spare: list[pjrt.Device] = []
        self._made = 0
        """Devices made at will."""
        self._lock = threading.Lock()
        self._next_launch = FIRST_LAUNCH
        self.changes = 0
        """Counts devices that were lost or came back."""

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
                self._spare = []
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

    def islands_for(self, plan: Plan) -> dict[str, PhysicalIsland]:
        """Finds the physical island of each stream. Raises PWC0503 (too few devices) or PWC0605 (another platform)."""
        if plan.platform != self.platform:
            here = f"this process runs on {self.platform}"
            raise PathwaysError(WrongPlatform(program=plan.name, plan_platform=plan.platform, have_=here))
        return self.bound([plan.topology.island(s.island) for s in plan.streams], plan.name)

    def bound(self, wanted: Sequence[Island], program: str) -> dict[str, PhysicalIsland]:
        """Finds or binds the devices of islands, which this program needs. Raises PWC0503."""
        with self._lock:
            missing = [i for i in wanted if (i.name, i.size) not in self._bound]
            pool = self._pool(program, missing)
            for island in wanted:
                key = island.name, island.size
                devices = self._bound[key].devices if key in self._bound else pool[island.name]
                _check_kind(program, island, devices)
            for island in missing:
                self.bind(island.name, pool[island.name])
            return {i.name: self._bound[i.name, i.size] for i in wanted}

    def bind(self, name: str, devices: Sequence[pjrt.Device]) -> None:
        """Binds islands of this name and size to these devices from now on."""
        queues = tuple(self._queues.setdefault(d, DeviceQueue(self.row.in_flight)) for d in devices)
        taken = {bound.key for bound in self._bound.values()}
        key = name if name not in taken else f"{name}({len(devices)})"
        self._bound[name, len(devices)] = PhysicalIsland(name, tuple(devices), queues, key)

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
        total = sum(i.size for i in wanted)
        if total > len(self._spare):
            usable = max(total, will.fewest)
            made = will.spare * usable
            self._check_room(program, made, will)
            self._spare = pjrt.make_devices(made)[:usable]
        pool: dict[str, list[pjrt.Device]] = {}
        for island in wanted:
            pool[island.name], self._spare = self._spare[: island.size], self._spare[island.size :]
        return pool

    def _check_room(self, program: str, made: int, will: MadeAtWill) -> None:
        """Counts devices that are about to be made. Raises PWC0503 where they are too many."""
        if self._made + made > will.most:
            have = f"{self._made} {self.platform.upper()} devices made in this process, of at most {will.most}"
            needs = f"{made} more; slices keep theirs as long as the process lives: make them once"
            raise PathwaysError(NotEnoughDevices(program=program, have_=have, needs=needs))
        if (room := thread_limits.room()) < will.threads * made:
            have = f"room for {room:,} more threads, by the limits of this process or of its container"
            needs = f"{will.threads * made:,} threads for {made} {self.platform.upper()} devices"
            raise PathwaysError(NotEnoughDevices(program=program, have_=have, needs=needs))
        self._made += made


def _check_kind(program: str, island: Island, devices: Sequence[pjrt.Device]) -> None:
    kind = str(devices[0].device_kind)
    if island.kind not in ("any", kind):
        needs = f"{island.name} of kind {island.kind}"
        raise PathwaysError(NotEnoughDevices(program=program, have_=f"devices of kind {kind}", needs=needs))


def host_islands() -> list[list[pjrt.Device]]:
    """Groups the host's devices into islands: TPUs by their slice, others together."""
    groups: dict[int, list[pjrt.Device]] = {}
    for device in pjrt.host_devices():
        groups.setdefault(getattr(device, "slice_index", 0) or 0, []).append(device)
    return [groups[k] for k in sorted(groups)]
