"""Serves the IFRT proxy protocol over gRPC. `pw.proxy` and `pwc proxy` start it.

JAX's client has neither TLS nor a password, so a server listens on this machine only, unless the caller insists.
"""

import contextlib
import itertools
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from typing import Any

from google.protobuf.message import DecodeError

from pathways.dialect.diagnostics import PathwaysError
from pathways.ifrt_proxy.devices import ServedDevices
from pathways.ifrt_proxy.errors import NoGrpc, UnknownHandle
from pathways.ifrt_proxy.executables import Executables
from pathways.ifrt_proxy.protocol import (
    CHUNK_BYTES,
    MAX_PROTOCOL,
    MAX_SERDES,
    MESSAGES,
    MIN_PROTOCOL,
    SERVICE,
    STORE_METADATA,
)
from pathways.ifrt_proxy.session import Session
from pathways.runtime.client_state import ClientState

MAX_STREAMS, MAX_SESSIONS = 256, 192
"""Number of gRPC streams served concurrently, and of sessions among them. Transfers of host buffers use the others."""
STOP_TIMEOUT_S = 5.0


class ProxyServer:
    """A running server. `port` is the port that it listens on."""

    def __init__(self, devices: ServedDevices, host: str, port: int, weight: float = 1.0) -> None:
        """Starts to listen. Raises PWC0942 without grpcio, OSError if the port is not available."""
        grpc = _grpc()
        self._grpc, self._devices, self._weight = grpc, devices, weight
        self._executables = Executables(devices)
        self._sessions: dict[int, Session] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._server = grpc.server(
            futures.ThreadPoolExecutor(MAX_STREAMS, "pathways-proxy"),
            options=[(f"grpc.max_{way}_message_length", -1) for way in ("receive", "send")]
            + [("grpc.so_reuseport", 0)],
        )
        self._server.add_generic_rpc_handlers((self._handlers(),))
        try:
            self.port: int = self._server.add_insecure_port(f"{host}:{port}")
        except RuntimeError as error:
            raise OSError(str(error)) from None
        self._server.start()

    def stop(self) -> None:
        """Stops listening, and ends all sessions."""
        with self._lock:
            sessions = list(self._sessions.values())
        stopped = self._server.stop(0)
        for session in sessions:
            session.disconnect()
        for session in sessions:
            session.join(STOP_TIMEOUT_S)
        stopped.wait(STOP_TIMEOUT_S)

    def _handlers(self) -> Any:
        grpc = self._grpc
        kinds: dict[str, tuple[Any, Callable[..., Any], str]] = {
            "GetVersion": (grpc.unary_unary_rpc_method_handler, self._version, "GrpcGetVersion"),
            "IfrtSession": (grpc.stream_stream_rpc_method_handler, self._serve, "Ifrt"),
            "HostBufferStore": (grpc.stream_unary_rpc_method_handler, self._store, "GrpcHostBufferStore"),
            "HostBufferLookup": (grpc.unary_stream_rpc_method_handler, self._lookup, "GrpcHostBufferLookup"),
            "HostBufferDelete": (grpc.unary_unary_rpc_method_handler, self._delete, "GrpcHostBufferDelete"),
        }
        methods = {
            name: make(
                handler,
                request_deserializer=MESSAGES[f"{prefix}Request"].FromString,
                response_serializer=MESSAGES[f"{prefix}Response"].SerializeToString,
            )
            for name, (make, handler, prefix) in kinds.items()
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    def _version(self, request: Any, context: Any) -> Any:
        """Chooses the newest version that both ends speak."""
        oldest, newest = request.min_version, request.max_version
        ranges = (
            ("protocol", oldest.protocol_version, newest.protocol_version, MIN_PROTOCOL, MAX_PROTOCOL),
            ("format", oldest.ifrt_serdes_version_number, newest.ifrt_serdes_version_number, 0, MAX_SERDES),
        )
        for name, first, last, own_first, own_last in ranges:
            if last < own_first or first > own_last:
                text = f"{name} versions: the client has {first} to {last}, the server {own_first} to {own_last}"
                context.abort(self._grpc.StatusCode.FAILED_PRECONDITION, text)
        answer = MESSAGES["GrpcGetVersionResponse"]()
        answer.version.protocol_version = min(newest.protocol_version, MAX_PROTOCOL)
        answer.version.ifrt_serdes_version_number = min(newest.ifrt_serdes_version_number, MAX_SERDES)
        return answer

    def _serve(self, requests: Iterable[Any], context: Any) -> Iterator[Any]:
        client = ClientState(f"jax-{next(self._numbers)}", self._weight)
        number = secrets.randbits(63)
        session = Session(number, self._devices, self._executables, client)
        with self._lock:
            has_room = len(self._sessions) < MAX_SESSIONS
            if has_room:
                self._sessions[number] = session
        if not has_room:
            text = f"{MAX_SESSIONS} sessions are open already"
            context.abort(self._grpc.StatusCode.RESOURCE_EXHAUSTED, text)
        try:
            if context.add_callback(session.disconnect):  # otherwise the client has disconnected already
                yield from session.serve(self._until_disconnected(requests))
        except PathwaysError as error:
            context.abort(self._grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        finally:
            with self._lock:
                self._sessions.pop(number, None)

    def _until_disconnected(self, requests: Iterable[Any]) -> Iterator[Any]:
        """Yields requests until the client ends the stream or disconnects."""
        with contextlib.suppress(self._grpc.RpcError):
            yield from requests

    def _session(self, number: int) -> Session:
        with self._lock:
            if number not in self._sessions:
                raise PathwaysError(UnknownHandle(what="session", number=number))
            return self._sessions[number]

    def _store(self, chunks: Iterable[Any], context: Any) -> Any:
        metadata = dict(context.invocation_metadata())
        try:
            described = MESSAGES["GrpcHostBufferStoreMetadata"].FromString(metadata.get(STORE_METADATA, b""))
            buffers = self._session(described.session_id).buffers
            buffers.store(described.handle, described.buffer_size, (chunk.data for chunk in chunks))
        except (PathwaysError, DecodeError, ValueError, MemoryError) as error:
            context.abort(self._grpc.StatusCode.INVALID_ARGUMENT, str(error))
        return MESSAGES["GrpcHostBufferStoreResponse"]()

    def _lookup(self, request: Any, context: Any) -> Iterator[Any]:
        try:
            data = memoryview(self._session(request.session_id).buffers.get(request.handle))
        except PathwaysError as error:
            context.abort(self._grpc.StatusCode.NOT_FOUND, str(error))
            return
        for start in range(0, max(len(data), 1), CHUNK_BYTES):
            yield MESSAGES["GrpcHostBufferLookupResponse"](data=bytes(data[start : start + CHUNK_BYTES]))

    def _delete(self, request: Any, context: Any) -> Any:
        try:
            self._session(request.session_id).buffers.delete(request.handle)
        except PathwaysError as error:
            context.abort(self._grpc.StatusCode.NOT_FOUND, str(error))
        return MESSAGES["GrpcHostBufferDeleteResponse"]()


def _grpc() -> Any:
    try:
        import grpc
    except ImportError:
        raise PathwaysError(NoGrpc()) from None
    return grpc
