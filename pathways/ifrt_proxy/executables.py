"""Compiles the modules of a client into plans of one call, and runs them. The functions that answer requests call it.

A plan is compiled once for equal modules on the same devices, whichever session sends them. Each execution is a run
like any other: the scheduler orders it, and its results are futures.
"""

import hashlib
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from weakref import WeakValueDictionary

from pathways.api.process import COMPILING
from pathways.api.stages import Compiled, Lowered
from pathways.compiler.frontends.jax.devices import VirtualSlice
from pathways.compiler.frontends.jax.emit import Emitted
from pathways.compiler.frontends.jax.trace import Traced
from pathways.compiler.frontends.stablehlo.meshes import OnMesh
from pathways.compiler.frontends.stablehlo.read import read_stablehlo
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.dtypes import ArrayType
from pathways.dialect.jax_api import tree_util
from pathways.dialect.plan.nouns import Plan, Port
from pathways.dialect.sharding import MeshSpec, Sharding
from pathways.ifrt_proxy.arrays import ArrayMaker, ClientArray, StoredArray
from pathways.ifrt_proxy.devices import ServedDevices
from pathways.ifrt_proxy.errors import RequestRefused
from pathways.ifrt_proxy.protocol import MESSAGES
from pathways.ifrt_proxy.shardings import Location

MAX_UNUSED = 256
"""Number of executables that are kept although no session has loaded them."""
PROGRAM, OPTIONS = "xla::ifrt::XlaProgram", "xla::ifrt::XlaCompileOptions"
_OTHERS = {"xla::ifrt::CustomCallProgram": "jax.experimental.colocated_python"}
"""The features of JAX that send other types of programs. Such a program would be compiled in `Executables`."""


@dataclass(frozen=True, eq=False)
class Executable:
    """A compiled module: its plan, the devices in the order of its assignment, and where arguments and results are."""

    name: str
    compiled: Compiled
    devices: tuple[int, ...]
    fingerprint: bytes
    donated: tuple[int, ...]
    ins: tuple[OnMesh | None, ...]
    outs: tuple[OnMesh | None, ...]
    """The shardings that the client has stated."""

    @cached_property
    def parameters(self) -> list[tuple[ArrayType, Location]]:
        return self._found(self.compiled.plan.inputs, self.ins)

    @cached_property
    def results(self) -> list[tuple[ArrayType, Location]]:
        return self._found(self.compiled.plan.results, self.outs)

    def _found(self, ports: Sequence[Port], stated: Sequence[OnMesh | None]) -> list[tuple[ArrayType, Location]]:
        """Finds where arrays are. JAX's client refuses another sharding than it has stated, also of empty arrays."""
        found: list[tuple[ArrayType, Location]] = []
        for port, sharding in zip(ports, stated, strict=True):
            if sharding is not None and 0 in port.type.shape:
                location = Location(self.devices, Sharding(sharding.mesh, sharding.dims))
            else:
                location = location_of(self.compiled.plan, port, self.devices)
            found.append((port.type, location))
        return found

    def without_result(self, donors: Sequence[int]) -> frozenset[int]:
        """Returns the donated arguments that no result can overwrite. JAX keeps these, which shows in `is_deleted`.

        As in XLA, an argument and a result match if they have equally many bytes on each device.
        """
        sizes = [_shard_bytes(*one) for one in self.results]
        unused: set[int] = set()
        for number in sorted(self.donated, key=lambda n: n in donors):  # those for a certain result first
            if (size := _shard_bytes(*self.parameters[number])) in sizes:
                sizes.remove(size)
            elif number in donors:
                unused.add(number)
        return frozenset(unused)

    def run(self, maker: ArrayMaker, arguments: Sequence[ClientArray], kept: frozenset[int]) -> list[StoredArray]:
        """Enqueues one run; returns its results as futures. Arguments numbered in `kept` are not overwritten.

        Raises the errors of a call of a program, and those of failed arguments.
        """
        given = [maker.stored(array) for array in arguments]
        shared = {i: given[i].share() for i in kept if i < len(given)}
        try:
            arrays = self.compiled.run_flat([shared.get(i, array) for i, array in enumerate(given)])
        finally:
            for array in shared.values():
                array.drop()
        return [StoredArray(a.handle, *found) for a, found in zip(arrays, self.results, strict=True)]


def _shard_bytes(type_: ArrayType, location: Location) -> int:
    return type_.shard_bytes(location.sharding.shard_shape(type_.shape))


def location_of(plan: Plan, port: Port, devices: tuple[int, ...]) -> Location:
    """Returns the location of an argument or result; an argument that the plan does not read may be anywhere."""
    if port.slot < 0:
        spec = MeshSpec((("devices", len(devices)),), tuple(range(len(devices))))
        return Location(devices, Sharding(spec, ((),) * len(port.type.shape)))
    layout = plan.stream(port.island).kind_of[port.slot].layout
    mesh = plan.meshes[layout.mesh]
    positions = tuple(devices.index(d) for d in mesh.devices)
    return Location(devices, Sharding(MeshSpec(mesh.spec.axes, positions), layout.dims))


@dataclass
class Executables:
    """The executables of all sessions of a server, by content."""

    devices: ServedDevices
    _known: "WeakValueDictionary[tuple[bytes, tuple[int, ...]], Executable]" = field(
        default_factory=lambda: WeakValueDictionary[tuple[bytes, tuple[int, ...]], Executable]()
    )
    _recent: deque[Executable] = field(default_factory=lambda: deque[Executable](maxlen=MAX_UNUSED))
    """Keeps executables that no session has loaded any more: a script that starts again compiles nothing."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def compile(self, request: Any) -> Executable:
        """Compiles the module of a CompileRequest. Raises PWC0940 for programs of another type, and compile errors."""
        program, options = request.program, request.compile_options
        if program.type_name != PROGRAM or options.type_name != OPTIONS:
            have, rule = f"{program.type_name} with {options.type_name}", f"{PROGRAM} with {OPTIONS}"
            raise PathwaysError(
                RequestRefused(what=_OTHERS.get(program.type_name, "this program"), have_=have, rule=rule)
            )
        if request.host_callbacks:
            have, rule = f"{len(request.host_callbacks)} host callbacks", "functions without host callbacks"
            raise PathwaysError(RequestRefused(what="host callbacks of clients", have_=have, rule=rule))
        ids = self._assigned(MESSAGES["XlaCompileOptionsProto"].FromString(options.data))
        key = hashlib.sha256(program.data).digest(), ids
        with self._lock:
            found = self._known.get(key)
            if found is None:
                found = self._known[key] = self._compile(program.data, *key)
                self._recent.append(found)
            return found

    def _assigned(self, options: Any) -> tuple[int, ...]:
        assigned = options.compile_options.executable_build_options.device_assignment
        ids = tuple(int(of.replica_device_ids[0]) for of in assigned.computation_devices if of.replica_device_ids)
        if any(len(of.replica_device_ids) != 1 for of in assigned.computation_devices):
            have, rule = f"{assigned.replica_count} replicas", "one replica, partitioned over its devices"
            raise PathwaysError(RequestRefused(what="replicas", have_=have, rule=rule))
        for device in ids:
            self.devices.check(device)
        if len(set(ids)) != len(ids):
            raise ValueError(f"a program on the devices {ids}")
        return ids or (0,)

    def _compile(
        self, artifact: bytes, fingerprint: bytes, ids: tuple[int, ...], kept: frozenset[int] = frozenset()
    ) -> Executable:
        """Compiles a module. Arguments numbered in `kept` are not overwritten."""
        with COMPILING:
            imported = read_stablehlo(artifact, self.devices.process.platform, kept)
            if imported.devices != len(ids):
                have, rule = f"{len(ids)} devices", f"the {imported.devices} devices that its module states"
                raise PathwaysError(RequestRefused(what="a program on other devices", have_=have, rule=rule))
            built = imported.built
            slices = {symbol: VirtualSlice(spec.devices) for symbol, spec in built.slices.items()}
            in_tree, out_tree = (
                tree_util.tree_structure((0,) * n) for n in (len(built.program.arguments), len(imported.outs))
            )
            emitted = Emitted(built.program, built.constants, slices)
            lowered = Lowered(Traced(lambda: emitted, out_tree, {}), in_tree, imported.name)
            compiled = lowered.compile(self.devices.topology, placement=self.devices.pinned(ids))
        stated = imported.donated, imported.ins, imported.outs
        found = Executable(imported.name, compiled, ids, fingerprint, *stated)
        unused: frozenset[int] = frozenset() if kept else found.without_result(imported.donors)
        return self._compile(artifact, fingerprint, ids, unused) if unused else found
