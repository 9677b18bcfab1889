"""Runs loaded plans on hosts in other processes. A run is one message to each host and one back, however large the plan
is. `engine.py` makes one for each loaded plan.

No array passes through it, except arguments from this process.
"""

import secrets
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pathways.dialect.diagnostic_json import write_diagnostic
from pathways.dialect.diagnostics import Diagnostic, PathwaysError, Where
from pathways.dialect.dtypes import ArrayType
from pathways.dialect.host_callbacks import find
from pathways.dialect.plan.inbound_values import PREFETCH
from pathways.dialect.plan.nouns import Layout, Plan
from pathways.dialect.plan.part import bytes_between, shared_branches
from pathways.dialect.ranks import RankTable
from pathways.runtime.client.remote.hosts import Hosts, RemoteDevice, RunParcel, StartedRun, ask_all
from pathways.runtime.client.remote.remote_island import RemoteIsland
from pathways.runtime.client.remote_array import RemoteArray, RemoteRun
from pathways.runtime.control.scheduling import Request
from pathways.runtime.errors import UnknownCallback
from pathways.runtime.host.devices.islands import PhysicalIsland
from pathways.runtime.host.devices.layouts import Side, Sides
from pathways.runtime.host.load.callback_launches import CallbacksOfOneLaunch
from pathways.runtime.host.load.costs import IslandCost, read_costs
from pathways.runtime.host.load.steps import offsets_of
from pathways.runtime.host.observe.numbers import NumberError, Numbers
from pathways.runtime.host.run.fallible import Awaited
from pathways.runtime.host.run.frame import Frame, Step
from pathways.runtime.host.run.poison import Poison
from pathways.runtime.host.run.runs_in_flight import Launch
from pathways.runtime.interrupts import uninterrupted
from pathways.runtime.threads import ThreadPool
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.errors import DifferentParts, NotOverProcesses
from pathways.runtime.wire.ids import hash_of_label

MAX_CARRIED_ARGUMENTS = 1 << 9
"""Maximum number of arguments that are sent together with a run."""


class RemoteSides(Sides):
    """Layouts on remote devices, for which JAX in this process has no objects."""

    def _real(self, layout: Layout) -> Any:
        return None


@dataclass(eq=False)
class _Share:
    """The inputs and results of one host: input slots (-1: an argument that is not read), and numbers of results.

    `host` has loaded the plan. If the host is lost, its replacement loads the plan again.
    """

    name: str
    """Name of the host."""
    inputs: Sequence[int]
    results: Sequence[tuple[int, int]]
    host: RemoteIsland | None = None


class RemoteEngine:
    """A plan loaded on hosts. Raises PWC0912 for operations that hosts do not support, and any error of a host."""

    constants: Sequence[tuple[int, Any]] = ()
    times_scheduled: float = 1.0
    only_step: Step | None = None
    only_callbacks: CallbacksOfOneLaunch | None = None
    launches: Sequence[Launch] = ()
    awaits: bool = False
    is_quick: bool = False
    pauses: bool = False

    def __init__(
        self, plan: Plan, hosts: Hosts, islands: dict[str, PhysicalIsland], path: str, *, sequential: bool
    ) -> None:
        from pathways.dialect.plan.plan_file import write_plan  # at the first plan: it takes long to import

        _check(plan, hosts.ranks)
        self.plan = plan
        self.sides = RemoteSides(plan, islands)
        offsets = self.offsets = offsets_of(plan)
        self.types = {offsets[s.island] + i: (k.type, k.layout) for s in plan.streams for i, k in enumerate(s.kind_of)}
        self.size = len(self.types)
        self._hosts = hosts
        self._path, self._sequential, self._raw = path, sequential, write_plan(plan)
        branches = shared_branches(plan, hosts.host_of, hosts.ranks)
        self._branches = branches if branches or plan.bodies else None
        self.bytes_between = bytes_between(plan, PREFETCH, hosts.host_of, hosts.ranks)
        shares = {s.island: hosts.host_of(s.island) for s in plan.streams}
        self._shares = {name: self._share(name, [i for i in shares if shares[i] == name]) for name in shares.values()}
        self._spans_hosts = len(self._shares) > 1 or any(map(hosts.ranks.are_several, shares.values()))
        """Whether values may be sent between hosts. Such transfers use numbers that no other process can guess."""
        self._of_input = [shares[p.island] if p.island else "" for p in plan.inputs]
        returned = {(result.island, result.slot) for result in plan.results}
        self._returned = {n for n, port in enumerate(plan.inputs) if (port.island, port.slot) in returned}
        """Inputs that the plan also returns. Other messages may name such an array before its run reaches the host, so
        its values are sent at once."""
        self._results = len(plan.results)
        self._memory: dict[RemoteDevice, int] = {
            device: plan.stream(name).peak_bytes + self.bytes_between.get(name, 0)
            for name, island in islands.items()
            for device in island.devices
            if isinstance(device, RemoteDevice) and device.has_memory_limit
        }
        """Bytes that a run needs on each device with a memory limit."""
        self._loading = threading.Lock()
        """Ensures that only one thread loads the plan on a restarted host."""
        hosts.prepare(plan)
        with hosts.telling:  # a controller accepts plans only in the order of their numbers
            self._number = hosts.numbers.take()
            hosts.introduce(self._number, plan.name, self._raw, self._branches)
        weakref.finalize(self, _unload, hosts, list(self._shares), self._number)
        with ThreadPool(max(1, len(self._shares)), "pathways-load") as pool:
            list(pool.map(self._load, self._shares.values()))

    def _share(self, name: str, islands: Sequence[str]) -> _Share:
        plan, offsets = self.plan, self.offsets
        inputs = [offsets[p.island] + p.slot if p.slot >= 0 else -1 for p in plan.inputs if p.island in islands]
        results = [(n, offsets[p.island] + p.slot) for n, p in enumerate(plan.results) if p.island in islands]
        return _Share(name, inputs, results)

    def _load(self, share: _Share) -> RemoteIsland:
        """Returns the host of a share after loading the plan on it, if necessary. Raises any error of the host."""
        host = self._hosts.host(share.name)
        if host is not share.host:
            number, path, sequential, raw = self._number, self._path, self._sequential, self._raw
            called = {at: c.callbacks for at, c in enumerate(self.plan.computations) if c.callbacks}
            answers = host.ask_each(lambda request: m.LoadPlan(request, number, path, sequential, called, raw))
            _check_alike(self.plan, {n.name: a.value for n, a in zip(host.members, answers, strict=True)})
            self._hosts.report_loaded(host, number, [bytes(answer.blob) for answer in answers])
            share.host = host
        return host

    def _host(self, share: _Share) -> RemoteIsland:
        host = share.host
        if host is None or host.lost is not None:
            with self._loading:
                host = self._load(share)
        return host

    def prepare_put(self, number: int, type_: ArrayType, side: Side) -> "Callable[[np.ndarray[Any, Any]], RemoteArray]":
        return lambda array: self._put(number, array, type_)

    def _put(self, number: int, array: "np.ndarray[Any, Any]", type_: ArrayType) -> RemoteArray:
        """Creates an argument on the host that reads it. A small argument is sent together with its first run."""
        host, message = self._argument(number, array)
        is_carried = len(message.blob) <= self._hosts.max_carried_bytes and number not in self._returned
        if not is_carried:
            host.put(message)
        return RemoteArray(host, message.array, type_, carried=message if is_carried else None)

    def put_now(self, number: int, array: "np.ndarray[Any, Any]", type_: ArrayType) -> RemoteArray:
        """Sends an argument to the host that reads it, and waits until the host has received it."""
        host, message = self._argument(number, array, copies=False)
        host.put(message)
        host.flush()
        return RemoteArray(host, message.array, type_)

    def _argument(
        self, number: int, array: "np.ndarray[Any, Any]", *, copies: bool = True
    ) -> tuple[RemoteIsland, m.PutArray]:
        """Creates the message with an argument (by input number) for the host that reads it.

        Without `copies`, the array must not change until the host has received it.
        """
        host, dense = self._host(self._shares[self._of_input[number]]), np.ascontiguousarray(array)
        raw = dense.tobytes() if copies else dense.reshape(-1).view(np.uint8).data
        return host, m.PutArray(self._hosts.numbers.take(), self._number, number, raw)

    def read(self, number: int, folder: bytes, file: str, type_: ArrayType) -> RemoteArray:
        """Makes the host that reads an argument load it from a folder. Raises PWC0615, and any error of the host."""
        host = self._host(self._shares[self._of_input[number]])
        name = self._hosts.numbers.take()
        host.ask(lambda request: m.ReadArray(request, name, self._number, number, folder, file))
        return RemoteArray(host, name, type_)

    def put_constants(self) -> None:
        """Does nothing: restarted hosts load the plan with its constants."""

    def get_ready(self, client: str) -> None:
        """Waits until all hosts are connected, have loaded the plan, and have received most of their data."""
        hosts = [self._host(share) for share in self._shares.values()]
        for host in hosts:
            host.wait_for_room()
        self._hosts.get_ready(hosts, client)

    def enqueue(self, frame: Frame, run: Any, *, ahead: bool = False) -> Sequence[Awaited]:
        """Starts the run on all hosts, which wait for its callbacks. When it returns, the results have their ids."""
        if not self._shares:
            return ()  # the plan computes nothing
        wanted = next((o.wanted for o in run.observers if isinstance(o, Numbers)), 0)
        self.start(frame, run.flight.number, wanted, None if run.ticket is None else run.ticket.request)
        return ()

    def start(self, frame: Frame, number: int, wanted: int = 0, request: Request | None = None) -> None:
        """Starts the run with this number on all hosts, like `enqueue`.

        `wanted` selects values in results that are errors (client/debugging.py). Raises PWC0211 if a result has one.
        """
        first, transfers = (
            self._hosts.numbers.take(max(self._results, 1)),
            secrets.randbits(62) if self._spans_hosts else 0,
        )
        hosts = {share.name: self._host(share) for share in self._shares.values()}
        self._limit_carried(frame)
        for host in hosts.values():
            _flush(host)
        while any(host.lost is not None for host in hosts.values()):  # lost during a wait for another host
            hosts = {share.name: self._host(share) for share in self._shares.values()}
        has_loops = bool(self.plan.bodies)
        run = StartedRun(number, self._number, self._branches, has_loops, self._memory, request)
        self._start(hosts, frame, run, first, transfers, wanted)
        if wanted:
            self._raise_found(frame.tokens)

    def _limit_carried(self, frame: Frame) -> None:
        """Sends a run's arguments to their hosts at once if they are too large or too many to be sent with the run."""
        found = [value for value in frame.values if isinstance(value, RemoteArray) and value.carried is not None]
        size = sum(len(value.carried.blob) for value in found)
        if size > self._hosts.max_carried_bytes or len(found) > MAX_CARRIED_ARGUMENTS:
            for value in found:
                host = value.store
                assert isinstance(host, RemoteIsland)
                host.put(value.carried)
                value.carried = None

    @uninterrupted  # otherwise some hosts would wait for others that never receive the run
    def _start(
        self, hosts: Mapping[str, RemoteIsland], frame: Frame, run: StartedRun, first: int, transfers: int, wanted: int
    ) -> None:
        """Sends the run to all of its hosts."""
        values = frame.values
        label = 0 if run.request is None else hash_of_label(run.request.client)
        parcels: list[RunParcel] = []
        poisons: list[tuple[RemoteIsland, int]] = []
        for share in self._shares.values():
            host = hosts[share.name]
            bad = {
                s: write_diagnostic(cause)
                for s in share.inputs
                if s >= 0 and (cause := _cause(host, values[s])) is not None
            }
            names = {text: self._hosts.numbers.take() for text in dict.fromkeys(bad.values())}
            poison = {slot: names[text] for slot, text in bad.items()}
            before: list[m.Message] = [m.PutPoison(name, text) for text, name in names.items()]
            if sum(map(len, names)) > self._hosts.max_carried_bytes:  # too large to be sent with a run
                host.order(*before)
                before = []
            for slot in share.inputs:
                if slot >= 0 and slot not in bad and values[slot].carried is not None:
                    before.append(values[slot].carried)
                    values[slot].carried = None
            arguments = tuple([poison.get(s) or values[s].number if s >= 0 else -1 for s in share.inputs])
            message = m.RunPlan(self._number, run.number, transfers, first, arguments, wanted, label)
            parcels.append(RunParcel(host, before, message))
            poisons += [(host, name) for name in names.values()]
        parts = self._hosts.start(run, parcels)
        frame.tokens.extend(parts)
        for host, name in poisons:
            host.free(name)
        for share, started in zip(self._shares.values(), parts, strict=True):
            host = hosts[share.name]
            for number, slot in share.results:
                if values[slot] is None:
                    values[slot] = RemoteArray(host, first + number, self.types[slot][0], started, number)
                else:  # an argument that is returned, or a second name of a result
                    host.free(first + number)

    def _raise_found(self, runs: Sequence[RemoteRun]) -> None:
        """Waits for a run on all hosts. Raises PWC0211 for the first step whose results contain a `wanted` value."""
        for run in runs:
            run.block_until_ready()
        if found := [run.found for run in runs if run.found is not None]:
            step, error = min(found, key=lambda one: one[0])
            here = (r.where for r in self.plan.runs() if r.step == step and _is_at(r.where, error.where))
            raise NumberError(replace(error, where=next(here, error.where)))

    def costs(self) -> dict[str, IslandCost]:
        """Returns the costs that XLA counts, by island. Raises PWC0910 if a host is lost and not replaced."""
        hosts = {h.name: h for share in self._shares.values() for h in self._host(share).members}
        found: dict[str, IslandCost] = {}
        for name, answer in ask_all(hosts, lambda _, n: m.CountCosts(n, self._number)).items():
            for island, cost in read_costs(answer.value, name).items():
                found[island] = cost if island not in found else found[island].with_part(cost)
        return found


def _flush(host: RemoteIsland) -> None:
    """Waits until an island has received its arguments. Ignores a lost island, since its run will fail anyway."""
    try:
        host.flush()
    except PathwaysError:
        if host.lost is None:
            raise


def _cause(host: RemoteIsland, value: Any) -> Diagnostic | None:
    """Returns the error of an argument that is poison or was on a lost host, None for a valid argument."""
    if isinstance(value, Poison):
        return value.cause
    if (cause := value.failure()) is not None:
        return cause
    return None if value.store is host else value.store.lost


def _is_at(where: Where | None, named: Where | None) -> bool:
    """Whether a plan's source line matches a line that a host reported. Hosts do not know the file's folder."""
    return where is not None and named is not None and (where.file, where.line) == (named.file, named.line)


def _unload(hosts: Hosts, names: Sequence[str], number: int) -> None:
    for name in names:
        if (host := hosts.hosts.get(name)) is not None:
            host.unload(number)


def _check_alike(plan: Plan, digests: Mapping[str, str]) -> None:
    """Raises PWC0921 if the hosts of one island have loaded different partitions."""
    first = next(iter(digests))
    for name, digest in digests.items():
        if digest != digests[first]:
            raise PathwaysError(DifferentParts(program=plan.name, host=name, other=first))


def _check(plan: Plan, ranks: RankTable) -> None:
    """Raises PWC0510 for callbacks of another process, PWC0912 for operations that hosts do not support."""
    for calling in plan.runs():
        callbacks = plan.computations[calling.computation].callbacks
        if any(find(number) is None for number in callbacks):
            raise PathwaysError(UnknownCallback(computation=calling.name, where=calling.where))
        # If a callback failed on one of several hosts, the others would wait for it forever in collectives.
        if not callbacks or not ranks.are_several(plan.meshes[calling.mesh].island):
            continue
        island = plan.meshes[calling.mesh].island
        have = f"{calling.name} on {island}, which has {ranks.count(island)} hosts"
        rule = "an island with one host for computations with jax.debug.print, pure_callback or io_callback"
        raise PathwaysError(NotOverProcesses(what="a host callback", have_=have, rule=rule, where=calling.where))
