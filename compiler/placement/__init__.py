"""Placement policies: `place(graph, topology) -> Placement`, pure functions, one file each."""

from collections.abc import Callable
from typing import Any, TypeAlias

import networkx as nx

from pathways.compiler.placement.pinned import pinned
from pathways.compiler.placement.problem import Placement
from pathways.compiler.placement.spread import spread
from pathways.dialect.topology import Topology

Policy: TypeAlias = "Callable[[nx.DiGraph[Any], Topology], Placement]"

POLICIES: "dict[str, Policy]" = {"spread": spread, "pinned": pinned}
