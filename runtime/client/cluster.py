"""A cluster: islands in processes of their own, and the devices that this process has there by name."""

import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar

from pathways.dialect.diagnostics import Diagnostic, PathwaysError
from pathways.dialect.plan.nouns import Plan
from pathways.dialect.topology import Topology
from pathways.runtime.client.remote_host import RemoteHost
from pathways.runtime.errors import NotEnoughDevices, WrongPlatform
from pathways.runtime.host.devices.in_flight_limit import DeviceQueue
from pathways.runtime.host.devices.islands import Machine, PhysicalIsland
from pathways.runtime.launch.processes import HostProcess, start_hosts
from pathways.runtime.wire import messages as m


@dataclass(frozen=True)
class RemoteDevice:
    """A device of an island in another process."""

    island: str
    position: int
    platform: str
    device_kind: str

    def __str__(self) -> str:
        return f"{self.island}[{self.position}]"


class Cluster(Machine):
    """The machine of a process whose islands are other processes: devices by name, and the hosts that have them."""

    is_local: ClassVar[bool] = False

    def __init__(self, topology: Topology, platform: str) -> None:
        """Starts a process for each island. Raises PWC0910 where one does not start."""
        super().__init__(platform)
        self.topology = topology
        self.plans = itertools.count()
        """Numbers of plans."""
        self.on_lost: Any = None
        """Called with the island and the reason when a host is gone."""
        self._processes = start_hosts(topology.islands, platform)
        self.hosts = {p.island: RemoteHost(p.island, p.connection, self._lost) for p in self._processes}
        for island in topology.islands:
            kind = platform if island.kind == "any" else island.kind
            devices = tuple(RemoteDevice(island.name, i, platform, kind) for i in range(island.size))
            queues = tuple(DeviceQueue() for _ in devices)
            self._bound[island.name, island.size] = PhysicalIsland(island.name, devices, queues, island.name)
        self._connect()

    def _connect(self) -> None:
        """Tells every host where the data of the others comes from."""

        def nothing(name: str, number: int) -> m.Message:
            return m.Connect(number, {})

        found = self.ask_all(list(self.hosts), nothing)
        addresses = {name: answer.value for name, answer in found.items()}

        def others(name: str, number: int) -> m.Message:
            return m.Connect(number, {n: a for n, a in addresses.items() if n != name})

        self.ask_all(list(self.hosts), others)

    def ask_all(self, islands: Sequence[str], make: Callable[[str, int], m.Message]) -> dict[str, m.Answer]:
        """Asks several hosts at once; `make` makes the request of one, of its island and a number."""

        def ask(name: str) -> m.Answer:
            return self.hosts[name].ask(lambda number: make(name, number))

        with ThreadPoolExecutor(len(islands), "pathways-ask") as pool:
            return dict(zip(islands, pool.map(ask, islands), strict=True))

    def islands_for(self, plan: Plan) -> dict[str, PhysicalIsland]:
        """Finds the islands of a plan by name. Raises PWC0503, PWC0605 and PWC0910."""
        if plan.platform != self.platform:
            have = f"this cluster runs on {self.platform}"
            raise PathwaysError(WrongPlatform(program=plan.name, plan_platform=plan.platform, have_=have))
        wanted = [plan.topology.island(s.island) for s in plan.streams]
        missing = [i for i in wanted if (i.name, i.size) not in self._bound]
        if missing:
            have = f"a cluster of {self.topology}"
            needs = ", ".join(f"{i.name} of {i.size} devices" for i in missing)
            raise PathwaysError(NotEnoughDevices(program=plan.name, have_=have, needs=needs))
        return {i.name: self._bound[i.name, i.size] for i in wanted}

    def keep_for_ever(self) -> None:
        """A forked process has no connection to hosts, and no device that must be kept."""

    def _lost(self, host: RemoteHost) -> None:
        """Tells all others that a host is gone, so that nothing waits for it; then this process."""
        assert host.lost is not None
        for other in self.hosts.values():
            if other is not host:
                other.post(m.Fence(host.island))
        if self.on_lost is not None:
            self.on_lost(self.named(host.island), host.lost)

    def process_of(self, island: str) -> HostProcess:
        return next(p for p in self._processes if p.island == island)

    def close(self) -> None:
        """Ends all processes."""
        self.on_lost = None
        for process in self._processes:
            process.connection.close()
        for process in self._processes:
            process.end()


def lose(controller: Any, island: PhysicalIsland, cause: Diagnostic) -> None:
    """Marks all devices of an island as lost, for this cause: its arrays are poison from now on."""
    for position in range(len(island.devices)):
        controller.lose(island, position, "its host is gone", cause)
