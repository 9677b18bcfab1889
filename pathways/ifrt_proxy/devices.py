"""Describes the devices that a proxy serves: the devices of one island, numbered from 0. Sessions place arrays and
programs with it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pathways.api.process import Process
from pathways.compiler.placement import Binding, Placement
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.sharding import MeshSpec, Sharding
from pathways.dialect.topology import Island, Topology
from pathways.ifrt_proxy.errors import UnknownHandle
from pathways.ifrt_proxy.protocol import MESSAGES
from pathways.ifrt_proxy.shardings import DEVICE_MEMORY, Location
from pathways.runtime.client.new_buffers import BufferPlace

RUNTIME = "pathways"


@dataclass(frozen=True)
class ServedDevices:
    """The devices of one island of a process or a cluster. The id of a device is its position in the island."""

    process: Process
    topology: Topology
    island: Island
    count: int
    """Number of devices that clients see: the first ones of the island."""

    def place(self, location: Location) -> BufferPlace:
        """Returns where an array with this location is stored. Raises PWC0941 for an unknown device."""
        machine = self.process.machine
        bound = machine.bound([self.island], "the proxy")[self.island.name]
        for device in location.devices:
            self.check(device)
        ids = location.in_mesh_order
        spec = MeshSpec(location.sharding.mesh.axes, ids)
        return BufferPlace(Sharding(spec, location.sharding.dims), bound.at(ids)).keep(machine)

    def check(self, device: int) -> None:
        if not 0 <= device < self.count:
            raise PathwaysError(UnknownHandle(what="device", number=device))

    def pinned(self, devices: Sequence[int]) -> Any:
        """Returns a placement policy that binds the only slice of a program to these devices."""

        def place(graph: Any, topology: Topology) -> Placement:
            symbols = [request.symbol for request in graph.graph["slices"]]
            bindings = {symbol: Binding(self.island.name, tuple(devices)) for symbol in symbols}
            return Placement(bindings, dict.fromkeys(symbols, "as the client states"))

        return place

    def describe(self, session: int) -> Any:
        """Returns the answer to an InitRequest."""
        # JAX calls devices of `cuda` and `rocm` gpu, and lowers for the name that the server states.
        platform = self.process.lowering_platform
        kind = self.island.kind or platform
        answer = MESSAGES["InitResponse"](
            session_id=session,
            platform_name=platform,
            platform_version=RUNTIME,
            platform_id=1,
            runtime_type=RUNTIME,
        )
        answer.client_attributes.attributes["serialize_with_sdy"].bool_value = True  # jax.export reads it
        for number in range(self.count):
            name = f"{self.island.name}:{number}"
            answer.all_devices.add(
                id=number,
                local_device_id=number,
                local_hardware_id=number,
                platform_name=platform,
                device_kind=kind,
                default_memory_id=number,
                memory_ids=[number],
                debug_string=name,
                to_string=name,
            )
            answer.memories.add(
                id=number, memory_space_kind=DEVICE_MEMORY, device_ids=[number], debug_string=name, to_string=name
            )
            answer.primary_device_ids.append(number)
            answer.addressable_device_ids.append(number)
        return answer
