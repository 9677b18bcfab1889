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
    from pathways.api.found import Found as Found
    from pathways.api.islands import add_island as add_island
    from pathways.api.islands import islands as islands
    from pathways.api.islands import remove_island as remove_island
    from pathways.api.mpmd import from_mpmd as from_mpmd
    from pathways.api.mpmd import mpmd_backend as mpmd_backend
    from pathways.api.process import status as status
    from pathways.api.program import Program as Program
    from pathways.api.program import program as program
    from pathways.api.progress_display import quiet as quiet
    from pathways.api.search import search as search
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
    from pathways.compiler.frontends.jax.pipeline.check import check_microbatches as check_microbatches
    from pathways.compiler.frontends.jax.pipeline.mixing.semantics import BatchSemantics as BatchSemantics
    from pathways.compiler.frontends.jax.pipeline.pipeline import pipeline as pipeline
    from pathways.compiler.frontends.jax.pipeline.whole_batch import MicrobatchWarning as MicrobatchWarning
    from pathways.dialect.choice import SplitChoice as SplitChoice
    from pathways.dialect.diagnostics import PathwaysError as PathwaysError
    from pathways.dialect.topology import Island as Island
    from pathways.dialect.topology import Topology as Topology
    from pathways.ifrt_proxy.serving import Proxy as Proxy
    from pathways.ifrt_proxy.serving import proxy as proxy

_WHERE = {
    "Array": "pathways.api.array",
    "BatchSemantics": "pathways.compiler.frontends.jax.pipeline.mixing.semantics",
    "Client": "pathways.api.client",
    "Compiled": "pathways.api.stages",
    "Found": "pathways.api.found",
    "Island": "pathways.dialect.topology",
    "MicrobatchWarning": "pathways.compiler.frontends.jax.pipeline.whole_batch",
    "Lowered": "pathways.api.stages",
    "PathwaysError": "pathways.dialect.diagnostics",
    "Program": "pathways.api.program",
    "Proxy": "pathways.ifrt_proxy.serving",
    "SplitChoice": "pathways.dialect.choice",
    "Topology": "pathways.dialect.topology",
    "VirtualDevice": "pathways.compiler.frontends.jax.devices",
    "VirtualDeviceSet": "pathways.compiler.frontends.jax.devices",
    "VirtualSlice": "pathways.compiler.frontends.jax.devices",
    "add_island": "pathways.api.islands",
    "check_microbatches": "pathways.compiler.frontends.jax.pipeline.check",
    "cluster": "pathways.api.cluster",
    "connect": "pathways.api.cluster",
    "from_mpmd": "pathways.api.mpmd",
    "islands": "pathways.api.islands",
    "load": "pathways.api.stages",
    "mpmd_backend": "pathways.api.mpmd",
    "pipeline": "pathways.compiler.frontends.jax.pipeline.pipeline",
    "make_virtual_device_set": "pathways.compiler.frontends.jax.devices",
    "program": "pathways.api.program",
    "proxy": "pathways.ifrt_proxy.serving",
    "quiet": "pathways.api.progress_display",
    "remove_island": "pathways.api.islands",
    "restore": "pathways.api.snapshots",
    "save": "pathways.api.snapshots",
    "search": "pathways.api.search",
    "status": "pathways.api.process",
    "testing": "pathways.api.testing",
    "trace": "pathways.api.tracing",
}
"""The module of each public name. The first use of a name imports it."""


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with collector_paused():  # JAX's garbage-collector callback drops a Ctrl-C that arrives in it
        module = import_module(_WHERE[name])
    globals()[name] = found = getattr(module, name, module)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})


__all__ = [
    "Array",
    "Client",
    "Compiled",
    "Found",
    "Island",
    "Lowered",
    "PathwaysError",
    "Program",
    "Proxy",
    "SplitChoice",
    "Topology",
    "VirtualDevice",
    "VirtualDeviceSet",
    "VirtualSlice",
    "__version__",
    "add_island",
    "check_microbatches",
    "cluster",
    "connect",
    "islands",
    "load",
    "make_virtual_device_set",
    "pipeline",
    "program",
    "proxy",
    "quiet",
    "remove_island",
    "restore",
    "save",
    "search",
    "status",
    "testing",
    "trace",
]
