"""Lists the shards of a `pw.Array` by virtual device, like `jax.Array.addressable_shards`. A shard's values are copied
to this process when the user reads them, not earlier.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Index: TypeAlias = tuple[slice, ...]


@dataclass(frozen=True, eq=False)
class Shard:
    """The part of an array on one virtual device. `replica_id` numbers the devices with the same part, from 0."""

    device: Any
    index: Index
    replica_id: int
    read: Callable[[], Any] = field(repr=False)

    @property
    def data(self) -> Any:
        """A copy of only this part, as a `jax.Array` on JAX's default device. Waits for its values."""
        return self.read()


def shards(sharding: Any, stored: tuple[int, ...], rank: int, read: Callable[[int], Any]) -> list[Shard]:
    """Lists the shards of an array that is stored in this shape; the user sees `rank` dimensions.

    They are in the order of the mesh. `read` returns the values of a shard by its position.
    """
    seen: dict[str, int] = {}
    found: list[Shard] = []
    for position, (device, index) in enumerate(sharding.devices_indices_map(stored).items()):
        replica = seen[str(index)] = seen.get(str(index), -1) + 1
        found.append(Shard(device, index[:rank], replica, lambda position=position: read(position)))
    return found
