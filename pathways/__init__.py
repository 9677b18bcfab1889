"""Pathways: JAX programs over virtual devices, compiled into one plan for many islands of accelerators.

import pathways as pw
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pathways.compiler.collector import collector_paused
from pathways.dialect.versions import VERSION as __version__

if TYPE_CHECKING:
    from pathways.api import testing as testing
    from pathways.api.array import Array as Array
    from pathways.api.client import Client as Client
    from pathways.api.cluster import cluster as cluster
    from pathways.api.cluster import connect as connect
    from pathways.api.islands import add_island as add_island
    from pathways.api.islands import islands as islands
    from pathways.api.islands import remove_island as remove_island
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
    from pathways.dialect.topology import Island as Island
    from pathways.dialect.topology import Topology as Topology

_WHERE = {
    "Array": "pathways.api.array",
    "Client": "pathways.api.client",
    "Compiled": "pathways.api.stages",
    "Island": "pathways.dialect.topology",
    "Lowered": "pathways.api.stages",
    "PathwaysError": "pathways.dialect.diagnostics",
    "Program": "pathways.api.program",
    "Topology": "pathways.dialect.topology",
    "VirtualDevice": "pathways.compiler.frontends.jax.devices",
    "VirtualDeviceSet": "pathways.compiler.frontends.jax.devices",
    "VirtualSlice": "pathways.compiler.frontends.jax.devices",
    "add_island": "pathways.api.islands",
    "cluster": "pathways.api.cluster",
    "connect": "pathways.api.cluster",
    "islands": "pathways.api.islands",
    "load": "pathways.api.stages",
    "make_virtual_device_set": "pathways.compiler.frontends.jax.devices",
    "program": "pathways.api.program",
    "remove_island": "pathways.api.islands",
    "restore": "pathways.api.snapshots",
    "save": "pathways.api.snapshots",
    "status": "pathways.api.process",
    "testing": "pathways.api.testing",
    "trace": "pathways.api.tracing",
}
"""The modules of all names. They are imported together when one is first used: a process without devices needs none."""


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with collector_paused():  # what JAX has the collector call drops a Ctrl-C that comes meanwhile
        modules = {one: import_module(module) for one, module in _WHERE.items()}
    globals().update({one: getattr(modules[one], one, modules[one]) for one in _WHERE})
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})


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
    "add_island",
    "cluster",
    "connect",
    "islands",
    "load",
    "make_virtual_device_set",
    "program",
    "remove_island",
    "restore",
    "save",
    "status",
    "testing",
    "trace",
]
