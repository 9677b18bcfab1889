"""Holds the state that all programs of a process share: its devices, stored arrays, compiled code and placements. All
public functions get it from here. It may also stand for a connection to a cluster.
"""

import atexit
import contextlib
import itertools
import os
import sys
import threading
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from pathways.api.progress_display import show_progress
from pathways.compiler.frontends.jax.devices import VirtualSlice
from pathways.compiler.passes.base import Session
from pathways.compiler.placement.binding import Binding
from pathways.compiler.placement.default import default_topology, kind_of_made
from pathways.dialect.activities import Activity
from pathways.dialect.diagnostics import Diagnostic, PathwaysError
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.jax_api import transfer_guard
from pathways.dialect.plan.nouns import Plan
from pathways.dialect.platforms import platform_named
from pathways.dialect.topology import Island, Topology
from pathways.dialect.user_line import caller
from pathways.runtime import interrupts
from pathways.runtime.client.controller import Controller
from pathways.runtime.client.loaded_plan import LoadedPlan
from pathways.runtime.client.remote.attached import Attached
from pathways.runtime.client.remote.host_endpoints import register_client
from pathways.runtime.client.remote.hosts import HostedIslands
from pathways.runtime.client.store import Store
from pathways.runtime.control.scheduling import STRIDE, SchedulingPolicy
from pathways.runtime.control.scheduling.find_policy import find_scheduling_policy
from pathways.runtime.errors import Forked
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.devices.analyze import XlaAnalyzer
from pathways.runtime.host.devices.islands import Machine, PhysicalIsland, host_islands
from pathways.runtime.host.run.poison import Poison
from pathways.runtime.launch.reach import ADDRESS, chosen_address, chosen_keys, connect_to, connect_to_host
from pathways.runtime.status import Status, read_status, status_of
from pathways.runtime.wire.addresses import read_address
from pathways.runtime.wire.connection import Connection
from pathways.runtime.wire.encoding import decode
from pathways.runtime.wire.ids import first_id
from pathways.runtime.wire.loop import Loop


@dataclass
class Process:
    """A controller and its machine: the devices of this process, or hosts in other processes."""

    platform: str
    controller: Controller
    islands: dict[int, tuple[Island, Binding]] = field(default_factory=dict[int, tuple[Island, Binding]])
    number: int = field(default_factory=itertools.count(1).__next__)
    """Unique among the `Process` objects."""
    _bindings: dict[int, Binding] = field(default_factory=dict[int, Binding])
    """Bindings of slices that were placed on the islands of a cluster, by slice number."""
    _made: int = 0
    _noted: set[str | None] = field(default_factory=set[str | None])

    def session(
        self, program: ProgramIR | None, slices: Mapping[str, VirtualSlice], topology: Topology | None
    ) -> Session:
        """Creates the session for placement, on the given topology or one that keeps bindings of earlier programs.

        `program` may be None if `slices` is not empty, and no slice is pinned or near another.
        """
        if topology is not None:
            return Session(topology)
        if (there := self.cluster_topology) is not None:
            return Session(there, self._bound(slices, there))
        return Session(there) if (there := self.known_topology) is not None else self._made_session(program, slices)

    @property
    def lowering_platform(self) -> str:
        """JAX's lowering name of its platform: `cuda` or `rocm` for `gpu`."""
        return pjrt.lowering_platform(self.platform)

    @property
    def known_topology(self) -> Topology | None:
        """The islands on which programs are placed. None if islands are made for each program."""
        if (there := self.cluster_topology) is not None:
            return there
        return host_topology() if platform_named(self.platform).made_at_will is None else None

    @property
    def cluster_topology(self) -> Topology | None:
        """The islands of a cluster on which programs can be placed now. None if islands are made for programs.

        If all are lost, returns all of them, so that calls raise the cause.
        """
        if not isinstance(self.machine, HostedIslands):
            return None
        lost, all_of_them = self.lost_islands(), self.machine.topology
        there = tuple(i for i in all_of_them.islands if i.name not in lost)
        return replace(all_of_them, islands=there or all_of_them.islands)

    def _bound(self, slices: Mapping[str, VirtualSlice], topology: Topology) -> dict[str, Binding]:
        """Returns the bindings of slices that an earlier program has placed, because their arrays are there.

        If slices without a common program would share devices, only the first keeps its binding.
        """
        sizes, taken = {i.name: i.size for i in topology.islands}, set[tuple[str, int]]()
        found: dict[str, Binding] = {}
        for symbol, virtual in slices.items():
            bound = self._bindings.get(virtual.number)
            devices = {(bound.island, d) for d in bound.devices} if bound is not None else set[tuple[str, int]]()
            fits = bound is not None and max(bound.devices) < sizes.get(bound.island, 0)
            if bound is not None and fits and taken.isdisjoint(devices):
                found[symbol] = bound
                taken |= devices
        return found

    def keep_bindings(self, plan: Plan, slices: Mapping[str, VirtualSlice]) -> None:
        """Records the bindings of a plan's slices for later programs."""
        for one in plan.slices:
            if one.name in slices and isinstance(self.machine, HostedIslands):
                self._bindings[slices[one.name].number] = Binding(one.island, one.devices)

    def _made_session(self, program: ProgramIR | None, slices: Mapping[str, VirtualSlice]) -> Session:
        """Creates a session with one island for each slice, the same island in every program of the process.

        A program with pinned or `near` slices gets its own islands: arrays move there when they are used.
        """
        if program is not None and (not slices or any(op.pin or op.near for op in program.slices.values())):
            return Session(default_topology(program))
        bindings: dict[str, Binding] = {}
        islands: dict[str, Island] = {}
        for symbol, virtual in slices.items():
            if virtual.number in self.islands and self.islands[virtual.number][0].name in self.lost_islands():
                del self.islands[virtual.number]
            if virtual.number not in self.islands:
                count = len(virtual.devices)
                island = Island(f"island{self._made}", devices=count, kind=kind_of_made(self.platform))
                self.islands[virtual.number] = island, Binding(island.name, tuple(range(count)))
                self._made += 1
            island, bindings[symbol] = self.islands[virtual.number]
            islands[island.name] = island
        return Session(Topology(tuple(islands.values())), bindings)

    def lost_islands(self) -> frozenset[str]:
        """Returns the names of islands that have lost a device or were removed. Nothing is placed there."""
        return self.machine.lost_islands

    def load(self, plan: Plan, path: str = "plan", *, sequential: bool = False) -> LoadedPlan:
        self._note_preferences(plan)
        ready, executables = plan.executables, self.controller.executables
        # The transfer guard is for arguments of calls. Constants of a plan are not arguments.
        with COMPILING, transfer_guard("allow"), Activity(f"loading {plan.name}"):
            executables.offer(ready)
            before = executables.compiled
            loaded = LoadedPlan(plan, self.controller, path, sequential=sequential)
        compiled = executables.compiled - before
        if ready and compiled:
            here = "for another machine, another version of jaxlib, or not signed by this user"
            print(f"note: stored executables of {path} are {here}; {compiled} compiled again", file=sys.stderr)
        return loaded

    def with_executables(self, plan: Plan) -> Plan:
        """Adds executables for this process's devices to a plan. Raises PWC0503 if the devices do not match."""
        self.controller.check_local("saving executables")
        with COMPILING, transfer_guard("allow"), self.controller.executables.recording() as used:
            LoadedPlan(plan, self.controller)
            return replace(plan, executables=self.controller.executables.serialized(used))

    @property
    def machine(self) -> Machine:
        return self.controller.machine

    @cached_property
    def local_machine(self) -> Machine:
        """The devices of this process itself, for work outside the cluster."""
        return self.machine if self.machine.is_local else Machine(self.platform)

    @property
    def store(self) -> Store:
        return self.controller.store

    def _note_preferences(self, plan: Plan) -> None:
        for wanted in dict.fromkeys(s.prefer for s in plan.slices):
            if wanted not in (None, self.platform) and wanted not in self._noted:
                self._noted.add(wanted)
                print(
                    f"note: no {wanted} devices here; {self.platform} devices are used in their place", file=sys.stderr
                )


def analyzer() -> XlaAnalyzer:
    """Returns an analyzer that asks XLA, for this process's platform, for the memory needs of executables."""
    return XlaAnalyzer(process().platform)


def host_topology() -> Topology:
    """Describes the devices of this machine as a topology."""
    islands: list[Island] = []
    for number, devices in enumerate(host_islands()):
        stats: dict[str, int] | None = devices[0].memory_stats()
        memory = stats.get("bytes_limit") if stats else None
        kind = str(devices[0].device_kind)
        islands.append(Island(f"island{number}", devices=len(devices), kind=kind, memory=memory))
    return Topology(tuple(islands))


COMPILING = threading.RLock()
"""Allows one thread at a time to trace, compile and load. Runs continue meanwhile."""

_lock = threading.Lock()


def _unlock() -> None:
    """Replaces the lock in a forked process, which does not have the thread that held the lock."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock)

_current: list[Process] = []


def process_policy() -> SchedulingPolicy:
    """Creates the scheduling policy named by PATHWAYS_POLICY, or the default. Raises PWC0104 for an unknown name."""
    return find_scheduling_policy(os.environ.get("PATHWAYS_POLICY", STRIDE))


def attach(address: str | None, name: str | None = None, keys: str | Path | None = None) -> Attached:
    """Joins a cluster as a client, at `address` or PATHWAYS_ADDRESS. A cluster on another machine needs keys.

    Raises PWC0918 if there is no cluster, PWC0913 if it cannot be reached, PWC0914 for invalid keys.
    """
    interrupts.install()
    where, folder = chosen_address(address), chosen_keys(keys)
    control = connect_to(where, folder)
    welcome = register_client(control, name or Path(sys.argv[0]).stem or "python", where)
    is_elsewhere = read_address(where) is not None  # then the Unix sockets of the hosts' machine are out of reach

    def connect(endpoints: str, host: str) -> Connection:
        return connect_to_host(endpoints, host, folder, elsewhere=is_elsewhere)

    loop = Loop()
    stream = control.hand_over(loop)
    machine = Attached(loop, where, stream, welcome, connect)
    stream.begin(
        lambda _, kind, payload: machine.deliver(decode(kind, payload)), lambda _, reason: machine.control_ended(reason)
    )
    loop.start()
    return machine


def attached_process(machine: Attached) -> Process:
    """Creates a `Process` that is a client of a cluster. The cluster's controller schedules runs and limits memory."""
    controller = Controller(machine, numbers=itertools.count(first_id(machine.client)))
    controller.store.notify(machine.hold)

    def forget(island: PhysicalIsland, cause: Diagnostic) -> None:
        for device in island.devices:
            controller.store.lose(device, Poison(cause))

    machine.on_lost = forget
    return Process(machine.platform, controller)


def process() -> Process:
    """Returns the current `Process`, created at first use. Raises PWC0520 in a forked child."""
    if _current and _current[-1].controller.forked:
        raise PathwaysError(Forked(where=caller()))
    with _lock:
        if not _current:
            _current.append(_first())
            interrupts.install()
            atexit.register(_current[0].controller.end)
        return _current[-1]


def _first() -> Process:
    """Creates the default `Process`: for the local devices, or for the cluster of PATHWAYS_ADDRESS."""
    if os.environ.get(ADDRESS):
        machine = attach(None)
        atexit.register(machine.close)  # called after the controller's end, which is registered later
        return attached_process(machine)
    platform = pjrt.default_platform()
    return Process(platform, Controller(Machine(platform), process_policy()))


def here() -> int:
    """Returns the number of the current `Process`: programs are compiled again for another one."""
    return _current[-1].number if _current else 0


def machines() -> list[int]:
    """Lists the numbers of all `Process`es that `inside_of` blocks use."""
    return [0, *(process.number for process in _current)]


@contextlib.contextmanager
def inside_of(inner: Process) -> Generator[None]:
    """Replaces this process's controller and machine by another, in all threads, until the block ends."""
    _current.append(inner)
    try:
        yield
    finally:
        del _current[max(i for i, one in enumerate(_current) if one is inner)]


def status() -> Status:
    """Returns the current status: islands, the programs that wait and run there, and bytes by client.

    On a shared cluster it is the status of the cluster. Raises PWC0917 if its controller is lost.
    """
    machine = process().machine
    return read_status(machine.ask("status")) if isinstance(machine, Attached) else status_of(process().controller)


def why_held_up() -> str:
    """Returns the reason why this process's runs wait in the queues of a shared cluster; empty if none waits."""
    machine = process().machine
    if not isinstance(machine, Attached):
        return ""
    try:
        answer = machine.ask("status")
    except PathwaysError:  # the cluster is lost: the waiting call raises that
        return ""
    return next((str(client["why"]) for client in answer["clients"] if client["number"] == machine.client), "")


show_progress(why_held_up)
