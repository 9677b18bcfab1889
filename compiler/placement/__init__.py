"""Placement policies: `place(graph, topology) -> Placement`, pure functions, one file each. The pass place calls them.

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
