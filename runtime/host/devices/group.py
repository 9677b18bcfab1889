# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Creates CPU devices that several processes share, so that one computation can run on the devices of all of them. It
wraps jaxlib's distributed runtime. `islands.py` calls it if an island has several hosts. The module is also the program
of the coordination service, which `launch/group_service.py` starts.

JAX runs the coordination service in one process of the group and aborts the other processes when that one ends. Here
the service is a separate process, `python -m pathways.runtime.host.devices.group ADDRESS COUNT`. It ends when its
standard input closes, that is with the process that started it. It must not import JAX, which would take seconds.

* `get_distributed_runtime_service`, `get_distributed_runtime_client`: the service and its clients.
* `make_gloo_tcp_collectives`: collectives of the CPU devices. Without a host name it would listen on all addresses.
* `make_cpu_client`, with `node_id` and `num_nodes`: devices of all processes, of which each process runs its own.
"""

import importlib
import os
import signal
import sys
from dataclasses import dataclass
from typing import Any

from pathways.runtime.host.devices.freed_memory import return_freed_memory

_HEARTBEAT_TIMEOUT_S = 86400
"""After this time JAX would end a process whose partners are lost. The controller ends the process long before."""
_joined: list[Any] = []
"""The clients or the service of this process, kept alive until the process ends."""


@dataclass(frozen=True)
class ProcessGroup:
    """Processes that share devices: the service's address, the number of processes, and the rank of this one."""

    address: str
    count: int
    rank: int
    patience: int
    """Seconds within which all processes must connect."""
    ip: str
    """The address at which the other processes reach this one."""


def make_group_devices(count: int, group: ProcessGroup) -> list[list[Any]]:
    """Creates `count` CPU devices in each process of a group; returns the devices of all processes, by rank.

    Every process of the group must call it. Devices of other processes can be named and take part in collectives.
    Raises RuntimeError if a process does not connect.
    """
    jaxlib: Any = importlib.import_module("jaxlib._jax")
    client = jaxlib.get_distributed_runtime_client(
        group.address,
        group.rank,
        init_timeout=group.patience,
        heartbeat_timeout=_HEARTBEAT_TIMEOUT_S,
        shutdown_on_destruction=False,
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
    listed = jaxlib.DeviceList(tuple(made.devices()))  # iterated before threads exist; see pjrt.py
    for device in sorted(listed, key=lambda d: d.id):
        devices[device.process_index].append(device)
    return devices


def serve_group() -> None:
    """Runs the coordination service of a group until standard input closes."""
    address, count = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's Ctrl-C is for the controller
    jaxlib: Any = importlib.import_module("jaxlib._jax")
    _joined.append(
        jaxlib.get_distributed_runtime_service(
            address, int(count), heartbeat_timeout=_HEARTBEAT_TIMEOUT_S, shutdown_timeout=1
        )
    )
    sys.stdin.buffer.read()
    os._exit(0)  # a normal exit would wait for the processes of the group


if __name__ == "__main__":
    serve_group()
