"""Holds the placement policies, one file for each. A policy decides on which island, and on which devices there, each
slice of virtual devices runs. A policy is a pure function, `place(graph, topology) -> Placement`, which the pass
`place` calls.

Import everything that your own policy needs from here: see docs/writing-a-placement-pass.md.
"""

from pathways.compiler.placement.binding import Binding as Binding
from pathways.compiler.placement.cost import CostModel as CostModel
from pathways.compiler.placement.cost import Estimate as Estimate
from pathways.compiler.placement.find import POLICIES as POLICIES
from pathways.compiler.placement.find import PlacementPolicy as PlacementPolicy
from pathways.compiler.placement.find import find_placement as find_placement
from pathways.compiler.placement.find import run_policy as run_policy
from pathways.compiler.placement.problem import Placement as Placement
from pathways.compiler.placement.problem import SliceRequest as SliceRequest
from pathways.dialect.topology import Island as Island
from pathways.dialect.topology import Topology as Topology
