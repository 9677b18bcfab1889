"""Takes the place of `host/devices/pjrt.py` in a process of timed hosts (`serve.py`): the same functions, for devices
that compute nothing. All other modules of a host are the same as with real devices.
"""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from pathways.dialect.diagnostics import InternalError, PathwaysError
from pathways.dialect.dtypes import ArrayType, from_mlir, numpy_dtype
from pathways.dialect.mlir import make_context, parse
from pathways.dialect.sharding import Dims, MeshSpec, Sharding
from pathways.runtime.host.timed import devices as timed
from pathways.runtime.host.timed.devices import NOW, TimedArray, TimedDevice, TimedExecutable, TimedSharding, moved_to
from pathways.runtime.host.timed.figures import Figures
from pathways.runtime.wire.errors import NotOverProcesses

Device: TypeAlias = TimedDevice
DeviceArray: TypeAlias = TimedArray
Executable: TypeAlias = TimedExecutable
Handlers: TypeAlias = list[tuple[ArrayType, TimedSharding]]
NamedSharding: TypeAlias = TimedSharding
Profile: TypeAlias = dict[tuple[int, int], tuple[int, int]]

FAILURES: tuple[type[Exception], ...] = (ValueError, RuntimeError)
without_frames: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext
_figures: list[Figures] = []


def use(figures: Figures) -> None:
    """Sets the figures of the island of this process."""
    _figures[:] = [figures]


def is_here(device: Device) -> bool:
    return device.process_index == device.client.process_index()


def is_on_host(device: Device) -> bool:
    return False


def named_sharding(spec: MeshSpec, dims: Dims, devices: Sequence[Device]) -> TimedSharding:
    return TimedSharding(Sharding(spec, dims), tuple(devices))


def on_device(device: Device) -> TimedSharding:
    return TimedSharding(None, (device,))


def device_list(devices: Sequence[Device]) -> Sequence[Device]:
    return tuple(devices)


def compile_module(
    module: bytes | str, devices: Sequence[Device], callbacks: Sequence[Callable[..., Any]] = ()
) -> Executable:
    """Finds the seconds of a call. Raises PWC0912 for a module with host callbacks, which would need values."""
    if callbacks:
        have, rule = "a computation with host callbacks", "computations without, since timed devices have no values"
        raise PathwaysError(NotOverProcesses(what="this computation", have_=have, rule=rule))
    if isinstance(module, str):
        return TimedExecutable(None, _results_of(module), tuple(devices))
    seconds = _figures[0].seconds(module)
    if seconds is None:
        raise InternalError("the client has stated no time of a computation")
    return TimedExecutable(seconds, (), tuple(devices))


def _results_of(module: str) -> tuple[ArrayType, ...]:
    """Returns the result types of a small program (`transfers.program_text`)."""
    main: Any = parse(module, make_context()).body.operations[0]
    return tuple(from_mlir(type_) for type_ in main.type.results)


def devices_of(executable: Executable) -> list[Device]:
    return list(executable.local_devices())


def serialize(executable: Executable) -> bytes:
    raise RuntimeError("timed devices have no code")


def deserialize(raw: bytes, devices: Sequence[Device]) -> Executable:
    raise RuntimeError("timed devices have no code")


def give_up(device: Device, launch: int, message: str) -> bool:
    return False


def keep_for_ever(device: Device) -> None:
    """Does nothing: no client of a timed device has threads."""


def temporary_bytes(executable: Executable) -> int:
    return 0


def code_bytes(executable: Executable) -> int:
    return 0


def costs(executable: Executable) -> dict[str, float]:
    return {}


def result_handlers(types: Sequence[ArrayType], shardings: Sequence[Any]) -> Handlers:
    return list(zip(types, shardings, strict=True))


def putter(
    type_: ArrayType,
    where: Sharding,
    sharding: TimedSharding,
    devices: Sequence[Device],
    here: Sequence[int] | None = None,
    *,
    keeps: bool = False,
) -> "Callable[[np.ndarray[Any, Any]], DeviceArray]":
    return lambda host: TimedArray(type_, sharding, [NOW] * len(sharding.here))


def placer(
    type_: ArrayType, sharding: TimedSharding, devices: Sequence[Device], *, keeps: bool
) -> "Callable[[Sequence[np.ndarray[Any, Any]]], DeviceArray]":
    return lambda shards: TimedArray(type_, sharding, [NOW] * len(sharding.here))


def copy_shards(arrays: Sequence[DeviceArray], targets: Sequence[Device]) -> list[DeviceArray]:
    return [moved_to(array, target, _figures[0]) for array, target in zip(arrays, targets, strict=True)]


def copy_whole(array: DeviceArray, devices: Sequence[Device], sharding: TimedSharding) -> DeviceArray:
    copies = copy_shards(array.shards, TimedSharding(None, tuple(devices)).here)
    return TimedArray(array.type, sharding, [moment for copy in copies for moment in copy.moments])


def copy_again(array: DeviceArray) -> DeviceArray:
    return TimedArray(array.type, array.sharding, array.moments)


def assembler(type_: ArrayType, sharding: TimedSharding) -> Callable[[Sequence[DeviceArray]], DeviceArray]:
    return lambda shards: TimedArray(type_, sharding, [moment for shard in shards for moment in shard.moments])


def shard(array: DeviceArray, position: int) -> DeviceArray:
    return array.shards[position]


def shards_of(array: DeviceArray) -> Sequence[DeviceArray]:
    return array.shards


def again(shard: DeviceArray) -> DeviceArray:
    return shard


def start_copy_to_host(array: DeviceArray) -> None:
    """Does nothing: there are no values to copy."""


def to_host(array: DeviceArray) -> "np.ndarray[Any, Any]":
    """Waits for an array; returns zeros of its shape, which need no memory."""
    array.block_until_ready()
    return np.broadcast_to(np.zeros((), numpy_dtype(array.type.dtype)), array.type.shape)


def read_replica(array: DeviceArray, *, is_here: bool) -> "np.ndarray[Any, Any]":
    return to_host(array)


def shard_type(type_: ArrayType, sharding: Sharding) -> ArrayType:
    return ArrayType(sharding.shard_shape(type_.shape), type_.dtype)


def is_array(value: Any) -> bool:
    return isinstance(value, TimedArray)


def start_profile() -> Profile:
    """Begins to record when devices work."""
    spans: Profile = {}
    timed.SESSIONS.append(spans)
    return spans


def stop_profile(profile: Profile) -> Profile:
    """Ends a recording; returns start and end (nanoseconds of `time.perf_counter_ns`) by launch id and device."""
    timed.SESSIONS[:] = [spans for spans in timed.SESSIONS if spans is not profile]
    return dict(profile)


def ordinal(device: Device) -> int:
    return device.id
