# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Wraps jaxlib's PJRT runtime: devices, compilation, execution, copies. No other module of the runtime may call
jaxlib's runtime API.

Each name below is private or half-private. The public fallback for execution is `jax.stages.Compiled.__call__`, which
is 10-20 % slower and does not accept a plan's modules. Several of these calls kill the process if they are misused. So
`check.py` and `inputs.py` check shapes, dtypes, device order, argument counts and donation; this module never does.

* `xla_client.make_cpu_client(num_devices=n)`: our own devices, separate from `jax.devices()`, which cannot grow.
* `compile_and_load(module, DeviceList, CompileOptions)`: the device list wins over the assignment; Shardy stays on.
* `execute_sharded`, `consume_with_handlers`, `global_aval_to_result_handler`: dispatch and its results.
* `batched_device_put`, `batched_copy_array_to_devices_with_sharding`: the only copies; never with donation.
* Iterating a `DeviceList`: jaxlib creates the iterator's class at the first use. Threads that iterate one meanwhile get
  objects without `__next__`. So new devices are iterated once, here and in group.py, before any thread has them.
* `TracebackScope`: limits the stack that jaxlib records for each array that a thread creates.
* `_profiler.ProfilerSession`: when a device worked on which launch; jax.profiler only writes this to files.
* `serialize`, `deserialize_executable`: load code on other devices, 20 times cheaper than compiling again. They need
  the compile options and the same number of devices.
* `jaxlib.lapack.prepare_lapack_call`: registers LAPACK's functions. JAX does this when it lowers a call of one. If
  another process lowered the call, they are not registered, and the call jumps to address 0.
"""

import contextlib
import ctypes
import importlib
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
import numpy as np
from jax._src import core as _core
from jax._src.array import ArrayImpl as _ArrayImpl
from jax._src.interpreters import pxla as _pxla
from jax.profiler import ProfileData, ProfileOptions, TraceAnnotation
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding
from jaxlib import xla_client as _xla_client

from pathways.dialect.diagnostics import InternalError
from pathways.dialect.dtypes import ArrayType, numpy_dtype
from pathways.dialect.mlir import from_portable, make_context, parse
from pathways.dialect.platforms import platform_named
from pathways.dialect.sharding import Dims, MeshSpec, Sharding
from pathways.runtime.host.devices.freed_memory import return_freed_memory
from pathways.runtime.host.devices.profiled import launch_spans, read_events

Device: TypeAlias = Any
DeviceArray: TypeAlias = Any
"""A `jax.Array` on our devices: one sharded buffer that may still be pending."""
Executable: TypeAlias = Any
Handlers: TypeAlias = list[Any]
on_device: Any = SingleDeviceSharding

_xc: Any = _xla_client
_core_any: Any = _core
_pxla_any: Any = _pxla
LocalArray: Any = _ArrayImpl
_SEMANTICS: Any = importlib.import_module("jaxlib._jax").HostBufferSemantics
_profiler: Any = importlib.import_module("jaxlib._profiler")

without_frames: Callable[[], contextlib.AbstractContextManager[Any]]
without_frames = getattr(_xla_client, "TracebackScope", contextlib.nullcontext)
"""A context in which new arrays do not record the stack frames outside of the context.

JAX records the stack of each new array for memory profiles, which costs 0.03 us per frame and array.
"""

FAILURES: tuple[type[Exception], ...] = (jax.errors.JaxRuntimeError, ValueError, RuntimeError)
"""Exceptions that PJRT raises if an execution or a copy fails."""
COSTS = ("flops", "transcendentals", "bytes accessed")


def make_devices(count: int) -> list[Device]:
    """Creates CPU devices in a new PJRT client. CPU is the only platform that creates devices on demand."""
    return_freed_memory()
    client: Any = _xc.make_cpu_client(num_devices=count)
    return _listed(client.devices())


def is_here(device: Device) -> bool:
    """Returns whether a device belongs to this process."""
    return device.process_index == device.client.process_index()


def is_on_host(device: Device) -> bool:
    return platform_named(device.platform).on_host


def host_devices() -> list[Device]:
    """Returns the devices of JAX's default backend."""
    return _listed(jax.devices())


def _listed(devices: Sequence[Device]) -> list[Device]:
    """Lists devices through a `DeviceList`, so that jaxlib creates the iterator's class."""
    return list(_xc.DeviceList(tuple(devices)))


def default_platform() -> str:
    """Returns the platform of JAX's default backend: cpu, gpu (of any vendor) or tpu."""
    return str(jax.default_backend())


def lowering_platform(platform: str) -> str:
    """Returns JAX's lowering name of a platform: `cuda` or `rocm` for `gpu`."""
    names = platform_named(platform).lowered_as
    if len(names) == 1:
        return names[0]
    device: Any = jax.devices()[0]
    version = str(device.client.platform_version).lower()
    return next((name for name in names if name in version), names[0])


def named_sharding(spec: MeshSpec, dims: Dims, devices: Sequence[Device]) -> NamedSharding:
    """Builds a JAX sharding over real or virtual devices given in mesh order."""
    grid = np.empty(spec.size, dtype=object)
    grid[:] = list(devices)
    mesh = Mesh(grid.reshape(spec.shape), tuple(name for name, _ in spec.axes))
    entries = [axes[0] if len(axes) == 1 else (axes or None) for axes in dims]
    return NamedSharding(mesh, PartitionSpec(*entries))


def _options(devices: Sequence[Device]) -> Any:
    options = _xc.CompileOptions()
    options.num_replicas, options.num_partitions = 1, len(devices)
    build = options.executable_build_options
    build.use_spmd_partitioning = True
    build.use_shardy_partitioner = True
    ids = np.array([[d.id for d in devices]], np.int32)
    options.device_assignment = _xc.DeviceAssignment.create(ids)
    if chosen := platform_named(devices[0].platform).compile_options:
        options.env_option_overrides = list(chosen.items())
    return options


def compile_module(
    module: bytes | str, devices: Sequence[Device], callbacks: Sequence[Callable[..., Any]] = ()
) -> Executable:
    """Compiles StableHLO (text, bytecode or portable) for exactly these devices, in this order.

    `callbacks` are the host functions that the module calls, by index. The module must not run without them.
    """
    _find_lapack(module)
    if callbacks:
        parsed = from_portable(module) if isinstance(module, bytes) else parse(module, make_context())
        chosen = _xc.DeviceList(tuple(devices))
        return devices[0].client.compile_and_load(parsed, chosen, _options(devices), host_callbacks=list(callbacks))
    return devices[0].client.compile_and_load(module, _xc.DeviceList(tuple(devices)), _options(devices))


def _find_lapack(code: bytes | str) -> None:
    """Registers LAPACK's functions, only if a module calls them, since it imports SciPy."""
    if (b"lapack_" in code) if isinstance(code, bytes) else ("lapack_" in code):
        lapack: Any = importlib.import_module("jaxlib.lapack")
        lapack.prepare_lapack_call("getrf_ffi", np.dtype(np.float32))


def serialize(executable: Executable) -> bytes:
    """Serializes compiled code. Raises one of FAILURES if the platform cannot."""
    return executable.serialize()


def deserialize(raw: bytes, devices: Sequence[Device]) -> Executable:
    """Loads serialized code. The number of devices must equal that at compilation, or the process dies."""
    _find_lapack(raw)
    return devices[0].client.deserialize_executable(raw, _xc.DeviceList(tuple(devices)), _options(devices))


def devices_of(executable: Executable) -> list[Device]:
    return list(executable.local_devices())


def give_up(device: Device, launch: int, message: str) -> bool:
    """Fails the results of executions with this launch id on a device; returns whether there were any.

    CPU only. Waits for the results end with an error. A thread that is stuck inside the execution stays stuck.
    """
    try:
        return bool(device.poison_execution(launch, message))
    except FAILURES:
        return False


def keep_for_ever(device: Device) -> None:
    """Keeps the PJRT client of a device alive. With a thread stuck inside, its destructor would wait forever."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(device.client))


def temporary_bytes(executable: Executable) -> int:
    """Returns the bytes that an execution needs on one device in addition to its arguments and results."""
    return int(executable.get_compiled_memory_stats().temp_size_in_bytes)


def costs(executable: Executable) -> dict[str, float]:
    """Returns XLA's cost of an execution per device, with each loop counted once. Empty if XLA does not count it."""
    try:
        found: dict[str, float] = executable.cost_analysis()
    except FAILURES:
        return {}
    return {name: float(found[name]) for name in COSTS if name in found}


def code_bytes(executable: Executable) -> int:
    """Returns the size of the code on one device."""
    return int(executable.get_compiled_memory_stats().generated_code_size_in_bytes)


def result_handlers(types: Sequence[ArrayType], shardings: Sequence[Any]) -> Handlers:
    """Creates the handlers that turn an execution's results into arrays. Called at load, not per run."""
    return [_pxla_any.global_aval_to_result_handler(_aval(t), s, True) for t, s in zip(types, shardings, strict=True)]


def _aval(type_: ArrayType) -> Any:
    return _core_any.ShapedArray(type_.shape, numpy_dtype(type_.dtype))


def putter(
    type_: ArrayType,
    where: Sharding,
    sharding: NamedSharding,
    devices: Sequence[Device],
    here: Sequence[int] | None = None,
    *,
    keeps: bool = False,
) -> "Callable[[np.ndarray[Any, Any]], DeviceArray]":
    """Prepares to copy host arrays of one type to the devices of a mesh, one shard to each.

    With `keeps`, the host array must not change later: CPU devices may share its memory. XLA copies it for a run that
    overwrites the array (tested with jaxlib 0.10). `here` are the positions of this process's devices; None: all.
    """
    chosen = range(len(devices)) if here is None else here
    boxes, whole = where.boxes(type_.shape), tuple((0, size) for size in type_.shape)
    place = placer(type_, sharding, [devices[i] for i in chosen], keeps=keeps)
    if all(tuple(boxes[i]) == whole for i in chosen):  # also an array without dimensions, which has no slices
        return lambda host: place([host] * len(chosen))
    cuts = [tuple(slice(p, q) for p, q in boxes[i]) for i in chosen]
    return lambda host: place([host[cut] for cut in cuts])


def placer(
    type_: ArrayType, sharding: Any, devices: Sequence[Device], *, keeps: bool
) -> "Callable[[Sequence[np.ndarray[Any, Any]]], DeviceArray]":
    """Prepares to put host shards on devices, one on each, as an array. With `keeps`, the shards must not change later.

    The returned function raises InternalError for shards of another element type.
    """
    aval, own, dtype, put = _aval(type_), list(devices), numpy_dtype(type_.dtype), _xc.batched_device_put
    shares, copies = _SEMANTICS.ZERO_COPY, _SEMANTICS.IMMUTABLE_ONLY_DURING_CALL

    def place(shards: "Sequence[np.ndarray[Any, Any]]") -> DeviceArray:
        for shard in shards:
            if shard.dtype != dtype:  # the array would have the bytes of one type, and the name of another
                raise InternalError(f"{shard.dtype} was to be put on devices as {type_}")
        semantics = shares
        if keeps:
            shards = [np.asarray(shard, order="C") for shard in shards]
        elif len(shards) == 1 and shards[0].flags.c_contiguous:
            semantics = copies  # jaxlib 0.10 cannot copy the same memory to two devices at once
        else:
            own_copies = {id(shard): np.array(shard, order="C") for shard in shards}
            shards = [own_copies[id(shard)] for shard in shards]
        return put(aval, sharding, shards, own, True, False, semantics, True)  # True: keep 64-bit types

    return place


def copy_shards(arrays: Sequence[DeviceArray], targets: Sequence[Device]) -> list[DeviceArray]:
    """Copies single-device arrays, one to each target, in one asynchronous batch. The arrays may still be pending."""
    return _xc.batched_copy_array_to_devices_with_sharding(
        list(arrays),
        [_xc.DeviceList((d,)) for d in targets],
        [SingleDeviceSharding(d) for d in targets],
        [_xc.ArrayCopySemantics.ALWAYS_COPY] * len(arrays),
    )


def copy_whole(array: DeviceArray, devices: Any, sharding: NamedSharding) -> DeviceArray:
    """Copies an array shard by shard to the same number of other devices. `devices` comes from `device_list`."""
    semantics = [_xc.ArrayCopySemantics.ALWAYS_COPY]
    return _xc.batched_copy_array_to_devices_with_sharding([array], [devices], [sharding], semantics)[0]


def copy_again(array: DeviceArray) -> DeviceArray:
    """Copies an array onto its own devices. Of an array shared by several processes, copies the shards here."""
    if array.is_fully_addressable:
        return copy_whole(array, device_list(list(array.sharding.mesh.devices.flat)), array.sharding)
    shards = shards_of(array)
    copies = copy_shards(shards, [s.device for s in shards])
    return LocalArray(array.aval, array.sharding, copies, committed=True, _skip_checks=True)


def device_list(devices: Sequence[Device]) -> Any:
    return _xc.DeviceList(tuple(devices))


def assembler(type_: ArrayType, sharding: NamedSharding) -> Callable[[Sequence[DeviceArray]], DeviceArray]:
    """Prepares to combine single-device arrays, already on the right devices, into one array. No copy, no check."""
    aval = _aval(type_)
    return lambda shards: LocalArray(aval, sharding, list(shards), committed=True, _skip_checks=True)


def shard(array: DeviceArray, position: int) -> DeviceArray:
    """Returns one shard as an array; no copy. (`addressable_data` gives the first shard of any replicated array.)"""
    return shards_of(array)[position]


def shards_of(array: DeviceArray) -> Sequence[DeviceArray]:
    """Returns all shards in mesh order; no copy. Raises one of FAILURES if the array is deleted."""
    with _TAKING_APART:
        shards = array._arrays
    if shards is None:
        raise RuntimeError("the array has been deleted")
    return shards


_TAKING_APART = threading.RLock()
"""Guards the list of shards, which jaxlib 0.10 builds at the first request. Two threads that request it at once both
fill the same list, and later reads are wrong.
"""


def again(shard: DeviceArray) -> DeviceArray:
    """Creates another array of the same buffer. JAX caches a host copy in the array, so the original caches none."""
    return LocalArray(shard.aval, shard.sharding, [shard], committed=True, _skip_checks=True)


def start_copy_to_host(array: DeviceArray) -> None:
    """Starts the copy to the host that a later `to_host` returns."""
    shards_of(array)
    array.copy_to_host_async()


def to_host(array: DeviceArray) -> "np.ndarray[Any, Any]":
    """Copies an array to the host and caches the copy in it. Raises one of FAILURES if its computation failed.

    Waits for the array first: a copy of a failed array waits for an earlier stuck execution (jaxlib 0.10, 0.12, seen).
    """
    array.block_until_ready()
    shards_of(array)  # under the lock, before JAX builds the list
    try:
        return np.asarray(array)
    except TypeError:  # deleted during the copy, between two shards
        if not array.is_deleted():
            raise
        raise RuntimeError("the array has been deleted") from None


def read_replica(array: DeviceArray, *, is_here: bool) -> "np.ndarray[Any, Any]":
    """Reads a replicated array without a copy on CPU, else like `to_host`. `is_here`: all of its devices are here."""
    array.block_until_ready()
    return np.asarray(array if is_here else shard(array, 0))


def shard_type(type_: ArrayType, sharding: Sharding) -> ArrayType:
    return ArrayType(sharding.shard_shape(type_.shape), type_.dtype)


def weakly_typed(array: DeviceArray) -> DeviceArray:
    """Returns a one-device array as weakly typed, like a Python number; no copy."""
    aval = _core_any.ShapedArray(array.shape, array.dtype, weak_type=True)
    return LocalArray(aval, array.sharding, [array], committed=False, _skip_checks=True)


def is_array(value: Any) -> bool:
    return isinstance(value, LocalArray)


_ANCHOR = "pathways anchor"
Profile: TypeAlias = tuple[Any, int]
"""A session of XLA's profiler, and the time of its anchor event (`time.perf_counter_ns`)."""


def start_profile() -> Profile:
    """Starts XLA's profiler, at most one in a process. Python itself is not traced."""
    options = ProfileOptions()
    options.python_tracer_level = 0
    session: Any = _profiler.ProfilerSession(options)
    with TraceAnnotation(_ANCHOR):  # relates the profiler's clock to ours
        anchor = time.perf_counter_ns()
    return session, anchor


def stop_profile(profile: Profile) -> dict[tuple[int, int], tuple[int, int]]:
    """Stops the profiler; returns first start and last end, on our clock, of each (launch id, device ordinal)."""
    session, anchor = profile
    with warnings.catch_warnings():  # the first read of stats warns; as an error, the warning kills the process
        warnings.simplefilter("ignore")
        events = read_events(ProfileData.from_serialized_xspace(session.stop()).planes, _ANCHOR)
    anchored = next((event.begin for event in events if event.name.startswith(_ANCHOR)), None)
    if anchored is None:
        return {}
    shift = anchor - anchored
    return {key: (int(begin + shift), int(end + shift)) for key, (begin, end) in launch_spans(events).items()}


def ordinal(device: Device) -> int:
    """Returns the profiler's number of a device: local in process 0, global in other processes of a group."""
    return int(device.local_hardware_id if device.process_index == 0 else device.id)
