"""Tests a proxy by single requests, also such as JAX's client never sends."""

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import grpc
import numpy as np
import pytest
from support.clusters import becomes
from support.proxy_client import DONATING, compiled, on_device, over, put, raw_client

import pathways as pw
from pathways.ifrt_proxy.serving import Proxy

INVALID, UNKNOWN, UNIMPLEMENTED = 3, 5, 12
"""The status codes INVALID_ARGUMENT, NOT_FOUND and UNIMPLEMENTED."""
RPC_ERROR: Any = grpc.RpcError


@pytest.fixture(scope="module")
def served() -> Iterator[Proxy]:
    with pw.proxy(devices=4) as served:
        yield served


def test_a_session_names_only_its_own_handles(served: Proxy) -> None:
    with raw_client(served.address) as one, raw_client(served.address) as other:
        put(one, 9)
        assert one.code_of(check_value_ready_request={"value_handles": [9]}) == 0
        for request in (
            {"check_value_ready_request": {"value_handles": [9]}},
            {"copy_to_host_buffer_request": {"array_handle": 9, "host_buffer_handle": 1}},
            {"delete_array_request": {"array_handle": [9]}},
            {"is_array_deleted_request": {"array_handle": 9}},
            {"loaded_executable_metadata_request": {"loaded_executable_handle": 1 << 63}},
            {"loaded_executable_execute_request": {"loaded_executable_handle": 3, "args_handles": [9]}},
            {"check_future_request": {"future_handle": 5}},
        ):
            status = other.ask(**request).response_metadata.status
            assert status.code == UNKNOWN and "PWC0941" in status.message, request
        assert other.code_of(destruct_array_request={"array_handle": [9]}) == 0
        assert not one.ask(is_array_deleted_request={"array_handle": 9}).is_array_deleted_response.deleted
        assert one.code_of(delete_array_request={"array_handle": [9, 9]}) == 0
        assert one.ask(is_array_deleted_request={"array_handle": 9}).is_array_deleted_response.deleted


def test_a_failed_request_fails_the_results_whose_handles_the_client_has_chosen(served: Proxy) -> None:
    with raw_client(served.address) as client:
        refused: dict[str, Any] = {"dtype": {"kind": "KIND_STRING"}, "shape": {"dims": [2]}, "array_handle": 3}
        assert client.code_of(make_array_from_host_buffer_request=refused) == UNIMPLEMENTED
        later: tuple[dict[str, Any], ...] = (
            {"check_value_ready_request": {"value_handles": [3]}},
            {"copy_to_host_buffer_request": {"array_handle": 3, "host_buffer_handle": 1}},
            {"copy_arrays_request": {"array_handles": [3], "device_ids": [1], "result_handles": [4]}},
            {"check_value_ready_request": {"value_handles": [4]}},
            {"remap_arrays_request": {"array_handles": [4], "result_handles": [5]}},
            {"disassemble_into_single_device_arrays_request": {"array_handle": 5, "result_handles": [6, 7]}},
            {"check_value_ready_request": {"value_handles": [7]}},
        )
        for request in later:
            assert client.code_of(**request) == UNIMPLEMENTED, request
        unknown = {"loaded_executable_handle": 99, "result_array_handle": [8], "result_status_handle": 9}
        assert client.code_of(loaded_executable_execute_request=unknown) == UNKNOWN
        assert client.code_of(check_value_ready_request={"value_handles": [8]}) == UNKNOWN
        assert client.code_of(check_future_request={"future_handle": 9}) == UNKNOWN
        assert client.code_of(delete_array_request={"array_handle": [8]}) == 0


@pytest.mark.parametrize("kept", [False, True])
def test_an_argument_that_may_not_be_donated_stays(kept: bool, served: Proxy) -> None:
    with raw_client(served.address) as client:
        executable = compiled(client, DONATING)
        assert client.ask(
            loaded_executable_metadata_request={"loaded_executable_handle": executable}
        ).loaded_executable_metadata_response.donated_input_indices.donated_input_indices == [0]
        put(client, 9)
        request = {
            "loaded_executable_handle": executable,
            "args_handles": [9],
            "execute_options": {"non_donatable_input_indices": [0] if kept else [], "fill_status": True},
        }
        answer = client.ask(loaded_executable_execute_request=request).loaded_executable_execute_response
        assert client.code_of(check_future_request={"future_handle": answer.status_handle}) == 0
        assert client.ask(is_array_deleted_request={"array_handle": 9}).is_array_deleted_response.deleted == (not kept)
        assert client.fetched(answer.outputs[0].array_handle) == np.full(2, 2, np.float32).tobytes()


def test_shards_must_cover_an_array_exactly(served: Proxy) -> None:
    buffer = {"dtype": {"kind": "KIND_F32"}, "shape": {"dims": [2]}}
    spec = {"dtype": {"kind": "KIND_F32"}, "shape": {"dims": [4]}, "sharding": over(0, 1)}
    cases: list[tuple[list[list[int]], int]] = [
        ([[0], [1]], 0),
        ([[0]], 3),
        ([[0], [0]], 3),
        ([[0, 1]], 3),
        ([[0], [5]], 3),
    ]
    with raw_client(served.address) as client:
        for number, (places, code) in enumerate(cases):
            handles = [10 * number + i + 1 for i in range(len(places))]
            for handle in handles:
                client.store(handle, 8, bytes(8))
            request = {
                "addressable_shard_indices": [{"indices": one} for one in places],
                "host_buffers": [{**buffer, "host_buffer_handle": handle} for handle in handles],
                "array_spec": spec,
            }
            made = {"specs": [request], "array_handles": [500 + number]}
            assert client.code_of(make_arrays_from_host_buffer_shards_request=made) == code, places


def test_a_session_reads_only_its_own_host_buffers(served: Proxy) -> None:
    with raw_client(served.address) as one, raw_client(served.address) as other:
        one.store(3, 4, b"abcd")
        assert one.looked_up(3) == b"abcd"
        for session in (other.session, 1, 2, one.session + 1):
            with pytest.raises(RPC_ERROR):
                one.looked_up(3, session)


def test_a_request_whose_host_buffer_has_failed_does_not_wait(served: Proxy) -> None:
    with raw_client(served.address) as client:
        with pytest.raises(RPC_ERROR):
            client.store(3, 8, b"too short")
        request = {
            "dtype": {"kind": "KIND_F32"},
            "shape": {"dims": [2]},
            "sharding": on_device(0),
            "host_buffer_handle": 3,
        }
        assert client.code_of(make_array_from_host_buffer_request=request) == UNKNOWN


def test_a_client_that_disconnects_ends_requests_that_wait(served: Proxy) -> None:
    """The request waits for a host buffer that never arrives."""
    with raw_client(served.address) as client:
        request = {
            "dtype": {"kind": "KIND_F32"},
            "shape": {"dims": [2]},
            "sharding": on_device(0),
            "host_buffer_handle": 3,
        }
        client.send(make_array_from_host_buffer_request=request)
        client.cancel()
    assert becomes(lambda: not any(t.name.startswith("pathways-jax-") for t in threading.enumerate()))


def test_a_client_that_ends_its_requests_and_disconnects_leaves_no_thread() -> None:
    """Its requests wait for a host buffer that never arrives."""
    with pw.proxy(devices=1) as served, raw_client(served.address) as client:
        request = {"dtype": {"kind": "KIND_F32"}, "shape": {"dims": [2]}, "sharding": on_device(0)}
        for handle in range(1, 20):
            client.send(make_array_from_host_buffer_request={**request, "host_buffer_handle": handle})
        client.end()
        client.cancel()
        assert becomes(lambda: not any(t.name.startswith("pathways-jax-") for t in threading.enumerate()))


def test_a_malformed_buffer_fails_only_its_stream(served: Proxy) -> None:
    with raw_client(served.address) as client:
        for message in (b"\x0a", b"\x0a\x05abc", b"\x12\x01a", b"\x0a\xff\xff\xff\xff\xff\x01a"):
            with pytest.raises(RPC_ERROR) as caught:
                client.store_messages(9, 8, message)
            error: Any = caught.value
            assert error.code() is grpc.StatusCode.INVALID_ARGUMENT, message
        client.store(9, 4, b"abcd")
        assert client.looked_up(9) == b"abcd"


def test_a_server_without_threads_refuses_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    with pw.proxy(devices=1) as served:
        monkeypatch.setattr("pathways.ifrt_proxy.session.started", lambda _: False)
        with pytest.raises(RPC_ERROR) as caught, raw_client(served.address):
            pass
    error: Any = caught.value
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_a_connection_that_cannot_be_made_does_not_end_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise MemoryError

    with pw.proxy(devices=1) as served:
        host, port = served.address.split(":")
        with monkeypatch.context() as patch:
            patch.setattr("pathways.ifrt_proxy.server.Connection", fail)
            with socket.create_connection((host, int(port))) as refused:
                assert refused.recv(1) == b""
        with raw_client(served.address) as client:
            assert client.code_of(get_default_layout_request={"dims": [1]}) == 0


def test_responses_are_numbered_as_the_client_expects(served: Proxy) -> None:
    with raw_client(served.address) as client:
        layout, destruct = (
            {"get_default_layout_request": {"dims": [1]}},
            {"destruct_array_request": {"array_handle": [1]}},
        )
        answers = [client.ask(**request) for request in (layout, destruct, layout, destruct, destruct, layout)]
        assert [a.response_metadata.seq_num for a in answers] == [0, 0, 1, 0, 0, 2]


def test_a_proxy_ends_with_its_clients_connected() -> None:
    with ExitStack() as stack:
        with pw.proxy(devices=1) as served:
            client = stack.enter_context(raw_client(served.address))
            put(client, 5)
        with pytest.raises(RPC_ERROR):
            client.ask(is_array_deleted_request={"array_handle": 5})


def test_requests_inside_of_another_cluster_are_refused() -> None:
    with pw.proxy(devices=1) as served, raw_client(served.address) as client, pw.cluster("islands=1,devices=1"):
        assert client.code_of(get_default_layout_request={"dims": [1]}) == UNIMPLEMENTED


def test_malformed_requests_end_in_a_status_for_their_sender(served: Proxy) -> None:
    sharding = {"serialized_sharding": {"type_name": "xla::ifrt::HloSharding", "data": b"\xff\xff\xff"}}
    put: dict[str, Any] = {"dtype": {"kind": "KIND_F32"}, "shape": {"dims": [2]}, "sharding": sharding}
    hostile: list[dict[str, Any]] = [
        {"make_array_from_host_buffer_request": put},
        {"make_array_from_host_buffer_request": {**put, "dtype": {"kind": "KIND_STRING"}}},
        {"make_array_from_host_buffer_request": {**put, "shape": {"dims": [-1, 1 << 60]}}},
        {"compile_request": {"program": {"type_name": "xla::ifrt::XlaProgram", "data": b"no module"}}},
        {"compile_request": {"program": {"type_name": "xla::ifrt::CustomCallProgram"}}},
        {"reshard_arrays_request": {"array_handles": [1]}},
        {"get_default_device_assignment_request": {"num_replicas": 9, "num_partitions": 1 << 30}},
    ]
    with raw_client(served.address) as client:
        for request in hostile:
            assert client.code_of(**request) not in (0, 2), request
        colocated = client.ask(**hostile[4]).response_metadata.status
        assert colocated.code == UNIMPLEMENTED and "jax.experimental.colocated_python" in colocated.message
        assert "PWC0944" in client.ask(**hostile[0]).response_metadata.status.message
        for name in ("loaded_host_callback_poll_request",):
            status = client.ask(**{name: {}}).response_metadata.status
            assert status.code == UNIMPLEMENTED and name in status.message


def test_shards_are_only_listed_anew_on_their_own_devices(served: Proxy) -> None:
    """JAX's own requests of this kind are in `support/unmodified_jax.py`."""

    def code(device: int, **mapping: Any) -> int:
        sides = {f"{side}_{end}": [n] for side in ("from", "to") for end, n in (("start", 0), ("end", 1), ("step", 1))}
        spec = {"dtype": {"kind": "KIND_F32"}, "shape": {"dims": [2]}, "sharding": on_device(device)}
        plan = {"output_specs": [spec], "mappings": [{**sides, **mapping}]}
        return client.code_of(remap_arrays_request={"plan": plan, "array_handles": [9], "result_handles": [10]})

    with raw_client(served.address) as client:
        assert code(0) == UNKNOWN
        put(client, 9)
        assert code(0) == 0 and client.fetched(10) == client.fetched(9)
        assert code(1) == UNIMPLEMENTED and code(0, out_array=1) == UNIMPLEMENTED
        assert code(0) == 0
        for wrong in ({"in_array": 1}, {"in_array": -1}, {"from_start": [1]}, {"to_end": [1 << 40]}, {"to_step": [0]}):
            assert code(0, **wrong) == INVALID, wrong


def test_the_bytes_of_shards_can_have_another_type(served: Proxy) -> None:
    def code(given: int, kind: str, count: int, sharding: dict[str, Any]) -> int:
        spec = {"dtype": {"kind": kind}, "shape": {"dims": [count]}, "sharding": sharding}
        return client.code_of(
            bitcast_arrays_request={"array_handles": [given], "array_specs": [spec], "result_handles": [20]}
        )

    with raw_client(served.address) as client:
        put(client, 9)
        for kind, count in (("KIND_S32", 2), ("KIND_U8", 8), ("KIND_F32", 2)):
            assert code(9, kind, count, on_device(0)) == 0
            assert client.fetched(20) == np.ones(2, np.float32).tobytes()
        assert code(9, "KIND_S32", 3, on_device(0)) == code(9, "KIND_F64", 2, on_device(0)) == INVALID
        assert code(9, "KIND_S32", 2, on_device(1)) == UNIMPLEMENTED
        client.store(3, 32, np.arange(8, dtype=np.float32).tobytes())
        request = {"dtype": {"kind": "KIND_F32"}, "shape": {"dims": [8]}, "sharding": over(3, 1)}
        names = {"host_buffer_handle": 3, "array_handle": 10}
        assert client.code_of(make_array_from_host_buffer_request={**request, **names}) == 0
        assert code(10, "KIND_S16", 16, over(3, 1)) == 0
        assert client.fetched(20) == np.arange(8, dtype=np.float32).tobytes()


@pytest.mark.parametrize(("size", "chunks"), [(4, (b"12345",)), (4, (b"12",)), (1 << 60, (b"1",)), (-1, ())])
def test_host_buffers_of_a_wrong_size_are_refused(size: int, chunks: tuple[bytes, ...], served: Proxy) -> None:
    with raw_client(served.address) as client:
        for session in (None, 1 << 40):
            with pytest.raises(RPC_ERROR):
                client.store(1, size, *chunks, session=session)
