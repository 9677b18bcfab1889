"""Answers the requests of one client of the proxy, in order. `server.py` creates a session for each stream.

A session is a client like any other: it has a name and a weight, and its arrays belong to it. Requests that wait for
values are answered by other threads, so that later requests need not wait.
"""

import contextvars
import itertools
import queue
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

from google.protobuf.message import DecodeError

from pathways.api.client import Client
from pathways.dialect.diagnostics import PathwaysError
from pathways.ifrt_proxy import array_requests as on_arrays
from pathways.ifrt_proxy import executable_requests as on_executables
from pathways.ifrt_proxy.arrays import ArrayMaker
from pathways.ifrt_proxy.devices import ServedDevices
from pathways.ifrt_proxy.errors import RequestMalformed, write_status
from pathways.ifrt_proxy.executables import Executables
from pathways.ifrt_proxy.host_buffers import HostBuffers
from pathways.ifrt_proxy.protocol import Response
from pathways.ifrt_proxy.session_state import Rest, SessionState, refused
from pathways.runtime.client_state import current_client
from pathways.runtime.threads import ThreadPool

MAX_WAITING_THREADS = 8
"""Number of requests of one client that wait for values concurrently."""

MALFORMED = (DecodeError, ValueError, TypeError, LookupError, OverflowError)
"""Exceptions of functions that read a request: it does not have the form that jaxlib's client sends."""

Handler: TypeAlias = Callable[[SessionState, Any, Any], Rest | None]
"""Answers a request. Everything that depends on the order of requests is done when it returns."""


class Session:
    """One client: its stream of requests, and its host buffers, which arrive in streams of their own."""

    def __init__(self, number: int, devices: ServedDevices, executables: Executables, client: Client) -> None:
        self.buffers = HostBuffers()
        self._number, self._devices, self._executables, self._client = number, devices, executables, client
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._waiting = ThreadPool(MAX_WAITING_THREADS, f"pathways-proxy-{number}")

    def serve(self, requests: Iterable[Any]) -> Iterator[Any]:
        """Yields the responses to a stream of requests, until the stream ends."""
        thread = threading.Thread(target=self._work, args=(requests,), name=f"pathways-proxy-{self._number}")
        thread.start()
        numbers = itertools.count()
        while (answer := self._answers.get()) is not None:
            answer.response_metadata.seq_num = next(numbers)
            yield answer
        thread.join()

    def _work(self, requests: Iterable[Any]) -> None:
        """Answers all requests as the client, and frees what it owns at the end."""
        try:
            with self._client:
                maker = ArrayMaker(self._devices, current_client.get())
                state = SessionState(self._number, self._devices, self._executables, maker, self.buffers)
                try:
                    for request in requests:
                        self._handle(state, request)
                finally:
                    self._waiting.shutdown(wait=True)
                    state.close()
        finally:
            self._answers.put(None)

    def _handle(self, state: SessionState, request: Any) -> None:
        kind = request.WhichOneof("request")
        answer = Response()
        answer.response_metadata.op_id = request.request_metadata.op_id
        if number := request.request_metadata.user_context_id:
            answer.response_metadata.destroyed_user_context_ids.append(number)
        if kind not in HANDLERS:
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
        except Exception as error:  # of any kind: it belongs to this request alone
            coded = _coded(error, kind)
            state.fail(kind, getattr(request, kind), coded)
            self._fail(answer, coded)
            return
        if rest is None:
            self._succeed(answer)
        else:
            self._waiting.submit(contextvars.copy_context().run, self._wait, rest, kind, answer)

    def _wait(self, rest: Rest, kind: str, answer: Any) -> None:
        try:
            rest()
        except Exception as error:
            self._fail(answer, _coded(error, kind))
        else:
            self._succeed(answer)

    def _succeed(self, answer: Any) -> None:
        write_status(None, answer.response_metadata.status)
        self._answers.put(answer)

    def _fail(self, answer: Any, error: Exception) -> None:
        if (kind := answer.WhichOneof("response")) is not None:
            answer.ClearField(kind)
        write_status(error, answer.response_metadata.status)
        self._answers.put(answer)


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
