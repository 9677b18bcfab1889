"""Provides the same functions for arrays on devices of this process and for arrays on hosts in other processes: fetch,
copy, sharding. Loaded plans, suspended clients and `pw.Array` use them.
"""

from typing import Any, TypeAlias

import numpy as np

from pathways.dialect.dtypes import ArrayType
from pathways.runtime.client.remote_array import RemoteArray
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.devices.layouts import Side
from pathways.runtime.host.devices.local_values import copy_shard
from pathways.runtime.host.devices.pjrt import FAILURES as FAILURES

Array: TypeAlias = Any
"""A future: a `jax.Array` on devices of this process, or a `RemoteArray`."""


LOCAL_ARRAY: type[Any] = pjrt.LocalArray
"""The class of arrays on devices of this process."""
_ARRAYS = (LOCAL_ARRAY, RemoteArray)


def is_any_array(value: Any) -> bool:
    return isinstance(value, _ARRAYS)


def fetched(array: Array) -> "np.ndarray[Any, Any]":
    """Copies an array to this process. Raises one of `pjrt.FAILURES` or the first cause if it is never computed."""
    return array.fetch() if isinstance(array, RemoteArray) else pjrt.to_host(array)


def fetched_shard(array: Array, position: int) -> "np.ndarray[Any, Any]":
    """Copies the shard at one mesh position to this process. Raises the same errors as `fetched`."""
    return array.fetch(position) if isinstance(array, RemoteArray) else pjrt.to_host(pjrt.shard(array, position))


def start_fetching(array: Array) -> None:
    """Starts the device-to-host copy that a later `fetched` returns, if the array supports that."""
    if not isinstance(array, RemoteArray):
        pjrt.start_copy_to_host(array)


def copied(array: Array, side: Side) -> Array:
    """Copies an array on its own devices."""
    if isinstance(array, RemoteArray):
        return array.copied()
    return pjrt.copy_whole(array, pjrt.device_list(side.devices), side.real)


def copied_shard(array: Array, position: int, type_: ArrayType) -> Array:
    """Copies the shard at one mesh position, of this type, on its own device."""
    return array.copied(position, type_) if isinstance(array, RemoteArray) else copy_shard(array, position)


def sharding_of(array: Array) -> Any:
    """Returns the JAX sharding of an array in this process, None for a remote array."""
    return None if isinstance(array, RemoteArray) else array.sharding
