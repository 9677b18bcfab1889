"""Results of programs: opaque handles on sharded buffers, futures (paper, section 4.6). Not `jax.Array`s."""

import asyncio
import contextlib
import functools
import operator
import time
from collections.abc import Generator
from typing import Any, NoReturn

import jax
import numpy as np

from pathways.api.process import process
from pathways.compiler.frontend.caller import caller
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.jax_api import device_put, eval_shape, random
from pathways.dialect.memory import readable
from pathways.dialect.plan import Port
from pathways.runtime import pjrt
from pathways.runtime.background import Promise
from pathways.runtime.errors import ComputationFailed, NotAnArray, StillRunning, TooMuchToFetch
from pathways.runtime.hangs import hang_behind
from pathways.runtime.store import Handle, Poison


class WaitTimeout(PathwaysError, TimeoutError):
    """An array was not computed in time; the run goes on."""


_SHOWN_BYTES = 1 << 20
"""Larger arrays are not copied to the host for their repr."""


class Array:
    """A handle on one logical buffer. Comes back before it is computed; any program of this process takes it.

    `shape`, `dtype` and `weak_type` are as for `jax.Array`; `sharding` is on virtual devices. Reading the values
    (`np.asarray(x)`, `float(x)`, `x.to_jax()`, `await x`) waits and copies to the host; it raises PWC0504 if a
    computation that it depends on failed, PWC0207 after donation. The death of the last handle frees the buffer.
    """

    def __init__(self, handle: Handle, port: Port, sharding: Any) -> None:
        self.handle = handle
        self._port = port
        self.sharding = sharding

    @property
    def shape(self) -> tuple[int, ...]:
        stored = self._port.type.shape
        return stored[: len(stored) - _key_dims(self._port)]

    @property
    def dtype(self) -> Any:
        return _user_dtype(self._port)

    @property
    def weak_type(self) -> bool:
        return self._port.weak

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))

    @property
    def nbytes(self) -> int:
        return self._port.type.bytes

    def is_ready(self) -> bool:
        """Whether the values are there (or known never to come)."""
        array = self.handle.array(caller)
        return isinstance(array, Poison) or (not isinstance(array, Promise) and bool(array.is_ready()))

    def block_until_ready(self, timeout: float | None = None) -> "Array":
        """Waits. Raises PWC0504 if the values will never come, TimeoutError (PWC0519) after `timeout` seconds."""
        end = None if timeout is None else time.monotonic() + timeout
        array = self._future(timeout)
        with self._failures():
            if end is not None:
                self._poll(array, end, timeout)
            array.block_until_ready()
        return self

    def cancel(self) -> bool:
        """Ends the run that computes this, where it waits for values: a loop on data, a call of the host.

        All results of that run raise PWC0518 from then on; what it has enqueued already still runs. False where there
        is nothing to cancel: everything was enqueued.
        """
        promise = self.handle.array(caller)
        if not isinstance(promise, Promise):
            return False
        process().controller.cancel([promise])
        return True

    def _poll(self, array: Any, end: float, timeout: float | None) -> None:
        """Waits until `end` at the most: PJRT itself waits for ever."""
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

    @contextlib.contextmanager
    def _failures(self) -> Generator[None]:
        """What fails on a device after it was enqueued becomes PWC0504, with the computation that makes this value."""
        try:
            yield
        except pjrt.FAILURES as error:
            now = self.handle.buffer.array
            if isinstance(now, Poison):  # lost while it was read
                raise now.error() from error
            name, island, where = self.handle.buffer.origin
            failed = ComputationFailed(computation=name, island=island, cause=str(error), where=where)
            raise PathwaysError(hang_behind(error) or failed) from error

    def _future(self, timeout: float | None = None) -> Any:
        array = self.handle.known(caller, timeout)
        if isinstance(array, Poison):
            raise array.error()
        if isinstance(array, Promise):
            raise self._late(timeout)
        return array

    def stored(self) -> "np.ndarray[Any, Any]":
        """A copy on the host in the form in which it is stored: keys as their data. Waits, and raises as above."""
        array = self._future()
        limit = process().controller.fetch_limit
        if self.nbytes > limit:
            buffer = self.handle.buffer
            size, most = readable(self.nbytes), readable(limit)
            error = TooMuchToFetch(name=buffer.name, size=size, island=buffer.origin[1], limit=most, where=caller())
            raise PathwaysError(error)
        with self._failures():
            return pjrt.to_host(array)

    def to_jax(self) -> Any:
        """A `jax.Array` with a copy of the values, on JAX's default device; typed keys stay typed keys."""
        stored = self.stored()
        if self._port.dtype.startswith("key<"):
            return typed_keys(stored, self._port.dtype)
        return device_put(stored)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> "np.ndarray[Any, Any]":
        if self._port.dtype == "float0":
            return np.zeros(self.shape, jax.dtypes.float0)
        if self._port.dtype.startswith("key<"):
            raise self._refuse("reading the values of PRNG keys", "x.to_jax(), or jax.random.key_data in a program")
        values = self.stored()
        if dtype is not None and values.dtype != dtype:
            return values.astype(dtype)
        return np.array(values) if copy else values

    def item(self) -> Any:
        """The single value, as a Python number."""
        return np.asarray(self).item()

    def tolist(self) -> Any:
        return np.asarray(self).tolist()

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __bool__(self) -> bool:
        return bool(np.asarray(self))

    def __index__(self) -> int:
        return operator.index(np.asarray(self).item())

    def __format__(self, spec: str) -> str:
        return format(np.asarray(self).item(), spec) if spec and not self.shape else repr(self)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array with no dimensions")
        return self.shape[0]

    def __await__(self) -> Generator[Any, None, "Array"]:
        return asyncio.to_thread(self.block_until_ready).__await__()

    def __repr__(self) -> str:
        if self.handle.taken_by is not None:
            return f"<pw.Array {self.dtype}{list(self.shape)}, donated to {self.handle.taken_by}>"
        if not self.handle.is_mine:
            return f"<pw.Array {self.dtype}{list(self.shape)} of {self.handle.buffer.client.label}>"
        if self.nbytes > _SHOWN_BYTES or self._port.dtype.startswith("key<"):
            return f"<pw.Array {self.dtype}{list(self.shape)}>"
        return repr(np.asarray(self))

    def __reduce__(self) -> NoReturn:
        raise self._refuse("pickling", "np.asarray(x) and pickle that")

    def _refuse(self, operation: str, rule: str) -> PathwaysError:
        return PathwaysError(NotAnArray(operation=operation, rule=rule, where=caller()))


_IMPLEMENTATIONS = {"fry": "threefry2x32", "rbg": "rbg", "urbg": "unsafe_rbg"}


def typed_keys(stored: "np.ndarray[Any, Any]", dtype: str) -> Any:
    """PRNG keys of their data; `dtype` is what the user sees, `key<fry>`."""
    name = dtype[4:-1]
    return random.wrap_key_data(stored, impl=_IMPLEMENTATIONS.get(name, name))


def _key_dims(port: Port) -> int:
    """A typed key is stored as a vector of words."""
    return 1 if port.dtype.startswith("key<") else 0


@functools.cache
def _key_dtype(name: str) -> Any:
    return eval_shape(lambda: random.key(0, impl=_IMPLEMENTATIONS.get(name, name))).dtype


def _user_dtype(port: Port) -> Any:
    if port.dtype.startswith("key<"):
        return _key_dtype(port.dtype[4:-1])
    if port.dtype == "float0":
        return jax.dtypes.float0
    return pjrt.numpy_dtype(port.dtype)


def _refused(operation: str) -> Any:
    def method(self: Array, *_: Any, **__: Any) -> NoReturn:
        rule = "computing inside of a @pw.program that takes it as an argument"
        raise PathwaysError(NotAnArray(operation=operation, rule=rule, where=caller()))

    return method


_OPERATIONS = {
    "arithmetic": "add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow matmul rmatmul "
    "neg pos abs and rand or ror xor rxor invert lshift rshift lt le gt ge eq ne",
    "indexing": "getitem setitem iter",
}
for _operation, _names in _OPERATIONS.items():  # as for jax.Array, equality is no identity, and there is no hash
    for _name in _names.split():
        setattr(Array, f"__{_name}__", _refused(_operation))
setattr(Array, "__hash__", None)  # noqa: B010 (a plain assignment is not typed so)
