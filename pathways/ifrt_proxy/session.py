"""Answers the requests of one client of the proxy, in order. `server.py` creates a session for each stream.

A session is a client like any other: it has a name and a weight, and its arrays belong to it. Requests that wait for
values are answered by other threads, so that later requests need not wait.
"""

import contextvars
import queue
import threading
import traceback
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from google.protobuf.message import DecodeError

from pathways.api.process import process
from pathways.dialect.diagnostics import PathwaysError
from pathways.ifrt_proxy import array_requests as on_arrays
from pathways.ifrt_proxy import executable_requests as on_executables
from pathways.ifrt_proxy.arrays import ArrayMaker
from pathways.ifrt_proxy.devices import ServedDevices
from pathways.ifrt_proxy.errors import RequestMalformed, write_status
from pathways.ifrt_proxy.executables import Executables
from pathways.ifrt_proxy.grpc_calls import INVALID_ARGUMENT, RESOURCE_EXHAUSTED, Replies
from pathways.ifrt_proxy.host_buffers import HostBuffers
from pathways.ifrt_proxy.protocol import Request, Response
from pathways.ifrt_proxy.session_state import Rest, SessionState, refused
from pathways.runtime.client_state import ClientState, current_client
from pathways.runtime.threads import ThreadPool, no_thread, started

MAX_WAITING_THREADS = 8
"""Number of requests of one client that wait for values concurrently."""

NOT_NUMBERED = frozenset({"init_response", "delete_array_response", "destruct_array_response"})
"""Responses that the client does not count."""
MAX_UNREAD_BYTES, MAX_UNANSWERED_BYTES = 1 << 22, 1 << 26
"""Maximum bytes of queued requests, and of responses that the client has not read."""
MALFORMED = (DecodeError, ValueError, TypeError, LookupError, OverflowError)
"""Exceptions of functions that read a request: it does not have the form that jaxlib's client sends."""

Handler: TypeAlias = Callable[[SessionState, Any, Any], Rest | None]
"""Answers a request. Everything that depends on the order of requests is done when it returns."""


class Session:
    """One client: its stream of requests, and its host buffers, which arrive in streams of their own.

    `number` is secret: with it, a process can read and write the host buffers of the session.
    """

    def __init__(
        self, number: int, devices: ServedDevices, executables: Executables, client: ClientState, replies: Replies
    ) -> None:
        self.buffers = HostBuffers()
        self._devices, self._client = devices, client
        maker = ArrayMaker(devices, client)
        self._state = SessionState(number, devices, executables, maker, self.buffers)
        self._requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._replies = replies
        self._sending, self._counting = threading.Lock(), threading.Lock()
        self._sent = 0
        self._unread, self._debt = 0, 0
        self._waiting = ThreadPool(MAX_WAITING_THREADS, f"pathways-{client.name}-waits")
        self._thread: threading.Thread | None = None

    def start(self, ended: Callable[[], None]) -> None:
        """Starts the thread that answers requests, which calls `ended` at its end. Raises PWC0521 without a thread."""
        name = f"pathways-{self._client.name}"
        thread = threading.Thread(target=self._work, args=(ended,), name=name, daemon=True)
        if not started(thread):
            raise PathwaysError(no_thread(name))
        self._thread = thread

    def receive(self, messages: Sequence[bytes], size: int) -> bool:
        """Queues requests. `size` counts their bytes with prefixes.

        Returns False if too many requests wait; `_credit` credits these bytes later.
        """
        with self._counting:
            self._unread += sum(map(len, messages))
            may_send = self._unread <= MAX_UNREAD_BYTES
            if not may_send:
                self._debt += size
        for message in messages:
            self._requests.put(message)
        return may_send

    def end(self) -> None:
        """Notes the end of the requests. Queued requests are still answered."""
        self._requests.put(None)

    def disconnect(self) -> None:
        """Cancels the runs of the client, frees its arrays, and wakes all threads that wait for it. Can be repeated."""
        self.buffers.close()
        if not self._client.closed:
            self._devices.process.controller.close(self._client)

    def join(self, seconds: float) -> None:
        """Waits until the session has ended, at most this long."""
        if self._thread is not None:
            self._thread.join(seconds)

    def _work(self, ended: Callable[[], None]) -> None:
        """Answers all requests as the client, and frees what it owns at the end."""
        current_client.set(self._client)
        try:
            while (message := self._requests.get()) is not None:
                self._credit(len(message))
                self._handle(self._state, Request.FromString(message))
        except DecodeError as error:
            self._replies.finish(INVALID_ARGUMENT, str(error))
        finally:
            self.disconnect()
            self._waiting.shutdown(wait=True, cancel_futures=True)
            self._state.close()
            ended()

    def _credit(self, size: int) -> None:
        """Credits the withheld bytes once at most half of MAX_UNREAD_BYTES is queued."""
        with self._counting:
            self._unread -= size
            debt = self._debt if self._unread <= MAX_UNREAD_BYTES // 2 else 0
            self._debt -= debt
        if debt:
            self._replies.credit(debt)

    def _handle(self, state: SessionState, request: Any) -> None:
        kind = request.WhichOneof("request")
        answer = Response()
        answer.response_metadata.op_id = request.request_metadata.op_id
        if number := request.request_metadata.user_context_id:
            answer.response_metadata.destroyed_user_context_ids.append(number)
        if process() is not self._devices.process:
            have = "a block of pw.cluster or pw.connect inside of the block of pw.proxy"
            rule = "the same cluster for both"
            self._fail(answer, refused("requests while its process uses other devices", have, rule))
        elif kind not in HANDLERS:
            error = refused(f"the request {kind}", "a request that this server does not answer")
            if kind is not None:
                state.fail(kind, getattr(request, kind), error)
            self._fail(answer, error)
        else:
            self._answer(state, kind, request, answer)

    def _answer(self, state: SessionState, kind: str, request: Any, answer: Any) -> None:
        filled = getattr(answer, kind.removesuffix("request") + "response")
        filled.SetInParent()
        try:
            rest = HANDLERS[kind](state, getattr(request, kind), filled)
        except Exception as error:  # of any kind: it fails only this request
            coded = _coded(error, kind)
            state.fail(kind, getattr(request, kind), coded)
            self._fail(answer, coded)
            return
        if rest is None:
            self._succeed(answer, is_awaited=_is_awaited(kind, request))
            return
        try:
            self._waiting.submit(contextvars.copy_context().run, self._wait, rest, kind, answer)
        except PathwaysError as error:  # no thread could be started
            self._fail(answer, error)

    def _wait(self, rest: Rest, kind: str, answer: Any) -> None:
        try:
            rest()
        except Exception as error:
            self._fail(answer, _coded(error, kind))
        else:
            self._succeed(answer)

    def _succeed(self, answer: Any, *, is_awaited: bool = True) -> None:
        write_status(None, answer.response_metadata.status)
        self._send(answer, is_awaited)

    def _fail(self, answer: Any, error: Exception) -> None:
        if (kind := answer.WhichOneof("response")) is not None:
            answer.ClearField(kind)
        write_status(error, answer.response_metadata.status)
        self._send(answer)

    def _send(self, answer: Any, is_awaited: bool = True) -> None:
        """Sends a response: at once, or with the next one if the client does not wait and more requests are queued."""
        flush = is_awaited or self._requests.empty()
        with self._sending:
            if _is_numbered(answer):
                answer.response_metadata.seq_num = self._sent
                self._sent += 1
            data = answer.SerializeToString()
            taken = self._replies.send((data,), flush=flush, limit=MAX_UNANSWERED_BYTES)
        if not taken:
            self.disconnect()
            self._replies.finish(RESOURCE_EXHAUSTED, f"{MAX_UNANSWERED_BYTES:,} bytes of responses were not read")


def _is_awaited(kind: str, request: Any) -> bool:
    """Whether the client can wait for the response: not if it has chosen the handles of all results."""
    if kind == "loaded_executable_execute_request":
        return not request.loaded_executable_execute_request.result_array_handle
    return kind != "destruct_array_request"


def _is_numbered(answer: Any) -> bool:
    """Checks whether the client counts a response: not those of the start, of deletions, of their futures, or failures.

    If a number is missing or too many, the client keeps the stack of every later request for ever (measured with
    jaxlib 0.10 to 0.12: 300 references after 300 calls).
    """
    kind = answer.WhichOneof("response")
    is_of_deletion = kind == "check_future_response" and not answer.response_metadata.destroyed_user_context_ids
    return kind is not None and kind not in NOT_NUMBERED and not is_of_deletion


def _coded(error: Exception, kind: str) -> Exception:
    """Returns the error with a code if the request caused it. Prints other errors: they are bugs of this server."""
    if isinstance(error, MALFORMED) and not isinstance(error, PathwaysError):
        return PathwaysError(RequestMalformed(what=kind, problem=f"{type(error).__name__}: {error}"))
    if not isinstance(error, PathwaysError):
        traceback.print_exception(error)
    return error


def _initialize(state: SessionState, body: Any, filled: Any) -> None:
    filled.CopyFrom(state.devices.describe(state.number))


def _check_future(state: SessionState, body: Any, filled: Any) -> Rest:
    return state.take_future(body.future_handle)


HANDLERS: dict[str, Handler] = {
    "init_request": _initialize,
    "check_future_request": _check_future,
    "check_value_ready_request": on_arrays.check_values,
    "make_array_from_host_buffer_request": on_arrays.put_array,
    "make_arrays_from_host_buffer_shards_request": on_arrays.put_shards,
    "make_error_arrays_request": on_arrays.make_errors,
    "assemble_array_from_single_device_arrays_request": on_arrays.assemble,
    "remap_arrays_request": on_arrays.remap,
    "bitcast_arrays_request": on_arrays.bitcast,
    "reshard_arrays_request": on_arrays.reshard,
    "copy_to_host_buffer_request": on_arrays.fetch,
    "disassemble_into_single_device_arrays_request": on_arrays.disassemble,
    "delete_array_request": on_arrays.delete,
    "copy_arrays_request": on_arrays.copy,
    "fully_replicated_shard_request": on_arrays.replicated_shard,
    "is_array_deleted_request": on_arrays.is_deleted,
    "destruct_array_request": on_arrays.destruct,
    "compile_request": on_executables.compile,
    "loaded_executable_metadata_request": on_executables.metadata,
    "loaded_executable_execute_request": on_executables.execute,
    "loaded_executable_fetch_execute_result_request": on_executables.fetch_result,
    "loaded_executable_cost_analysis_request": on_executables.costs,
    "loaded_executable_human_readable_program_text_request": on_executables.text,
    "loaded_executable_destruct_request": on_executables.destruct_executable,
    "get_default_device_assignment_request": on_executables.assignment,
    "get_default_layout_request": on_executables.default_layout,
}
"""The function that answers each request. Other requests end in UNIMPLEMENTED with their name."""
