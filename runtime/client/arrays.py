"""Arrays wherever they are: on a device of this process, or on a host in another one."""

from typing import Any, TypeAlias

import numpy as np

from pathways.runtime.client.remote_array import RemoteArray
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.devices.layouts import Side
from pathways.runtime.host.devices.pjrt import FAILURES as FAILURES

Array: TypeAlias = Any
"""A `jax.Array` on our devices, or a `RemoteArray`; a future."""


def is_any_array(value: Any) -> bool:
    return isinstance(value, RemoteArray) or pjrt.is_array(value)


def fetched(array: Array) -> "np.ndarray[Any, Any]":
    """Copies an array to this process. Raises one of `pjrt.FAILURES`, or the first cause, where it never comes."""
    return array.fetch() if isinstance(array, RemoteArray) else pjrt.to_host(array)


def fetched_shard(array: Array, position: int) -> "np.ndarray[Any, Any]":
    """Copies the shard at a position of its mesh; raises as `fetched`."""
    return array.fetch(position) if isinstance(array, RemoteArray) else pjrt.to_host(pjrt.shard(array, position))


def start_fetching(array: Array) -> None:
    """Starts the copy that a later `fetched` returns, where that can be started."""
    if not isinstance(array, RemoteArray):
        pjrt.start_copy_to_host(array)


def copied(array: Array, side: Side) -> Array:
    """Copies an array to the place where it is."""
    if isinstance(array, RemoteArray):
        return array.copied()
    return pjrt.copy_whole(array, pjrt.device_list(side.devices), side.real)


def sharding_of(array: Array) -> Any:
    """The JAX sharding of an array here; an array elsewhere has none."""
    return None if isinstance(array, RemoteArray) else array.sharding
