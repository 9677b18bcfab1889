"""Answers the requests of a client about executables: compile, describe, execute.

`session.py` calls the functions through a table. Each takes the session's state, the request and the response to fill.
"""

from typing import Any

from pathways.ifrt_proxy.arrays import later_wait
from pathways.ifrt_proxy.element_types import write_dtype
from pathways.ifrt_proxy.errors import write_status
from pathways.ifrt_proxy.session_state import Rest, SessionState, refused
from pathways.ifrt_proxy.shardings import DEVICE_MEMORY, write_location, write_tiles


def compile(state: SessionState, body: Any, filled: Any) -> None:
    executable = state.executables.compile(body)
    filled.loaded_executable_handle = state.load(executable)
    filled.name = executable.name
    filled.num_devices = len(executable.devices)
    filled.device_ids.extend(executable.devices)
    filled.addressable_device_ids.extend(executable.devices)
    filled.fingerprint_value = executable.fingerprint
    filled.ready_future_handle = state.future(lambda: None)


def metadata(state: SessionState, body: Any, filled: Any) -> None:
    executable = state.executable(body.loaded_executable_handle)
    sides = (
        (executable.parameters, filled.parameter_shardings, filled.parameter_layouts_list),
        (executable.results, filled.output_shardings, filled.output_layouts_list),
    )
    for ports, shardings, layouts in sides:
        shardings.SetInParent()
        layouts.SetInParent()
        for type_, location in ports:
            write_tiles(location.sharding.mesh, location.sharding.dims, shardings.shardings.add())
            layouts.layouts.append(_layout(len(type_.shape)))
    write_status(None, filled.output_memory_kinds.status)
    kinds = filled.output_memory_kinds.memory_kind_lists.add()
    kinds.memory_kinds.extend([DEVICE_MEMORY] * len(executable.results))
    filled.donated_input_indices.SetInParent()
    filled.donated_input_indices.donated_input_indices.extend(executable.donated)
    found = executable.compiled.memory_analysis()
    stats = filled.compiled_memory_stats
    stats.SetInParent()
    stats.argument_size_in_bytes = found.argument_size_in_bytes
    stats.output_size_in_bytes = found.output_size_in_bytes
    stats.alias_size_in_bytes = found.alias_size_in_bytes
    stats.temp_size_in_bytes = found.temp_size_in_bytes
    stats.generated_code_size_in_bytes = found.generated_code_size_in_bytes
    of_mpmd = refused("MPMD programs of clients", "the memory of an MPMD program")
    write_status(of_mpmd, filled.mpmd_compiled_memory_stats_error)


def _layout(rank: int) -> bytes:
    """Serializes a LayoutProto: minor to major, as XLA lays out arrays by default."""
    return bytes([0x0A, rank, *reversed(range(rank))]) if rank else b""


def costs(state: SessionState, body: Any, filled: Any) -> None:
    executable = state.executable(body.loaded_executable_handle)
    for name, value in executable.compiled.cost_analysis().items():
        filled.attributes.attributes[name].float_value = value
    filled.attributes.SetInParent()


def text(state: SessionState, body: Any, filled: Any) -> None:
    filled.human_readable_program_text = state.executable(body.loaded_executable_handle).compiled.summary()


def execute(state: SessionState, body: Any, filled: Any) -> None:
    executable = state.executable(body.loaded_executable_handle)
    kept = frozenset(body.execute_options.non_donatable_input_indices)
    results = executable.run(state.maker, [state.array(handle) for handle in body.args_handles], kept)

    if body.result_status_handle or body.execute_options.fill_status:
        filled.status_handle = state.future(later_wait(results), body.result_status_handle)
    handles = state.keep_all(results, body.result_array_handle)
    if body.result_array_handle:
        return  # a client that has chosen handles knows the results from an earlier response
    for array, handle in zip(results, handles, strict=True):
        output = filled.outputs.add(array_handle=handle)
        write_dtype(array.type.dtype, output.dtype)
        output.shape.dims.extend(array.type.shape)
        write_location(array.location, output.sharding)


def fetch_result(state: SessionState, body: Any, filled: Any) -> Rest:
    return state.take_future(body.result_status_handle)


def destruct_executable(state: SessionState, body: Any, filled: Any) -> None:
    state.unload(body.loaded_executable_handle)


def assignment(state: SessionState, body: Any, filled: Any) -> None:
    if body.num_replicas > 1 or body.num_partitions > state.devices.count:
        raise refused("this device assignment", f"{body.num_replicas} replicas of {body.num_partitions} devices")
    assigned = filled.device_assignment
    assigned.replica_count, assigned.computation_count = 1, body.num_partitions
    for device in range(body.num_partitions):
        assigned.computation_devices.add(replica_device_ids=[device])


def default_layout(state: SessionState, body: Any, filled: Any) -> None:
    filled.serialized_pjrt_layout = f"{{{','.join(map(str, reversed(range(len(body.dims)))))}}}".encode()
