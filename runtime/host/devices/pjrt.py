# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""PJRT through jaxlib: the compat module of the runtime, and the only one that touches jaxlib's runtime API.

Each name below is private or half-private; the public fallback for execution is `jax.stages.Compiled.__call__`, which
is 10-20 % slower and does not accept a plan's modules. Several of these calls kill the process when they are misused:
shapes, dtypes, device order, argument counts and donation are therefore checked in `check.py` and at the door
(`inputs.py`), never here.

* `xla_client.make_cpu_client(num_devices=n)`: devices of our own, apart from `jax.devices()`, which cannot grow.
* `compile_and_load(module, DeviceList, CompileOptions)`: the device list wins over the assignment; Shardy stays on.
* `execute_sharded`, `consume_with_handlers`, `global_aval_to_result_handler`: dispatch and its results.
* `batched_device_put`, `batched_copy_array_to_devices_with_sharding`: the only copies; never with donation.
* Iterating a `DeviceList`: jaxlib makes the class of the iterator at the first time, and another thread that iterates
  one meanwhile gets an object without `__next__`. Done where devices are made, here and in group.py: no thread has any.
* `TracebackScope`: where jaxlib stops when it notes the stack for each array that it makes; of one thread.
* `_profiler.ProfilerSession`: when a device worked on which launch; jax.profiler shows it in files only.
* `serialize`, `deserialize_executable`: the same code on other devices, 20 times cheaper than compiling again. Only
  with options, and with the same number of devices.
* `jaxlib.lapack.prepare_lapack_call`: JAX finds the functions of LAPACK when it lowers a call of one. Where another
  process lowered it, that was not done, and the call jumps to address 0.
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
"""A `jax.Array` on our devices: one sharded buffer, a future."""
Executable: TypeAlias = Any
Handlers: TypeAlias = list[Any]

_xc: Any = _xla_client
_core_any: Any = _core
_pxla_any: Any = _pxla
_array: Any = _ArrayImpl
_profiler: Any = importlib.import_module("jaxlib._profiler")

without_frames: Callable[[], contextlib.AbstractContextManager[Any]]
without_frames = getattr(_xla_client, "TracebackScope", contextlib.nullcontext)
"""A context in which arrays are made without a look at the functions on the stack outside of it.

Each array keeps what was on the stack when it was made, for memory profiles: 0.03 us a function and array.
"""

FAILURES: tuple[type[Exception], ...] = (jax.errors.JaxRuntimeError, ValueError, RuntimeError)
"""What PJRT raises when an execution or a copy fails."""


def make_devices(count: int) -> list[Device]:
    """Devices of a client of our own: of CPU, the one platform that makes them at will."""
    return_freed_memory()
    client: Any = _xc.make_cpu_client(num_devices=count)
    return _listed(client.devices())


def is_here(device: Device) -> bool:
    """Whether a device is of this process, and not only known here."""
    return device.process_index == device.client.process_index()


def host_devices() -> list[Device]:
    """The devices of JAX's default backend."""
    return _listed(jax.devices())


def _listed(devices: Sequence[Device]) -> list[Device]:
    """The devices, once jaxlib has the class of an iterator over them."""
    return list(_xc.DeviceList(tuple(devices)))


def default_platform() -> str:
    """The platform of JAX's default backend: cpu, gpu (whatever its vendor), tpu."""
    name: str = jax.default_backend()
    return name


def lowering_platform(platform: str) -> str:
    """The name under which JAX lowers for a platform: `gpu` is `cuda` or `rocm` there."""
    names = platform_named(platform).lowered_as
    if len(names) == 1:
        return names[0]
    device: Any = jax.devices()[0]
    said = str(device.client.platform_version).lower()
    return next((name for name in names if name in said), names[0])


def named_sharding(spec: MeshSpec, dims: Dims, devices: Sequence[Device]) -> NamedSharding:
    """The sharding over devices given in the order of the mesh, real or virtual."""
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

    `callbacks` are the functions that it calls, by index: a module that calls any must never run without them.
    """
    _find_lapack(module)
    if callbacks:
        parsed = from_portable(module) if isinstance(module, bytes) else parse(module, make_context())
        chosen = _xc.DeviceList(tuple(devices))
        return devices[0].client.compile_and_load(parsed, chosen, _options(devices), host_callbacks=list(callbacks))
    return devices[0].client.compile_and_load(module, _xc.DeviceList(tuple(devices)), _options(devices))


def _find_lapack(code: bytes | str) -> None:
    """Registers LAPACK's functions for a module that calls them; only then, since it imports SciPy."""
    if (b"lapack_" in code) if isinstance(code, bytes) else ("lapack_" in code):
        lapack: Any = importlib.import_module("jaxlib.lapack")
        lapack.prepare_lapack_call("getrf_ffi", np.dtype(np.float32))


def serialize(executable: Executable) -> bytes:
    """Serializes compiled code; raises one of FAILURES where the platform cannot."""
    return executable.serialize()


def deserialize(raw: bytes, devices: Sequence[Device]) -> Executable:
    """Loads serialized code for as many devices as it was compiled for: with another number the process dies."""
    _find_lapack(raw)
    return devices[0].client.deserialize_executable(raw, _xc.DeviceList(tuple(devices)), _options(devices))


def devices_of(executable: Executable) -> list[Device]:
    return list(executable.local_devices())


def give_up(device: Device, launch: int, message: str) -> bool:
    """Fails the results of executions with this launch id that wait or run on a device; returns whether there are any.

    CPU only. Waits for the results end with an error; a thread that is stuck inside of the execution stays there.
    """
    try:
        return bool(device.poison_execution(launch, message))
    except FAILURES:
        return False


def keep_for_ever(device: Device) -> None:
    """Keeps the PJRT client of a device alive: with a thread stuck inside, its destructor would wait for ever."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(device.client))


def temporary_bytes(executable: Executable) -> int:
    """Returns the bytes an execution needs on one device beside its arguments and results."""
    return int(executable.get_compiled_memory_stats().temp_size_in_bytes)


COSTS = ("flops", "transcendentals", "bytes accessed")


def costs(executable: Executable) -> dict[str, float]:
    """Returns the cost of an execution on each device, as XLA counts it: loops once. Empty where it does not count."""
    try:
        found: dict[str, float] = executable.cost_analysis()
    except FAILURES:
        return {}
    return {name: float(found[name]) for name in COSTS if name in found}


def code_bytes(executable: Executable) -> int:
    """Returns the size of the code on one device."""
    return int(executable.get_compiled_memory_stats().generated_code_size_in_bytes)


def result_handlers(types: Sequence[ArrayType], shardings: Sequence[Any]) -> Handlers:
    """Makes the handlers that turn an execution's results into arrays; once, at load."""
    return [_pxla_any.global_aval_to_result_handler(_aval(t), s, True) for t, s in zip(types, shardings, strict=True)]


def _aval(type_: ArrayType) -> Any:
    return _core_any.ShapedArray(type_.shape, numpy_dtype(type_.dtype))


def put(
    host: "np.ndarray[Any, Any]",
    type_: ArrayType,
    where: Sharding,
    sharding: NamedSharding,
    devices: Sequence[Device],
    here: Sequence[int] | None = None,
) -> DeviceArray:
    """Copies a host array to the devices of a mesh, to each its own shard. The host array may change afterwards.

    `here` are the positions of those that this process has; None: all. Raises InternalError where the devices hold
    another element type than `type_` states.
    """
    boxes = list(where.boxes(type_.shape))
    if here is not None:
        boxes, devices = [boxes[i] for i in here], [devices[i] for i in here]
    shards = [np.array(host[tuple(slice(p, q) for p, q in box)], order="C") for box in boxes]
    return placer(type_, sharding, devices)(shards)


def placer(
    type_: ArrayType, sharding: Any, devices: Sequence[Device]
) -> "Callable[[Sequence[np.ndarray[Any, Any]]], DeviceArray]":
    """Prepares to put shards on devices, each its own, as an array. The shards must not change afterwards.

    What it gives raises InternalError where the devices hold another element type than `type_` states.
    """
    aval, own = _aval(type_), list(devices)
    is_narrowed = type_.dtype in _NARROWED

    def place(shards: "Sequence[np.ndarray[Any, Any]]") -> DeviceArray:
        with jax.enable_x64(True) if is_narrowed else contextlib.nullcontext():
            array = _xc.batched_device_put(aval, sharding, list(shards), own)
        held = array._arrays[0].dtype
        if held != aval.dtype:  # the array itself repeats the type it was given; its shards have the real one
            raise InternalError(f"{type_} was put on devices as {held}")
        return array

    return place


_NARROWED = frozenset({"int64", "uint64", "float64", "complex128"})
"""Element types that JAX narrows to 32 bits, without a word, where `jax_enable_x64` is off in the thread."""


def copy_shards(arrays: Sequence[DeviceArray], targets: Sequence[Device]) -> list[DeviceArray]:
    """Copies single-device arrays, each to a device, in one batch; asynchronous, safe behind a pending producer."""
    return _xc.batched_copy_array_to_devices_with_sharding(
        list(arrays),
        [_xc.DeviceList((d,)) for d in targets],
        [SingleDeviceSharding(d) for d in targets],
        [_xc.ArrayCopySemantics.ALWAYS_COPY] * len(arrays),
    )


def copy_whole(array: DeviceArray, devices: Any, sharding: NamedSharding) -> DeviceArray:
    """Copies an array shard by shard to as many other devices; `devices` comes from `device_list`."""
    semantics = [_xc.ArrayCopySemantics.ALWAYS_COPY]
    return _xc.batched_copy_array_to_devices_with_sharding([array], [devices], [sharding], semantics)[0]


def copy_again(array: DeviceArray) -> DeviceArray:
    """Copies an array to where it lies: of one that several processes have, the shards of this one."""
    if array.is_fully_addressable:
        return copy_whole(array, device_list(list(array.sharding.mesh.devices.flat)), array.sharding)
    shards = shards_of(array)
    copies = copy_shards(shards, [s.device for s in shards])
    return _array(array.aval, array.sharding, copies, committed=True, _skip_checks=True)


def device_list(devices: Sequence[Device]) -> Any:
    return _xc.DeviceList(tuple(devices))


def assemble(type_: ArrayType, sharding: NamedSharding, shards: Sequence[DeviceArray]) -> DeviceArray:
    """Makes one array of single-device arrays that already lie right; no copy, no check."""
    return assembler(type_, sharding)(shards)


def assembler(type_: ArrayType, sharding: NamedSharding) -> Callable[[Sequence[DeviceArray]], DeviceArray]:
    """Prepares `assemble`; at load, since what JAX says of a type takes longer to make than the array."""
    aval = _aval(type_)
    return lambda shards: _array(aval, sharding, list(shards), committed=True, _skip_checks=True)


def shard(array: DeviceArray, position: int) -> DeviceArray:
    """Returns one shard as an array; no copy. (`addressable_data` gives the first shard of any replicated array.)"""
    return shards_of(array)[position]


def shards_of(array: DeviceArray) -> Sequence[DeviceArray]:
    """Returns all shards in the order of the mesh; no copy. Raises one of FAILURES where the array is deleted."""
    with _TAKING_APART:
        shards = array._arrays
    if shards is None:
        raise RuntimeError("the array has been deleted")
    return shards


_TAKING_APART = threading.RLock()
"""jaxlib 0.10 makes the list of shards when it is first asked for; of two threads that ask at once both fill the one
list, and whatever is read of it afterwards is wrong.
"""


def again(shard: DeviceArray) -> DeviceArray:
    """Makes another array of the same buffer: what is copied to the host is kept with the array that was asked."""
    return _array(shard.aval, shard.sharding, [shard], committed=True, _skip_checks=True)


def start_copy_to_host(array: DeviceArray) -> None:
    """Starts the copy to the host that a later `to_host` returns."""
    shards_of(array)
    array.copy_to_host_async()


def to_host(array: DeviceArray) -> "np.ndarray[Any, Any]":
    """Copies an array to the host; the copy is kept with it. Raises one of FAILURES where its computation failed.

    Waits first: to copy what has failed behind a stuck execution waits for that execution (jaxlib 0.10 and 0.12, seen).
    """
    array.block_until_ready()
    shards_of(array)  # before JAX asks
    try:
        return np.asarray(array)
    except TypeError:  # deleted between one shard and the next
        if not array.is_deleted():
            raise
        raise RuntimeError("the array has been deleted") from None


def shard_type(type_: ArrayType, sharding: Sharding) -> ArrayType:
    return ArrayType(sharding.shard_shape(type_.shape), type_.dtype)


def weakly_typed(array: DeviceArray) -> DeviceArray:
    """Returns a one-device array as weakly typed, like a Python number; no copy."""
    aval = _core_any.ShapedArray(array.shape, array.dtype, weak_type=True)
    return _array(aval, array.sharding, [array], committed=False, _skip_checks=True)


def on_device(device: Device) -> Any:
    return SingleDeviceSharding(device)


def is_array(value: Any) -> bool:
    return isinstance(value, _array)


Profile: TypeAlias = tuple[Any, int]
"""A session of XLA's profiler, and when it was anchored (nanoseconds of `time.perf_counter_ns`)."""


def start_profile() -> Profile:
    """Starts XLA's profiler; one at a time in a process. Python itself is not traced."""
    options = ProfileOptions()
    options.python_tracer_level = 0
    session: Any = _profiler.ProfilerSession(options)
    with TraceAnnotation(_ANCHOR):  # ties the profiler's clock to ours
        anchor = time.perf_counter_ns()
    return session, anchor


_ANCHOR = "pathways anchor"


def stop_profile(profile: Profile) -> dict[tuple[int, int], tuple[int, int]]:
    """Stops the profiler; returns first start and last end, on our clock, of each launch id on each ordinal."""
    session, anchor = profile
    with warnings.catch_warnings():  # the first look at stats warns, and as an error that kills the process
        warnings.simplefilter("ignore")
        events = read_events(ProfileData.from_serialized_xspace(session.stop()).planes, _ANCHOR)
    anchored = next((event.begin for event in events if event.name.startswith(_ANCHOR)), None)
    if anchored is None:
        return {}
    shift = anchor - anchored
    return {key: (int(begin + shift), int(end + shift)) for key, (begin, end) in launch_spans(events).items()}


def ordinal(device: Device) -> int:
    """Returns the number that the profiler has for a device: in its process, or in all of those of one client."""
    return int(device.local_hardware_id if device.process_index == 0 else device.id)
