"""Serves the IFRT proxy protocol over gRPC. `pw.proxy` and `pwc proxy` start it.

JAX's client has neither TLS nor a password, so a server listens on this machine only, unless the caller insists.
"""

import base64
import binascii
import contextlib
import itertools
import secrets
import socket
import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from google.protobuf.message import DecodeError

from pathways.dialect.diagnostics import PathwaysError
from pathways.ifrt_proxy.connection import Connection
from pathways.ifrt_proxy.devices import ServedDevices
from pathways.ifrt_proxy.errors import UnknownHandle
from pathways.ifrt_proxy.executables import Executables
from pathways.ifrt_proxy.grpc_calls import (
    FAILED_PRECONDITION,
    INVALID_ARGUMENT,
    NOT_FOUND,
    RESOURCE_EXHAUSTED,
    Call,
    CallFailed,
    MessageReader,
    Opener,
    Part,
    Replies,
    Unary,
)
from pathways.ifrt_proxy.host_buffers import BufferWriter
from pathways.ifrt_proxy.http2 import FrameReader, HeaderCoder
from pathways.ifrt_proxy.protocol import (
    CHUNK_BYTES,
    MAX_PROTOCOL,
    MAX_SERDES,
    MESSAGES,
    MIN_PROTOCOL,
    SERVICE,
    STORE_METADATA,
    bytes_field,
)
from pathways.ifrt_proxy.session import Session
from pathways.ifrt_proxy.store_call import StoreCall
from pathways.runtime.client_state import ClientState
from pathways.runtime.threads import started
from pathways.runtime.wire.addresses import BACKLOG, undelayed

MAX_CONNECTIONS, MAX_SESSIONS = 512, 192
STOP_TIMEOUT_S = 5.0
ACCEPT_RETRY_S = 0.1


class ProxyServer:
    """A running server. `port` is the port that it listens on."""

    def __init__(self, devices: ServedDevices, host: str, port: int, weight: float = 1.0) -> None:
        """Starts to listen. Raises PWC0942 without hpack, OSError if the port is not available."""
        HeaderCoder()
        self._devices, self._weight = devices, weight
        self._executables = Executables(devices)
        self._sessions: dict[int, Session] = {}
        self._connections: dict[Connection, threading.Thread] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._methods = self._named_methods()
        self._is_stopped = False
        self._listening = _listening_at(host.strip("[]"), port)
        self.port: int = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, name="pathways-proxy", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stops listening, and ends all sessions."""
        self._is_stopped = True
        self._listening.shutdown(socket.SHUT_RDWR)
        self._thread.join(STOP_TIMEOUT_S)
        self._listening.close()
        with self._lock:
            connections = dict(self._connections)
        for connection in connections:
            connection.close()
        for thread in connections.values():
            thread.join(STOP_TIMEOUT_S)
        with self._lock:
            sessions = list(self._sessions.values())
        for session in sessions:
            session.join(STOP_TIMEOUT_S)

    def _accept(self) -> None:
        while True:
            try:
                connected, _ = self._listening.accept()
            except OSError:  # the server stops, or no descriptor is left
                if self._is_stopped:
                    return
                threading.Event().wait(ACCEPT_RETRY_S)
                continue
            try:
                self._begin(connected)
            except (OSError, MemoryError):  # the client has disconnected, or no memory is left
                connected.close()

    def _begin(self, connected: socket.socket) -> None:
        """Starts a thread that serves a connection. Closes it if there are too many."""
        undelayed(connected)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection = Connection(connected, self._methods)
        name = f"pathways-proxy-{connected.fileno()}"
        thread = threading.Thread(target=self._serve, args=(connection,), name=name, daemon=True)
        with self._lock:
            has_room = len(self._connections) < MAX_CONNECTIONS
            if has_room:
                self._connections[connection] = thread
        if not has_room or not started(thread):
            self._forget(connection)
            connected.close()

    def _serve(self, connection: Connection) -> None:
        try:
            connection.serve()
        finally:
            self._forget(connection)

    def _forget(self, connection: Connection) -> None:
        with self._lock:
            self._connections.pop(connection, None)

    def _named_methods(self) -> Mapping[bytes, Opener]:
        methods: dict[str, Opener] = {
            "GetVersion": lambda replies, _: Unary(replies, _version),
            "IfrtSession": self._open_session,
            "HostBufferStore": self._store,
            "HostBufferLookup": lambda replies, _: Unary(replies, self._lookup),
            "HostBufferDelete": lambda replies, _: Unary(replies, self._delete),
        }
        return {f"/{SERVICE}/{name}".encode(): opener for name, opener in methods.items()}

    def _open_session(self, replies: Replies, headers: Mapping[bytes, bytes]) -> Call:
        client = ClientState(f"jax-{next(self._numbers)}", self._weight)
        number = secrets.randbits(63)
        session = Session(number, self._devices, self._executables, client, replies)
        with self._lock:
            if len(self._sessions) >= MAX_SESSIONS:
                raise CallFailed(RESOURCE_EXHAUSTED, f"{MAX_SESSIONS} sessions are open already")
            self._sessions[number] = session
        try:
            session.start(partial(self._ended, number, replies))
        except PathwaysError as error:
            with self._lock:
                self._sessions.pop(number, None)
            raise CallFailed(RESOURCE_EXHAUSTED, str(error)) from None
        return SessionCall(session)

    def _ended(self, number: int, replies: Replies) -> None:
        with self._lock:
            self._sessions.pop(number, None)
        replies.finish()

    def _session(self, number: int) -> Session:
        with self._lock:
            if number not in self._sessions:
                raise PathwaysError(UnknownHandle(what="session", number=number))
            return self._sessions[number]

    def _store(self, replies: Replies, headers: Mapping[bytes, bytes]) -> Call:
        try:
            text = headers.get(STORE_METADATA.encode(), b"")
            described = MESSAGES["GrpcHostBufferStoreMetadata"].FromString(base64.b64decode(text + b"=="))
            buffers = self._session(described.session_id).buffers
            return StoreCall(replies, BufferWriter(buffers, described.handle, described.buffer_size))
        except (PathwaysError, DecodeError, ValueError, MemoryError, binascii.Error) as error:
            raise CallFailed(INVALID_ARGUMENT, str(error)) from None

    def _lookup(self, message: bytes) -> Iterator[Sequence[Part]]:
        with _reading("GrpcHostBufferLookupRequest", message) as request:
            data = self._session(request.session_id).buffers.get(request.handle).data
        for start in range(0, len(data), CHUNK_BYTES):
            chunk = data[start : start + CHUNK_BYTES]
            yield bytes_field(len(chunk)), chunk

    def _delete(self, message: bytes) -> Iterator[Sequence[Part]]:
        with _reading("GrpcHostBufferDeleteRequest", message) as request:
            self._session(request.session_id).buffers.delete(request.handle)
        yield (b"",)


def _listening_at(host: str, port: int) -> socket.socket:
    """Listens at an address; at that of all IPv6 interfaces also for IPv4. Raises OSError."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    both = family == socket.AF_INET6 and address[0] == "::" and socket.has_dualstack_ipv6()
    return socket.create_server(address[:2], family=family, backlog=BACKLOG, dualstack_ipv6=both)


@contextlib.contextmanager
def _reading(kind: str, message: bytes) -> Generator[Any]:
    """Parses a request for a `with` block. An error inside of the block becomes the status of the call."""
    try:
        yield MESSAGES[kind].FromString(message)
    except DecodeError as error:
        raise CallFailed(INVALID_ARGUMENT, str(error)) from None
    except PathwaysError as error:
        raise CallFailed(NOT_FOUND, str(error)) from None


def _version(message: bytes) -> Iterator[Sequence[Part]]:
    """Chooses the newest version that both ends speak."""
    with _reading("GrpcGetVersionRequest", message) as request:
        oldest, newest = request.min_version, request.max_version
    ranges = (
        ("protocol", oldest.protocol_version, newest.protocol_version, MIN_PROTOCOL, MAX_PROTOCOL),
        ("format", oldest.ifrt_serdes_version_number, newest.ifrt_serdes_version_number, 0, MAX_SERDES),
    )
    for name, first, last, own_first, own_last in ranges:
        if last < own_first or first > own_last:
            text = f"{name} versions: the client has {first} to {last}, the server {own_first} to {own_last}"
            raise CallFailed(FAILED_PRECONDITION, text)
    answer = MESSAGES["GrpcGetVersionResponse"]()
    answer.version.protocol_version = min(newest.protocol_version, MAX_PROTOCOL)
    answer.version.ifrt_serdes_version_number = min(newest.ifrt_serdes_version_number, MAX_SERDES)
    yield (answer.SerializeToString(),)


class SessionCall:
    """The stream of requests of one session."""

    def __init__(self, session: Session) -> None:
        self._session, self._reader = session, MessageReader()

    def receive(self, reader: FrameReader, size: int) -> int:
        messages = self._reader.messages(reader.exactly(size))
        return size if self._session.receive(messages, size) else 0

    def end(self) -> None:
        self._session.end()

    def cancel(self) -> None:
        self._session.end()
        self._session.disconnect()
