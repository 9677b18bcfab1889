"""A client of the IFRT proxy without jaxlib: it sends any messages, also those that jaxlib never sends."""

import contextlib
import itertools
import queue
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import grpc
import numpy as np

import pathways as pw
from pathways.dialect.mlir import bytecode, make_context, parse, portable
from pathways.ifrt_proxy.protocol import MESSAGES, SERVICE, STORE_METADATA, Request
from support.clusters import PATIENCE

_grpc: Any = grpc


class RawClient:
    """One session. `ask` sends a request and returns its response."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._numbers = itertools.count(1)
        self._stream: Any = channel.stream_stream(
            f"/{SERVICE}/IfrtSession",
            request_serializer=Request.SerializeToString,
            response_deserializer=MESSAGES["IfrtResponse"].FromString,
        )(iter(self._requests.get, None), timeout=PATIENCE)
        try:
            self.session = self.ask(init_request={}).init_response.session_id
        except _grpc.RpcError:
            self.end()
            raise

    def send(self, **request: Any) -> int:
        """Sends one request, given as its kind and its fields; returns its number."""
        number = next(self._numbers)
        self._requests.put(Request(request_metadata={"op_id": number}, **request))
        return number

    def ask(self, **request: Any) -> Any:
        """Sends one request; returns the response."""
        number = self.send(**request)
        answer = next(self._stream)
        assert answer.response_metadata.op_id == number
        return answer

    def code_of(self, **request: Any) -> int:
        """Sends one request; returns the status code of the response."""
        return int(self.ask(**request).response_metadata.status.code)

    def store(self, handle: int, size: int, *chunks: bytes, session: int | None = None) -> None:
        """Sends a host buffer. Raises grpc.RpcError if the server refuses it."""
        messages = [MESSAGES["GrpcHostBufferStoreRequest"](data=chunk).SerializeToString() for chunk in chunks]
        self.store_messages(handle, size, *messages, session=session)

    def store_messages(self, handle: int, size: int, *messages: bytes, session: int | None = None) -> None:
        """Sends a host buffer as these messages. Raises grpc.RpcError if the server refuses it."""
        described = MESSAGES["GrpcHostBufferStoreMetadata"](
            session_id=self.session if session is None else session, handle=handle, buffer_size=size
        )
        call = self._channel.stream_unary(f"/{SERVICE}/HostBufferStore")
        call(iter(messages), metadata=[(STORE_METADATA, described.SerializeToString())], timeout=PATIENCE)

    def fetched(self, array: int, buffer: int = 77) -> bytes:
        """Copies an array to a host buffer; returns its bytes."""
        assert self.code_of(copy_to_host_buffer_request={"array_handle": array, "host_buffer_handle": buffer}) == 0
        return self.looked_up(buffer)

    def looked_up(self, buffer: int, session: int | None = None) -> bytes:
        """Reads a host buffer. Raises grpc.RpcError if the session does not have it."""
        call = self._channel.unary_stream(
            f"/{SERVICE}/HostBufferLookup",
            request_serializer=MESSAGES["GrpcHostBufferLookupRequest"].SerializeToString,
            response_deserializer=MESSAGES["GrpcHostBufferLookupResponse"].FromString,
        )
        wanted = MESSAGES["GrpcHostBufferLookupRequest"](
            session_id=self.session if session is None else session, handle=buffer
        )
        return b"".join(part.data for part in call(wanted, timeout=PATIENCE))

    def cancel(self) -> None:
        """Ends the stream at once, as if the process of the client was killed."""
        self._stream.cancel()

    def end(self) -> None:
        """Ends the requests."""
        self._requests.put(None)

    def close(self) -> None:
        """Ends the stream, and waits until the server has ended it as well."""
        self.end()
        with contextlib.suppress(_grpc.RpcError):  # it was cancelled, or the server has ended
            for _ in self._stream:
                pass


@contextmanager
def raw_client(address: str) -> Generator[RawClient]:
    """Opens one session, and closes it at the end of the block."""
    with _grpc.insecure_channel(address) as channel:
        client = RawClient(channel)
        try:
            yield client
        finally:
            client.close()


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
    """Makes an array of two ones on device 0."""
    client.store(handle, 8, np.ones(2, np.float32).tobytes())
    request = {"dtype": {"kind": "KIND_F32"}, "shape": {"dims": [2]}, "sharding": on_device(0)}
    names = {"host_buffer_handle": handle, "array_handle": handle}
    assert client.code_of(make_array_from_host_buffer_request={**request, **names}) == 0


def held_bytes() -> int:
    """Returns the bytes that clients of the proxy hold on one device."""
    return sum(size for island in pw.status().islands for client, size in island.held.items() if "jax-" in client)
