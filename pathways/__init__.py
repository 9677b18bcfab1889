"""Pathways: JAX programs over virtual devices, compiled into one plan for many islands of accelerators.

import pathways as pw
"""

from pathways.compiler.collector import collector_paused

with collector_paused():  # what JAX has the collector call drops a Ctrl-C that comes meanwhile
    from pathways.api import testing as testing
    from pathways.api.array import Array as Array
    from pathways.api.client import Client as Client
    from pathways.api.cluster import cluster as cluster
    from pathways.api.process import status as status
    from pathways.api.program import Program as Program
    from pathways.api.program import program as program
    from pathways.api.snapshots import restore as restore
    from pathways.api.snapshots import save as save
    from pathways.api.stages import Compiled as Compiled
    from pathways.api.stages import Lowered as Lowered
    from pathways.api.stages import load as load
    from pathways.api.tracing import trace as trace
    from pathways.compiler.frontends.jax.devices import VirtualDevice as VirtualDevice
    from pathways.compiler.frontends.jax.devices import VirtualDeviceSet as VirtualDeviceSet
    from pathways.compiler.frontends.jax.devices import VirtualSlice as VirtualSlice
    from pathways.compiler.frontends.jax.devices import make_virtual_device_set as make_virtual_device_set
    from pathways.dialect.diagnostics import PathwaysError as PathwaysError
    from pathways.dialect.plan.plan_file import VERSION as __version__
    from pathways.dialect.topology import Island as Island
    from pathways.dialect.topology import Topology as Topology

__all__ = [
    "Array",
    "Client",
    "Compiled",
    "Island",
    "Lowered",
    "PathwaysError",
    "Program",
    "Topology",
    "VirtualDevice",
    "VirtualDeviceSet",
    "VirtualSlice",
    "__version__",
    "cluster",
    "load",
    "make_virtual_device_set",
    "program",
    "restore",
    "save",
    "status",
    "testing",
    "trace",
]
