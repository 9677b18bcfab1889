"""Answers the requests of a client about arrays: values from and to the host, copies, shards, deletion.

`session.py` calls the functions through a table. Each takes the session's state, the request and the response to fill.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.dtypes import ArrayType, numpy_dtype
from pathways.ifrt_proxy.arrays import ClientArray, FailedArray, GoodArray, ShardView, StoredArray, later_wait
from pathways.ifrt_proxy.element_types import read_dtype
from pathways.ifrt_proxy.host_buffers import array_of, as_bytes
from pathways.ifrt_proxy.session_state import Rest, SessionState, refused
from pathways.ifrt_proxy.shardings import DEVICE_MEMORY, Location, has_location, read_location

MAX_ARRAY_BYTES = 1 << 36
"""The largest array that a client may name."""
DONATE_INPUT = 3
"""ARRAY_COPY_SEMANTICS_DONATE_INPUT."""


def check_values(state: SessionState, body: Any, filled: Any) -> Rest | None:
    arrays = [state.array(handle) for handle in body.value_handles]
    if not all(array.is_ready() for array in arrays):
        return later_wait(arrays)
    for array in arrays:
        array.wait()
    return None


def _type_of(dtype: Any, shape: Any) -> ArrayType:
    return _checked(ArrayType(tuple(shape.dims), read_dtype(dtype)))


def _checked(type_: ArrayType) -> ArrayType:
    if any(d < 0 for d in type_.shape) or type_.bytes > MAX_ARRAY_BYTES:
        raise ValueError(f"an array of shape {list(type_.shape)}")
    return type_


def _strides(message: Any) -> list[int] | None:
    return list(message.byte_strides.strides) if message.HasField("byte_strides") else None


def put_array(state: SessionState, body: Any, filled: Any) -> None:
    type_ = _type_of(body.dtype, body.shape)
    location = read_location(body.sharding, type_.shape)
    values = array_of(state.buffers.take(body.host_buffer_handle), type_.dtype, type_.shape, _strides(body))
    filled.array_handle = state.keep(state.maker.put(values, type_, location, keeps=True), body.array_handle)


def put_shards(state: SessionState, body: Any, filled: Any) -> None:
    made: list[ClientArray] = []
    for spec in body.specs:
        type_ = _type_of(spec.array_spec.dtype, spec.array_spec.shape)
        location = read_location(spec.array_spec.sharding, type_.shape)
        shards = [
            array_of(state.buffers.take(b.host_buffer_handle), type_.dtype, tuple(b.shape.dims), _strides(b))
            for b in spec.host_buffers
        ]
        places = [list(one.indices) for one in spec.addressable_shard_indices]
        made.append(state.maker.put_shards(shards, places, type_, location, keeps=True))
    filled.array_handles.extend(state.keep_all(made, body.array_handles))


def assemble(state: SessionState, body: Any, filled: Any) -> None:
    parts = [state.good_array(handle) for handle in body.single_device_array_handles]
    if not parts:
        raise refused("arrays without shards", "an array of no shards")
    type_ = _checked(ArrayType(tuple(body.shape.dims), parts[0].type.dtype))
    location = read_location(body.sharding, type_.shape)
    made: ClientArray
    if len(parts) == 1 and parts[0].location.devices == location.devices:
        made = parts[0].share()
    elif (whole := _whole_of(parts, location)) is not None:
        made = whole.share()
    else:
        made = state.maker.put_shards([p.fetch() for p in parts], [[i] for i in range(len(parts))], type_, location)
    _donate(parts, body.copy_semantics)
    filled.array_handle = state.keep(made, body.result_handle)


def _whole_of(parts: Sequence[ClientArray], location: Location) -> StoredArray | None:
    """Returns the array whose shards these are, in order; None if they come from several arrays."""
    first = parts[0]
    if not isinstance(first, ShardView) or first.whole.location != location or len(parts) != len(location.devices):
        return None
    buffer = first.whole.handle.buffer
    same = all(
        isinstance(part, ShardView) and part.whole.handle.buffer is buffer and part.position == position
        for position, part in enumerate(parts)
    )
    return first.whole if same else None


def _donate(arrays: Sequence[ClientArray], semantics: int) -> None:
    if semantics == DONATE_INPUT:
        for array in arrays:
            array.delete()


def disassemble(state: SessionState, body: Any, filled: Any) -> None:
    array = state.good_array(body.array_handle)
    parts = _shards(array, len(array.location.devices))
    filled.array_handles.extend(state.keep_all(parts, body.result_handles))


def _shards(array: GoodArray, count: int) -> list[GoodArray]:
    """Returns the first shards of an array, as arrays on one device each; they hold its buffer."""
    if isinstance(array, StoredArray) and len(array.location.devices) > 1:
        return [ShardView(array.share(), i) for i in range(count)]
    return [array.share()]


def replicated_shard(state: SessionState, body: Any, filled: Any) -> None:
    array = state.good_array(body.array_handle)
    filled.array_handle = state.keep(_shards(array, 1)[0], body.result_handle)


def copy(state: SessionState, body: Any, filled: Any) -> None:
    if body.memory_kind not in ("", DEVICE_MEMORY):
        raise refused("other memories than that of the devices", f"a copy to the memory {body.memory_kind}")
    given = [state.good_array(handle) for handle in body.array_handles]
    made = [state.maker.move(a, _on_devices(a.location, tuple(body.device_ids))) for a in given]
    _donate(given, body.copy_semantics)
    filled.array_handles.extend(state.keep_all(made, body.result_handles))


def _on_devices(location: Location, devices: tuple[int, ...]) -> Location:
    if not devices or len(devices) == len(location.devices):
        return Location(devices or location.devices, location.sharding)
    raise refused("copies to other counts", f"a copy of {len(location.devices)} shards to {len(devices)} devices")


def reshard(state: SessionState, body: Any, filled: Any) -> None:
    given = [state.good_array(handle) for handle in body.array_handles]
    made = [
        state.maker.move(a, read_location(spec.sharding, a.type.shape))
        for a, spec in zip(given, body.array_specs, strict=True)
    ]
    _donate(given, body.copy_semantics)
    filled.array_handles.extend(state.keep_all(made, body.result_handles))


def remap(state: SessionState, body: Any, filled: Any) -> None:
    """Lists the shards of arrays in another order of the same devices, as JAX does if a mesh permutes its devices."""
    given = {number: state.good_array(handle) for number, handle in enumerate(body.array_handles)}
    found = [_remapped(number, spec, body.plan, given) for number, spec in enumerate(body.plan.output_specs)]
    made: list[ClientArray] = []
    for array, location in found:
        shared = array.share()
        made.append(replace(shared, location=location) if isinstance(shared, StoredArray) else shared)
    filled.array_handles.extend(state.keep_all(made, body.result_handles))
    _donate([*given.values()], body.copy_semantics)


def _remapped(number: int, spec: Any, plan: Any, given: Mapping[int, GoodArray]) -> tuple[GoodArray, Location]:
    """Returns the array that has the shards of an output, and its location in the order that the output states."""
    mappings = [one for one in plan.mappings if one.out_array == number]
    if len(mappings) != 1:
        raise refused("arrays that are joined from shards of several arrays", f"{len(mappings)} parts of an array")
    array = given[mappings[0].in_array]
    location = array.location.reordered(_mapped(mappings[0], len(array.location.devices)))
    stated = [one for each in plan.input_devices_for_output if each.out_array == number for one in each.input_devices]
    if any(
        (one.in_array, tuple(one.device_list.device_ids)) != (mappings[0].in_array, location.devices) for one in stated
    ):
        raise refused("shards that move to other devices", f"an array on {location.devices}")
    if _type_of(spec.dtype, spec.shape) != array.type or not has_location(spec.sharding, array.type.shape, location):
        raise refused("shards that move to other devices or parts of an array", f"an array on {location.devices}")
    return array, location


def _mapped(mapping: Any, count: int) -> list[int]:
    """Returns the input shard of each output shard. Raises ValueError unless each shard is used once."""
    taken = _positions(mapping.from_start, mapping.from_end, mapping.from_step, count)
    placed = _positions(mapping.to_start, mapping.to_end, mapping.to_step, count)
    if not sorted(taken) == sorted(placed) == list(range(count)):
        raise ValueError(f"the shards {taken} for {placed}")
    return [taken[placed.index(position)] for position in range(count)]


def _positions(starts: Any, ends: Any, steps: Any, count: int) -> list[int]:
    """Lists at most `count` + 1 positions of each interval, because a client may state any interval."""
    return [
        i for start, end, step in zip(starts, ends, steps, strict=True) for i in range(start, end, step)[: count + 1]
    ]


def bitcast(state: SessionState, body: Any, filled: Any) -> None:
    """Makes arrays of other types and shapes from the bytes of each shard. JAX's own programs do not ask for it."""
    given = [state.good_array(handle) for handle in body.array_handles]
    made = [_bitcast(state, *of) for of in zip(given, body.array_specs, strict=True)]
    filled.array_handles.extend(state.keep_all(made, body.result_handles))
    _donate(given, body.copy_semantics)


def _bitcast(state: SessionState, array: GoodArray, spec: Any) -> ClientArray:
    type_ = _type_of(spec.dtype, spec.shape)
    location = read_location(spec.sharding, type_.shape)
    if location.devices != array.location.devices:
        raise refused("shards that move to other devices", f"an array on the devices {array.location.devices}")
    shape, dtype = location.sharding.shard_shape(type_.shape), numpy_dtype(type_.dtype)
    parts = _shards(array, len(location.devices))
    try:
        shards = [as_bytes(part.fetch()).view(dtype).reshape(shape) for part in parts]
    finally:
        for part in parts:
            part.drop()
    return state.maker.put_shards(shards, [[position] for position in range(len(shards))], type_, location)


def make_errors(state: SessionState, body: Any, filled: Any) -> None:
    error = refused("failed values of clients", f"a value that its client could not make: {body.error.message}")
    made = [FailedArray(error) for _ in body.array_specs]
    filled.array_handles.extend(state.keep_all(made, body.array_handles))


def fetch(state: SessionState, body: Any, filled: Any) -> Rest:
    held = state.array(body.array_handle).share()

    def copy_to_host() -> None:
        try:
            state.buffers.put(body.host_buffer_handle, _bytes_of(held.fetch(), _strides(body)))
        finally:
            held.drop()

    return copy_to_host


def _bytes_of(values: "np.ndarray[Any, Any]", strides: list[int] | None) -> "np.ndarray[Any, Any]":
    """Returns the elements of an array in the order of these strides. Raises PWC0940 for strides with gaps."""
    if strides is None or values.size <= 1 or (values.flags.c_contiguous and list(values.strides) == strides):
        return as_bytes(values)
    order = sorted(range(values.ndim), key=lambda i: -abs(strides[i]))
    dense = np.ascontiguousarray(values.transpose(order))
    found = [dense.strides[order.index(i)] for i in range(values.ndim)]
    if any(a != b for a, b, size in zip(found, strides, values.shape, strict=True) if size > 1):
        raise refused("strides with gaps", f"a copy with the strides {strides}")
    return as_bytes(dense)


def delete(state: SessionState, body: Any, filled: Any) -> None:
    missing: Exception | None = None
    for handle in body.array_handle:
        try:
            state.array(handle).delete()
        except PathwaysError as error:  # the others are deleted all the same
            missing = error
    if missing is not None:
        raise missing
    filled.deletion_future_handle = state.future(lambda: None)


def destruct(state: SessionState, body: Any, filled: Any) -> None:
    for handle in body.array_handle:
        state.forget(handle)


def is_deleted(state: SessionState, body: Any, filled: Any) -> None:
    filled.deleted = state.array(body.array_handle).is_deleted
