"""Checks the device groups of collectives in a StableHLO module: each device exists and appears exactly once. XLA does
not check this. `operations.py` calls it.
"""

from collections.abc import Iterable

from pathways.dialect.bare_mlir import Operation
from pathways.dialect.plan.modules.stated_module import Refused

_GROUPED = {
    f"stablehlo.{name}" for name in ("all_gather", "all_reduce", "all_to_all", "collective_broadcast", "reduce_scatter")
}
_PADDING = -1
"""Fills the short rows if groups have different sizes."""


def check_collective(operation: Operation, partitions: int) -> None:
    """Raises Refused if groups or pairs do not consist of the module's devices."""
    name: str = operation.name
    if name in _GROUPED and "replica_groups" in operation.attributes:
        listed = [int(d) for d in operation.attributes["replica_groups"] if int(d) != _PADDING]
        _distinct(name, listed, partitions)
        if listed and len(listed) != partitions:
            raise Refused(f"leaves devices out of {name}: groups of {len(listed)}, partitions {partitions}")
    elif name == "stablehlo.collective_permute":
        ends = [int(d) for d in operation.attributes["source_target_pairs"]]
        _distinct(name, ends[::2], partitions)
        _distinct(name, ends[1::2], partitions)


def _distinct(name: str, devices: Iterable[int], partitions: int) -> None:
    seen: set[int] = set()
    for device in devices:
        if not 0 <= device < partitions:
            raise Refused(f"names device {device} in {name}, of {partitions}")
        if device in seen:
            raise Refused(f"names device {device} twice in {name}")
        seen.add(device)
