"""The objects that a process shares: its machine, the store of buffers, compiled code, and bindings of slices."""

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
from pathways.runtime.client.remote.hosts import HostedIslands
from pathways.runtime.client.remote.places import come_in
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
    """A controller and its machine: the devices of this process, or hosts in processes of their own."""

    platform: str
    controller: Controller
    islands: dict[int, tuple[Island, Binding]] = field(default_factory=dict[int, tuple[Island, Binding]])
    number: int = field(default_factory=itertools.count(1).__next__)
    """No other has it."""
    _bindings: dict[int, Binding] = field(default_factory=dict[int, Binding])
    """By slice, where it was placed among the islands of a cluster."""
    _made: int = 0
    _noted: set[str | None] = field(default_factory=set[str | None])

    def session(self, program: ProgramIR, slices: Mapping[str, VirtualSlice], topology: Topology | None) -> Session:
        """Makes the session for placement, on the given topology or one that keeps the bindings of earlier programs."""
        if topology is not None:
            return Session(topology)
        if (there := self.cluster_topology) is not None:
            return Session(there, self._bound(slices, there))
        return Session(there) if (there := self.known_topology) is not None else self._made_session(program, slices)

    @property
    def known_topology(self) -> Topology | None:
        """The islands that programs are placed on; None where they are made for each program."""
        if (there := self.cluster_topology) is not None:
            return there
        return host_topology() if platform_named(self.platform).made_at_will is None else None

    @property
    def cluster_topology(self) -> Topology | None:
        """The islands of a cluster where programs can be placed now; None where islands are made for programs.

        Where all are lost, all of them: calls will say why.
        """
        if not isinstance(self.machine, HostedIslands):
            return None
        lost, all_of_them = self.lost_islands(), self.machine.topology
        there = tuple(i for i in all_of_them.islands if i.name not in lost)
        return replace(all_of_them, islands=there or all_of_them.islands)

    def _bound(self, slices: Mapping[str, VirtualSlice], topology: Topology) -> dict[str, Binding]:
        """Where slices are that an earlier program has placed: their arrays lie there.

        Of slices that no program had together, and that would share devices, the first stays.
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
        """Notes where a plan has placed slices, for the programs that come."""
        for one in plan.slices:
            if one.name in slices and isinstance(self.machine, HostedIslands):
                self._bindings[slices[one.name].number] = Binding(one.island, one.devices)

    def _made_session(self, program: ProgramIR, slices: Mapping[str, VirtualSlice]) -> Session:
        """Makes a session with one island a slice, the same for a slice in every program of the process.

        A program whose slices are pinned, or near each other, gets islands of its own: handles move there when used.
        """
        if any(op.pin or op.near for op in program.slices.values()):
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
        if not islands:
            return Session(default_topology(program))
        return Session(Topology(tuple(islands.values())), bindings)

    def lost_islands(self) -> frozenset[str]:
        """Names the islands that have lost a device, or were removed: nothing is placed there."""
        return self.machine.lost_islands

    def load(self, plan: Plan, path: str = "plan", *, sequential: bool = False) -> LoadedPlan:
        self._note_preferences(plan)
        ready, executables = plan.executables, self.controller.executables
        # Constants of a plan are no arguments of a call.
        with COMPILING, transfer_guard("allow"), Activity(f"loading {plan.name}"):
            executables.offer(ready)
            before = executables.compiled
            loaded = LoadedPlan(plan, self.controller, path, sequential=sequential)
        compiled = executables.compiled - before
        if ready and compiled:
            here = "for another machine, another version of jaxlib, or not signed by this user"
            print(f"note: ready executables of {path} are {here}; {compiled} compiled again", file=sys.stderr)
        return loaded

    def with_executables(self, plan: Plan) -> Plan:
        """Adds to a plan its code, compiled for this process's devices. Raises PWC0503 where it does not fit them."""
        self.controller.check_local("saving executables")
        with COMPILING, transfer_guard("allow"), self.controller.executables.recording() as used:
            LoadedPlan(plan, self.controller)
            return replace(plan, executables=self.controller.executables.serialized(used))

    @property
    def machine(self) -> Machine:
        return self.controller.machine

    @cached_property
    def local_machine(self) -> Machine:
        """The devices of this process itself, for what is run beside a cluster."""
        return self.machine if self.machine.is_local else Machine(self.platform)

    @property
    def store(self) -> Store:
        return self.controller.store

    def _note_preferences(self, plan: Plan) -> None:
        for wanted in dict.fromkeys(s.prefer for s in plan.slices):
            if wanted not in (None, self.platform) and wanted not in self._noted:
                self._noted.add(wanted)
                print(f"note: no {wanted} devices here, {self.platform} devices take their place", file=sys.stderr)


def analyzer() -> XlaAnalyzer:
    """Returns an analyzer that asks XLA, on this process's platform, how much memory executables need."""
    return XlaAnalyzer(process().platform)


def host_topology() -> Topology:
    """Describes the host's own devices as a topology."""
    islands: list[Island] = []
    for number, devices in enumerate(host_islands()):
        stats: dict[str, int] | None = devices[0].memory_stats()
        memory = stats.get("bytes_limit") if stats else None
        kind = str(devices[0].device_kind)
        islands.append(Island(f"island{number}", devices=len(devices), kind=kind, memory=memory))
    return Topology(tuple(islands))


COMPILING = threading.RLock()
"""One program is traced, compiled and loaded at a time; runs go on meanwhile."""

_lock = threading.Lock()


def _unlock() -> None:
    """Replaces the lock in a forked process: the thread that held it is not here."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock)

_current: list[Process] = []


def process_policy() -> SchedulingPolicy:
    """Makes the scheduling policy of PATHWAYS_POLICY, or the default. Raises PWC0104 for one that is none."""
    return find_scheduling_policy(os.environ.get("PATHWAYS_POLICY", STRIDE))


def attach(address: str | None, name: str | None = None, keys: str | Path | None = None) -> Attached:
    """Comes in to a cluster, by its address or that of PATHWAYS_ADDRESS, with keys where it is elsewhere.

    Raises PWC0918 where there is none, PWC0913 where it is not reached, PWC0914 for keys that are none.
    """
    interrupts.install()
    where, folder = chosen_address(address), chosen_keys(keys)
    control = connect_to(where, folder)
    welcome = come_in(control, name or Path(sys.argv[0]).stem or "python", where)
    is_elsewhere = read_address(where) is not None  # then no Unix socket of the hosts' machine is reached

    def connect(said: str, host: str) -> Connection:
        return connect_to_host(said, host, folder, elsewhere=is_elsewhere)

    loop = Loop()
    stream = control.hand_over(loop)
    machine = Attached(loop, where, stream, welcome, connect)
    stream.begin(
        lambda _, kind, payload: machine.hear(decode(kind, payload)), lambda _, reason: machine.control_ended(reason)
    )
    loop.start()
    return machine


def attached_process(machine: Attached) -> Process:
    """Makes a process that is a client of a cluster: its controller says whose turn it is, and who lacks memory."""
    controller = Controller(machine, numbers=itertools.count(first_id(machine.client)))
    controller.store.changed = machine.hold

    def forget(island: PhysicalIsland, cause: Diagnostic) -> None:
        for device in island.devices:
            controller.store.lose(device, Poison(cause))

    machine.on_lost = forget
    return Process(machine.platform, controller)


def process() -> Process:
    """Returns the one `Process`, made at first use. Raises PWC0520 in a child that was forked from it."""
    if _current and _current[-1].controller.forked:
        raise PathwaysError(Forked(where=caller()))
    with _lock:
        if not _current:
            _current.append(_first())
            interrupts.install()
            atexit.register(_current[0].controller.end)
        return _current[-1]


def _first() -> Process:
    """The process of who has chosen none: the devices that are here, or the cluster of PATHWAYS_ADDRESS."""
    if os.environ.get(ADDRESS):
        machine = attach(None)
        atexit.register(machine.close)  # behind the controller's end, which is registered later
        return attached_process(machine)
    platform = pjrt.default_platform()
    return Process(platform, Controller(Machine(platform), process_policy()))


def here() -> int:
    """Numbers what programs are compiled for at this moment: this process, or a cluster that it has started."""
    return _current[-1].number if _current else 0


@contextlib.contextmanager
def inside_of(inner: Process) -> Generator[None]:
    """Takes another controller and machine in place of this process's own, in all threads, until the block ends."""
    _current.append(inner)
    try:
        yield
    finally:
        del _current[max(i for i, one in enumerate(_current) if one is inner)]


def status() -> Status:
    """Returns the status at this moment: islands, which programs wait and run there, and bytes by client.

    On a cluster that others use, too, it is that of the cluster. Raises PWC0917 where its controller is gone.
    """
    machine = process().machine
    return read_status(machine.ask("status")) if isinstance(machine, Attached) else status_of(process().controller)


def why_held_up() -> str:
    """Says what runs of this process wait for in the lines of a shared cluster; empty where none does."""
    machine = process().machine
    if not isinstance(machine, Attached):
        return ""
    try:
        said = machine.ask("status")
    except PathwaysError:  # the cluster is gone: the call that waits says so
        return ""
    return next((str(client["why"]) for client in said["clients"] if client["number"] == machine.client), "")


show_progress(why_held_up)
