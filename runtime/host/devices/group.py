# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Devices that several processes have together, and where those meet: the compat module of jaxlib's process groups.

JAX keeps the service where processes meet in one of them, and aborts the others when that one ends. Here it is a
process of its own, `python -m pathways.runtime.host.devices.group ADDRESS COUNT`, which ends when its input does: with
the process that started it. It imports nothing of JAX, which would take seconds.

* `get_distributed_runtime_service`, `get_distributed_runtime_client`: where processes of a group find each other.
* `make_gloo_tcp_collectives`: what their CPU devices reduce by; without a host name it would listen on all addresses.
* `make_cpu_client`, with `node_id` and `num_nodes`: devices of all of them, of which each runs its own.
"""

import importlib
import os
import signal
import sys
from dataclasses import dataclass
from typing import Any

from pathways.runtime.host.devices.freed_memory import return_freed_memory

_NEVER = 86400
"""Seconds after which JAX would end a process whose partners are gone; a controller does it long before."""
_joined: list[Any] = []
"""What joins this process to its partners, for as long as it lives."""


@dataclass(frozen=True)
class ProcessGroup:
    """Processes that have devices together: where they meet, how many there are, and which one this is."""

    address: str
    count: int
    rank: int
    patience: int
    """Seconds in which all must come."""
    ip: str
    """Where the others reach this one."""


def make_group_devices(count: int, group: ProcessGroup) -> list[list[Any]]:
    """Makes so many CPU devices in each process of a group, all of which call this: gives those of each.

    Devices of others can be named, and take part in collectives. Raises RuntimeError where one does not come.
    """
    jaxlib: Any = importlib.import_module("jaxlib._jax")
    client = jaxlib.get_distributed_runtime_client(
        group.address, group.rank, init_timeout=group.patience, heartbeat_timeout=_NEVER, shutdown_on_destruction=False
    )
    client.connect()
    return_freed_memory()
    made = importlib.import_module("jaxlib.xla_client").make_cpu_client(
        distributed_client=client,
        node_id=group.rank,
        num_nodes=group.count,
        collectives=jaxlib.make_gloo_tcp_collectives(distributed_client=client, hostname=group.ip),
        num_devices=count,
    )
    _joined.append(client)
    devices: list[list[Any]] = [[] for _ in range(group.count)]
    listed = jaxlib.DeviceList(tuple(made.devices()))  # iterated before there are threads: why says pjrt.py
    for device in sorted(listed, key=lambda d: d.id):
        devices[device.process_index].append(device)
    return devices


def serve_group() -> None:
    """Serves a group until the input ends."""
    address, count = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's Ctrl-C is for the controller
    jaxlib: Any = importlib.import_module("jaxlib._jax")
    _joined.append(
        jaxlib.get_distributed_runtime_service(address, int(count), heartbeat_timeout=_NEVER, shutdown_timeout=1)
    )
    sys.stdin.buffer.read()
    os._exit(0)  # the service would wait for its processes


if __name__ == "__main__":
    serve_group()
