"""Defines `pw.Array`, the result of a program: a future for a sharded array on devices (paper, section 4.6). It is
returned before it is computed. Outside of programs it acts like a `jax.Array`.
"""

import asyncio
import inspect
import operator
import time
from collections.abc import Callable, Generator
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental.layout import Format, Layout

from pathways.api.array_methods import ArrayMethods
from pathways.api.fetched import as_jax, shown_values, user_signature
from pathways.api.process import process
from pathways.api.result_shardings import shown_sharding
from pathways.api.shards import Shard, shards
from pathways.compiler.frontends.jax import compat
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.dtypes import ArrayType
from pathways.dialect.jax_api import JaxArray as JaxArray
from pathways.dialect.jax_api import ShapedArray
from pathways.dialect.plan.nouns import Port
from pathways.dialect.topology import readable
from pathways.dialect.user_line import caller
from pathways.runtime.client import arrays
from pathways.runtime.client.handles import DELETED, Handle
from pathways.runtime.client.remote_array import RemoteArray
from pathways.runtime.errors import ComputationFailed, NotAnArray, StillRunning, TooMuchToFetch, failed_because
from pathways.runtime.host.devices import pjrt
from pathways.runtime.host.run.background import Promise
from pathways.runtime.host.run.hung_launches import hang_of
from pathways.runtime.host.run.poison import Poison

_T = TypeVar("_T")


class WaitTimeout(PathwaysError, TimeoutError):
    """Raised if an array was not computed in time. The run continues."""


_SHOWN_BYTES = 1 << 20
"""Larger arrays are not copied to the host for their repr."""


class Array(ArrayMethods, JaxArray):
    """A handle to one logical buffer. Returned before it is computed; any program of this process accepts it.

    `shape`, `dtype` and `weak_type` are as for `jax.Array`; `sharding` is on virtual devices. Every other operation of
    a `jax.Array` fetches the values, like `x.to_jax()`: it waits, copies them to the host, and on to JAX's default
    device. `np.asarray(x)` stops on the host. The host copy is kept as long as the buffer. Reading raises PWC0504 if a
    computation that it depends on failed, PWC0207 after donation. It raises PWC0216 if JAX would narrow 64 bits to 32,
    and PWC0516 above the limit. The buffer is freed with its last handle.
    """

    _committed = False  # lets JAX put the copy on the devices of the computation

    def __init__(self, handle: Handle, port: Port, sharding: Any) -> None:
        self.handle = handle
        self._port = port
        self._sharding = sharding

    @property
    def signature(self) -> tuple[tuple[int, ...], Any, bool]:
        """The shape, the element type, and whether the type is weak: the array's part of a call signature."""
        return user_signature(self._port)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.signature[0]

    @property
    def dtype(self) -> Any:
        return self.signature[1]

    @property
    def weak_type(self) -> bool:
        return self._port.weak

    @property
    def sharding(self) -> Any:
        """The sharding, on the devices that its program named: virtual ones, or those of this process.

        None if JAX's own dispatch reads it: JAX then computes on a copy.
        """
        frame = inspect.currentframe()
        return None if frame is not None and compat.is_dispatch(frame.f_back) else shown_sharding(self._sharding)

    @property
    def virtual_sharding(self) -> Any:
        """The sharding on virtual devices, also if JAX's own dispatch reads it."""
        return self._sharding

    @property
    def stored_type(self) -> ArrayType:
        """The type as stored: PRNG keys as their data."""
        return self._port.type

    @property
    def aval(self) -> Any:
        """Returns the abstract value, as `jax.typeof` does."""
        return ShapedArray(self.shape, self.dtype, weak_type=self.weak_type)

    @property
    def format(self) -> Format:
        """Returns the layout (the order of dimensions in memory) and the sharding."""
        return Format(Layout(tuple(range(self.ndim))), shown_sharding(self._sharding))

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))

    @property
    def itemsize(self) -> int:
        return int(self.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        return self._port.type.bytes

    committed = property(lambda _: True)
    is_fully_addressable = property(lambda _: True)

    @property
    def is_fully_replicated(self) -> bool:
        return bool(self._sharding.is_fully_replicated)

    def devices(self) -> set[Any]:
        """Returns the devices that hold the array, as its program names them."""
        return set(shown_sharding(self._sharding).device_set)

    @property
    def device(self) -> Any:
        """The device that holds the array, or the sharding if there are several."""
        devices = self.devices()
        return devices.pop() if len(devices) == 1 else shown_sharding(self._sharding)

    @property
    def addressable_shards(self) -> list[Shard]:
        """The shards on the devices, in the order of the mesh. `.data` of a shard fetches only that shard."""
        self._future()
        return shards(shown_sharding(self._sharding), self._port.type.shape, self.ndim, self.addressable_data)

    @property
    def global_shards(self) -> list[Shard]:
        return self.addressable_shards

    def addressable_data(self, index: int) -> Any:
        """Returns the shard on one virtual device, by position in the mesh: a `jax.Array` on JAX's default device."""
        size = self.handle.buffer.bytes
        return self._as_jax(self._read(size, lambda array: arrays.fetched_shard(array, index)))

    def on_device_size_in_bytes(self) -> int:
        """Returns the bytes on all of its devices together."""
        return self.handle.buffer.bytes * len(self.handle.buffer.devices)

    def is_ready(self) -> bool:
        """Returns whether the values are available, or known to be never available."""
        array = self.handle.array()
        if isinstance(array, Poison | Promise):
            return isinstance(array, Poison)
        return bool(waited(self.handle, array.is_ready))

    def is_deleted(self) -> bool:
        """Returns whether it was donated or deleted."""
        return self.handle.taken_by is not None

    def delete(self) -> None:
        """Frees the memory now, unless other arrays hold the same buffer. A second call does nothing."""
        self.handle.check_owner()
        if not self.is_deleted():
            self.handle.give_up(DELETED, caller())

    def block_until_ready(self, timeout: float | None = None) -> "Array":
        """Waits for the values. Raises PWC0504 if a computation failed, TimeoutError (PWC0519) after `timeout` s."""
        end = None if timeout is None else time.monotonic() + timeout
        array = self._future(timeout)
        if end is not None:
            waited(self.handle, lambda: self._poll(array, end, timeout))
        waited(self.handle, array.block_until_ready)
        return self

    def cancel(self) -> bool:
        """Cancels the run that computes this array, if it waits for values in a loop on data or for a host callback.

        All results of that run raise PWC0518 from then on; work already enqueued still executes. Returns False if
        nothing can be cancelled: everything is enqueued, or the run is in other processes and has no loop on data.
        """
        promise = self.handle.array()
        if isinstance(promise, RemoteArray):
            controller, run = process().controller, self.handle.buffer.run
            return controller.cancel_elsewhere((f for f in controller.flights.all() if f.number == run), caller())
        if not isinstance(promise, Promise):
            return False
        process().controller.cancel([promise])
        return True

    def _poll(self, array: Any, end: float, timeout: float | None) -> None:
        """Polls until `end` at most: PJRT's own wait has no timeout."""
        pause = 20e-6
        while not array.is_ready():
            if time.monotonic() >= end:
                raise self._late(timeout)
            time.sleep(pause)
            pause = min(2 * pause, 1e-3)

    def _late(self, timeout: float | None) -> WaitTimeout:
        name, _, where = self.handle.buffer.origin
        seconds = f"{timeout or 0.0:g}"
        return WaitTimeout(
            StillRunning(name=self.handle.buffer.name, seconds=seconds, computation=name, where=where or caller())
        )

    def copy_to_host_async(self) -> None:
        """Starts the copy to the host that a later read returns."""
        self._read(self.nbytes, arrays.start_fetching)

    def _future(self, timeout: float | None = None) -> Any:
        array = self.handle.known(timeout)
        if isinstance(array, Poison):
            raise array.error()
        if isinstance(array, Promise):
            raise self._late(timeout)
        return array

    def _read(self, size: int, read: Callable[[Any], _T]) -> _T:
        """Copies values to the host with `read`. No run overwrites the buffer meanwhile.

        A run to which it is donated meanwhile overwrites a copy. If the donation came first, raises PWC0207.
        """
        self._future()
        held, array = self.handle.share()
        try:
            if isinstance(array, Poison):  # its device was lost meanwhile
                raise array.error()
            self.check_limit(size)
            return waited(held, lambda: read(array))
        finally:
            held.drop()

    def check_limit(self, size: int) -> None:
        """Raises PWC0516 if `size` bytes exceed the limit for copies to the host."""
        check_fetch_limit(self.handle, self._port.name, size)

    def lend(self, use: Callable[[Any], _T]) -> _T:
        """Returns the result of `use` on the buffer's array, without copying it. No run overwrites it meanwhile.

        Waits and raises like other reads, but without the limit: only `use` copies values to the host.
        """
        return self._read(0, use)

    def stored(self) -> "np.ndarray[Any, Any]":
        """Returns a copy on the host in its stored form: PRNG keys as their data. Waits and raises like other reads."""
        return self._read(self.nbytes, arrays.fetched)

    def to_jax(self) -> Any:
        """Returns a `jax.Array` with a copy of the values, on JAX's default device. Typed keys stay typed keys.

        Raises PWC0216 for 64-bit values if `jax_enable_x64` is off.
        """
        return self._as_jax(self.stored())

    def _as_jax(self, stored: "np.ndarray[Any, Any]") -> Any:
        return as_jax(stored, self._port.name, self._port.dtype, self._port.weak)

    def __jax_array__(self) -> Any:
        """Calls `to_jax` for JAX and for operators. In a traced program this makes a constant."""
        return self.to_jax()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> "np.ndarray[Any, Any]":
        if self._port.dtype == "float0":
            return np.zeros(self.shape, jax.dtypes.float0)
        if self._port.dtype.startswith("key<"):
            rule = "x.to_jax() for keys, or jax.random.key_data(x.to_jax()) for integers"
            error = NotAnArray(operation="reading PRNG keys with numpy", rule=rule, where=caller())
            raise PathwaysError(error)
        values = self.stored()
        if dtype is not None and values.dtype != dtype:
            return values.astype(dtype)
        return np.array(values) if copy else values

    def item(self, *args: int) -> Any:
        """Returns the single value, or the one at an index, as a Python number."""
        return np.asarray(self).item(*args)

    def tolist(self) -> Any:
        return np.asarray(self).tolist()

    def tobytes(self, order: Any = "C") -> bytes:
        return np.asarray(self).tobytes(order)

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __bool__(self) -> bool:
        return bool(np.asarray(self))

    def __index__(self) -> int:
        return operator.index(np.asarray(self).item())

    def __setitem__(self, index: Any, value: Any) -> None:
        raise TypeError("a pw.Array is immutable, like a jax.Array: use x = x.at[index].set(value)")

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array with no dimensions")
        return self.shape[0]

    def __await__(self) -> Generator[Any, None, "Array"]:
        return asyncio.to_thread(self.block_until_ready).__await__()

    def copy(self) -> "Array":
        """Returns another handle to the same buffer, without a copy. It stays valid if this is donated or deleted."""
        return type(self)(self.handle.share()[0], self._port, self._sharding)

    clone = __copy__ = copy

    def __deepcopy__(self, memo: Any) -> "Array":
        return self.copy()

    def __reduce__(self) -> Any:
        """Pickles the values: unpickling makes a `jax.Array`."""
        return as_jax, (self.stored(), self._port.name, self._port.dtype, self._port.weak)

    def __format__(self, spec: str) -> str:
        if not spec:
            return str(self)
        return format(np.asarray(self).item() if not self.shape else np.asarray(self), spec)

    def __str__(self) -> str:
        """Waits for the values and formats them; large arrays and keys as `repr`."""
        return str(np.asarray(self)) if self._is_shown else repr(self)

    @property
    def _is_shown(self) -> bool:
        mine = self.handle.is_mine and not self.is_deleted()
        return mine and self.nbytes <= _SHOWN_BYTES and not self._port.dtype.startswith("key<")

    def __repr__(self) -> str:
        """Formats the values, or the reason why they are not available; does not wait."""
        about = f"pw.Array {self.dtype}{list(self.shape)}"
        taker = self.handle.taken_by
        if taker is not None:
            return f"<{about}, deleted>" if taker == DELETED else f"<{about}, donated to {taker}>"
        if not self.handle.is_mine:
            return f"<{about} of {self.handle.buffer.client.label}>"
        try:
            if not self.is_ready():
                return f"<{about}, running>"
            if not self._is_shown:
                return f"<{about}>"
            return shown_values(np.asarray(self), self.weak_type)
        except PathwaysError as error:
            return f"<{about}, failed: {error.code}>"


def check_fetch_limit(handle: Handle, name: str, size: int) -> None:
    """Raises PWC0516 if `size` bytes of a buffer exceed the limit for copies to this process."""
    limit = process().controller.fetch_limit
    if size > limit:
        island = handle.buffer.origin[1]
        error = TooMuchToFetch(name=name, size=readable(size), island=island, limit=readable(limit), where=caller())
        raise PathwaysError(error)


def waited(handle: Handle, wait: Callable[[], _T]) -> _T:
    """Converts a failure on a device into PWC0504, with the computation that makes this value."""
    try:
        return wait()
    except PathwaysError as error:
        if isinstance(error.diagnostic, ComputationFailed):  # of a process without this one's exceptions
            raise Poison(error.diagnostic).error() from None
        raise
    except pjrt.FAILURES as error:
        now = handle.array()  # raises PWC0207 if another thread donated it meanwhile
        if isinstance(now, Poison):  # its device was lost during the read
            raise now.error() from error
        name, island, where = handle.buffer.origin
        failed = failed_because(name, island=island, cause=str(error), where=where)
        raise PathwaysError(hang_of(error) or failed) from error


compat.take_for_arrays(Array, Array.__jax_array__)
