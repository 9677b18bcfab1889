"""Holds what one client of the proxy owns: arrays, executables and futures by handle. A client can name only its own.

The functions that answer requests (`array_requests.py`, `executable_requests.py`) read and change it.
"""

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from pathways.dialect.diagnostics import PathwaysError
from pathways.ifrt_proxy.arrays import ArrayMaker, ClientArray, FailedArray, GoodArray
from pathways.ifrt_proxy.devices import ServedDevices
from pathways.ifrt_proxy.errors import RequestRefused, UnknownHandle
from pathways.ifrt_proxy.executables import Executable, Executables
from pathways.ifrt_proxy.host_buffers import HostBuffers

_T = TypeVar("_T")
Rest: TypeAlias = Callable[[], None]
"""The part of an answer that waits for values. Other requests are answered meanwhile."""

MADE = {
    "make_array_from_host_buffer_request": "array_handle",
    "make_arrays_from_host_buffer_shards_request": "array_handles",
    "assemble_array_from_single_device_arrays_request": "result_handle",
    "disassemble_into_single_device_arrays_request": "result_handles",
    "fully_replicated_shard_request": "result_handle",
    "copy_arrays_request": "result_handles",
    "reshard_arrays_request": "result_handles",
    "remap_arrays_request": "result_handles",
    "bitcast_arrays_request": "result_handles",
    "loaded_executable_execute_request": "result_array_handle",
}
"""The field of each request that has the handles of its results, if the client chooses them."""
EXECUTE, STATUS_HANDLE = "loaded_executable_execute_request", "result_status_handle"
FIRST_OWN_HANDLE = 1 << 63
"""Handles that the server chooses begin here. A client chooses smaller ones."""


@dataclass
class SessionState:
    """The objects of one client. Several threads answer its requests, so a lock guards the tables."""

    number: int
    devices: ServedDevices
    executables: Executables
    maker: ArrayMaker
    buffers: HostBuffers
    _arrays: dict[int, ClientArray] = field(default_factory=dict[int, ClientArray])
    _loaded: dict[int, Executable] = field(default_factory=dict[int, Executable])
    _futures: dict[int, Callable[[], None]] = field(default_factory=dict[int, Callable[[], None]])
    _handles: Iterator[int] = field(default_factory=lambda: itertools.count(FIRST_OWN_HANDLE))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def array(self, handle: int) -> ClientArray:
        """Returns an array. Raises PWC0941 for a handle that the client does not have."""
        with self._lock:
            return _found(self._arrays, handle, "array")

    def good_array(self, handle: int) -> GoodArray:
        """Returns an array like `array`. Raises the error of an array that is never computed."""
        array = self.array(handle)
        if isinstance(array, FailedArray):
            raise array.error
        return array

    def fail(self, request: str, body: Any, error: Exception) -> None:
        """Stores the error of a request under the handles that the client has chosen for its results.

        The client does not wait for the response to such a request: it meets the error where it uses a result.
        """
        handles = getattr(body, MADE.get(request, ""), ())
        for handle in (handles,) if isinstance(handles, int) else handles:
            if handle:
                self.keep(FailedArray(error), handle)
        if status := getattr(body, STATUS_HANDLE, 0) if request == EXECUTE else 0:

            def fail() -> None:
                raise error

            self.future(fail, status)

    def keep(self, array: ClientArray, handle: int) -> int:
        """Stores an array under a handle of the client, or a new one; returns the handle."""
        with self._lock:
            handle = handle or next(self._handles)
            before, self._arrays[handle] = self._arrays.pop(handle, None), array
        if before is not None:
            before.drop()
        return handle

    def keep_all(self, arrays: Sequence[ClientArray], handles: Sequence[int]) -> list[int]:
        """Stores arrays under handles of the client; without any, under new ones.

        Raises PWC0940 for a wrong count, and drops the arrays.
        """
        chosen = list(handles) or [0] * len(arrays)
        if len(chosen) != len(arrays):
            for array in arrays:
                array.drop()
            raise refused("this request", f"{len(chosen)} handles for {len(arrays)} arrays")
        return [self.keep(array, handle) for array, handle in zip(arrays, chosen, strict=True)]

    def forget(self, handle: int) -> None:
        """Drops an array. An unknown handle is ignored: a client may drop what it has never received."""
        with self._lock:
            array = self._arrays.pop(handle, None)
        if array is not None:
            array.drop()

    def executable(self, handle: int) -> Executable:
        """Returns an executable. Raises PWC0941 for a handle that the client does not have."""
        with self._lock:
            return _found(self._loaded, handle, "executable")

    def load(self, executable: Executable) -> int:
        with self._lock:
            handle = next(self._handles)
            self._loaded[handle] = executable
            return handle

    def unload(self, handle: int) -> None:
        with self._lock:
            self._loaded.pop(handle, None)

    def future(self, wait: Callable[[], None], handle: int = 0) -> int:
        """Stores a function that waits for a result or raises its error; returns the handle of the future."""
        with self._lock:
            handle = handle or next(self._handles)
            self._futures[handle] = wait
            return handle

    def take_future(self, handle: int) -> Rest:
        """Removes and returns the function of a future. Raises PWC0941 for a handle that the client does not have."""
        with self._lock:
            wait = _found(self._futures, handle, "future")
            del self._futures[handle]
        return wait

    def close(self) -> None:
        """Frees all arrays of the client."""
        with self._lock:
            arrays = list(self._arrays.values())
            for table in (self._arrays, self._loaded, self._futures):
                table.clear()
        for array in arrays:
            array.drop()


def _found(table: dict[int, _T], handle: int, what: str) -> _T:
    if handle not in table:
        raise PathwaysError(UnknownHandle(what=what, number=handle))
    return table[handle]


def refused(what: str, have: str, rule: str = "what docs/unmodified-jax.md lists") -> PathwaysError:
    """Makes the error for something that the proxy does not do."""
    return PathwaysError(RequestRefused(what=what, have_=have, rule=rule))
