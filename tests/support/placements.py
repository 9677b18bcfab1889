"""Small placement problems, and what is asked of their answers."""

from typing import Any

import pytest

from pathways.compiler.placement import Placement, SliceRequest, find_placement
from pathways.dialect.diagnostics import PathwaysError, Where
from pathways.dialect.topology import Island, Topology
from support.random_graphs import make_graph

GB = 10**9
PAIR = Topology(
    (
        Island("a", 2, flops=1e9, efficiency=1.0, ici_gbps=10.0),
        Island("b", 2, flops=1e9, efficiency=1.0, ici_gbps=10.0),
    ),
    dcn_gbps=1.0,
)
LINE = Where("model.py", 7)


def slices(*devices: int, **demands: dict[str, Any]) -> list[SliceRequest]:
    """Makes slices s0, s1 ... of so many devices; `demands` are more fields by symbol."""
    return [SliceRequest(f"s{i}", n, **demands.get(f"s{i}", {})) for i, n in enumerate(devices)]


def graph(requests: list[SliceRequest], edges: dict[tuple[int, int], int] | None = None, flops: float = 1e9) -> Any:
    """Builds one call for each slice."""
    return make_graph(requests, [(r.symbol, flops * r.devices) for r in requests], edges or {})


def islands(placement: Placement) -> list[str]:
    return [placement.bindings[s].island for s in sorted(placement.bindings)]


def devices(placement: Placement) -> list[tuple[int, ...]]:
    return [placement.bindings[s].devices for s in sorted(placement.bindings)]


def refused(name: str, requests: list[SliceRequest], topology: Topology = PAIR) -> PathwaysError:
    with pytest.raises(PathwaysError) as caught:
        find_placement(name)(graph(requests), topology)
    return caught.value
