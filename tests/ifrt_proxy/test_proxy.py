"""Tests unmodified JAX programs as clients of a proxy, over an island of two host processes and in one process."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import grpc
import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from support.clusters import becomes, is_replaced, pid_of, send
from support.codes import code_of
from support.processes import ROOT
from support.proxy_client import RawClient, raw_client
from support.unmodified_jax import FEATURES

import pathways as pw
from pathways.dialect.mlir import bytecode, make_context, parse, portable
from pathways.ifrt_proxy.protocol import MESSAGES
from pathways.ifrt_proxy.serving import Proxy

INVALID, UNKNOWN, UNIMPLEMENTED = 3, 5, 12
"""The status codes INVALID_ARGUMENT, NOT_FOUND and UNIMPLEMENTED."""
RPC_ERROR: Any = grpc.RpcError


@pytest.fixture(scope="module")
def served() -> Iterator[Proxy]:
    with pw.cluster("islands=1,hosts=2,devices=2"), pw.proxy() as served:
        yield served


def environment(served: Proxy) -> dict[str, str]:
    return {**os.environ, **served.environment, "PYTHONPATH": f"{ROOT / 'tests'}"}


@pytest.fixture(scope="module")
def failed(served: Proxy) -> dict[str, str]:
    """Runs the program once; returns the reasons of failed features."""
    words = [sys.executable, "-m", "support.unmodified_jax"]
    done = subprocess.run(words, env=environment(served), capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("feature", [f.__name__ for f in FEATURES])
def test_an_unmodified_program_uses_the_devices_of_a_cluster(feature: str, failed: dict[str, str]) -> None:
    assert feature not in failed, failed[feature]


def test_a_killed_client_leaves_nothing_and_disturbs_nobody(served: Proxy) -> None:
    code = "import jax; x = jax.numpy.ones(1 << 20).block_until_ready(); print('made', flush=True); input()"
    words = [sys.executable, "-c", code]
    with raw_client(served.address) as other:
        with subprocess.Popen(
            words,
            env=environment(served),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as client:
            assert client.stdout is not None and client.stdout.readline() == "made\n"
            assert held_bytes() >= 4 << 20
            client.send_signal(signal.SIGKILL)
        assert becomes(lambda: held_bytes() == 0)
        assert other.code_of(get_default_device_assignment_request={"num_replicas": 1, "num_partitions": 2}) == 0


def held_bytes() -> int:
    """Returns the bytes that clients of the proxy hold on one device."""
    return sum(size for island in pw.status().islands for client, size in island.held.items() if "jax-" in client)


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


LOOP = """
import sys, jax
f = jax.jit(lambda v: v * 2 + 1)
for line in sys.stdin:
    try:
        print(f(jax.numpy.ones(2)), flush=True)
    except Exception as error:
        print("PWC0910" in str(error), flush=True)
"""


@contextmanager
def looping(served: Proxy) -> Generator[Callable[[], str]]:
    """Starts a program that computes once for each line that it reads. Yields a function that returns the answer."""
    with subprocess.Popen(
        [sys.executable, "-c", LOOP],
        env=environment(served),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as client:
        assert client.stdin is not None and client.stdout is not None
        stdin, stdout = client.stdin, client.stdout

        def compute() -> str:
            stdin.write("\n")
            stdin.flush()
            return stdout.readline().strip()

        yield compute
        stdin.close()


def test_a_plan_stays_usable_after_the_session_that_compiled_it(served: Proxy) -> None:
    with looping(served) as second:
        with looping(served) as first:
            assert first() == "[3. 3.]"
        assert second() == "[3. 3.]"


@pytest.mark.long("hosts are killed or frozen until others notice: 4 to 22 s each")
def test_a_session_continues_after_its_host_was_killed() -> None:
    with pw.cluster("islands=1,devices=1"), pw.proxy() as served, looping(served) as compute:
        assert compute() == "[3. 3.]"
        old = pid_of("island0")
        send("island0", signal.SIGKILL)
        assert compute() in ("True", "[3. 3.]")
        assert becomes(lambda: is_replaced("island0", old))
        assert becomes(lambda: compute() == "[3. 3.]")


def on_device(number: int) -> dict[str, Any]:
    """Returns the sharding of an array on one device."""
    data = MESSAGES["SingleDeviceShardingProto"](device_id=number).SerializeToString()
    return {"serialized_sharding": {"type_name": "xla::ifrt::SingleDeviceSharding", "data": data}}


def over(*devices: int) -> dict[str, Any]:
    """Returns the sharding of an array of one dimension that these devices split."""
    tiles = {
        "type": "OTHER",
        "tile_assignment_dimensions": [len(devices)],
        "tile_assignment_devices": range(len(devices)),
    }
    data = MESSAGES["HloShardingProto"](devices={"device_ids": devices}, xla_op_sharding=tiles).SerializeToString()
    return {"serialized_sharding": {"type_name": "xla::ifrt::HloSharding", "data": data}}


DONATING = """module @step {
  func.func public @main(%x: tensor<2xf32> {tf.aliasing_output = 0 : i32}) -> tensor<2xf32> {
    %y = stablehlo.add %x, %x : tensor<2xf32>
    return %y : tensor<2xf32>
  }
}"""


def compiled(client: RawClient, text: str) -> int:
    """Compiles a module; returns the handle of the executable."""
    module = parse(text, make_context())
    program = {"type_name": "xla::ifrt::XlaProgram", "data": portable(bytecode(module.operation))}
    options = {"type_name": "xla::ifrt::XlaCompileOptions", "data": b""}
    return client.ask(
        compile_request={"program": program, "compile_options": options}
    ).compile_response.loaded_executable_handle


def put(client: RawClient, handle: int) -> None:
    client.store(handle, 8, np.ones(2, np.float32).tobytes())
    request = {"dtype": {"kind": "KIND_F32"}, "shape": {"dims": [2]}, "sharding": on_device(0)}
    names = {"host_buffer_handle": handle, "array_handle": handle}
    assert client.code_of(make_array_from_host_buffer_request={**request, **names}) == 0


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
        assert "PWC0944" in client.ask(**hostile[0]).response_metadata.status.message
        for name in ("bitcast_arrays_request", "loaded_host_callback_poll_request"):
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


@pytest.mark.parametrize(("size", "chunks"), [(4, (b"12345",)), (4, (b"12",)), (1 << 60, (b"1",)), (-1, ())])
def test_host_buffers_of_a_wrong_size_are_refused(size: int, chunks: tuple[bytes, ...], served: Proxy) -> None:
    with raw_client(served.address) as client:
        for session in (None, 1 << 40):
            with pytest.raises(RPC_ERROR):
                client.store(1, size, *chunks, session=session)


def test_a_proxy_without_a_cluster_serves_devices_of_its_own_process() -> None:
    with pw.proxy(devices=4) as served, raw_client(served.address) as client:
        assert served.devices == 4 and client.code_of(get_default_layout_request={"dims": [2, 3]}) == 0


def test_programs_and_unmodified_scripts_share_a_cluster(served: Proxy) -> None:
    """Both run on the same devices at the same time, and each computes what it computes alone."""
    loop = "for _ in range(200): x = jax.jit(lambda v: v / 2 + 1)(x)"
    code = f"import jax; x = jax.numpy.arange(8.0)\n{loop}\nprint(x.sum())"
    words = [sys.executable, "-c", code]
    with subprocess.Popen(
        words, env=environment(served), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as client:
        mesh = pw.make_virtual_device_set().add_slice(devices=4).mesh("x")
        double: Any = jax.jit(lambda v: v * 2 + 1, in_shardings=NamedSharding(mesh, P("x")))
        step = pw.program(double)
        while client.poll() is None:
            np.testing.assert_array_equal(np.asarray(step(np.arange(8.0, dtype=np.float32))), np.arange(8.0) * 2 + 1)
        assert client.stdout is not None and client.stdout.read() == "16.0\n"


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "10.1.2.3:0", "example.com:0", "[::]:0"])
def test_an_address_that_other_machines_reach_is_refused(listen: str) -> None:
    assert code_of(pw.proxy(listen).__enter__) == "PWC0943"


@pytest.mark.parametrize("options", [{"listen": "29000"}, {"listen": "127.0.0.1:x"}, {"listen": "127.0.0.1:70000"}])
def test_a_malformed_address_is_refused(options: dict[str, Any]) -> None:
    assert code_of(pw.proxy(**options).__enter__) == "PWC0104"


@pytest.mark.parametrize("options", [{"island": "nowhere"}, {"devices": 5}])
def test_unknown_devices_are_refused(options: dict[str, Any], served: Proxy) -> None:
    assert code_of(pw.proxy(**options).__enter__) == "PWC0104"


def test_a_proxy_without_hpack_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hpack", None)
    assert code_of(pw.proxy().__enter__) == "PWC0942"
