"""Implements `pw.Client`, which lets several users share the devices of one process. Each client has a name, a share of
the device time, and its own arrays.

The controller schedules their runs. This module binds threads to clients.
"""

import concurrent.futures
import contextvars
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import ParamSpec, TypeVar

from pathways.api.jax_settings import JaxSettings
from pathways.api.process import process
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.errors import BadArguments
from pathways.dialect.user_line import caller
from pathways.runtime.client.handles import closed
from pathways.runtime.client.suspend import resume, suspend
from pathways.runtime.client_state import ClientState, current_client
from pathways.runtime.threads import ThreadPool

_P = ParamSpec("_P")
_T = TypeVar("_T")


_before: contextvars.ContextVar[tuple[ClientState, ...]] = contextvars.ContextVar("pathways_before", default=())
"""The clients to which this context returns when its `with` blocks end, the innermost last."""


class Client:
    """One of several clients that share the same devices (paper, sections 4.1 and 5.2).

    Programs called inside `with client:` belong to the client, and so do their results: other clients can neither read
    nor donate them (PWC0508). If clients compete for an island, each gets time in proportion to `weight`. Enter the
    client in every thread that works for it, and in the thread that starts these threads. When its last `with` block
    ends, the client is closed and its arrays are freed.

        with pw.Client("alice", weight=2) as alice:
            loss = float(train_step(params, batch))

    `submit` calls a function in the client's own thread, in order, and returns a `concurrent.futures.Future`.
    """

    def __init__(self, name: str, weight: float = 1.0) -> None:
        if not weight > 0:
            problem, rule = "the weight of a client must be positive", "a positive number"
            error = BadArguments(
                problem=problem,
                have_=f"weight={weight}",
                rule=rule,
                advice="weight=1, the default, is an equal share",
                where=caller(),
            )
            raise PathwaysError(error)
        self._state = ClientState(name, float(weight))
        self._worker: ThreadPool | None = None
        self._closing = False

    @property
    def _thread_name(self) -> str:
        return f"pathways-client-{self._state.label}"

    @property
    def name(self) -> str:
        return self._state.name

    @property
    def weight(self) -> float:
        return self._state.weight

    def __repr__(self) -> str:
        return f"pw.Client({self.name!r}, weight={self.weight:g}){', closed' if self._state.closed else ''}"

    def __enter__(self) -> "Client":
        process().controller.check_open(self._state)
        with self._state.lock:
            self._state.entered += 1
        _before.set((*_before.get(), current_client.get()))
        current_client.set(self._state)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        *before, client = _before.get()
        _before.set(tuple(before))
        current_client.set(client)
        with self._state.lock:
            self._state.entered -= 1
            last = not self._state.entered
        if last:
            self.close()

    def submit(
        self, function: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs
    ) -> "concurrent.futures.Future[_T]":
        """Calls `function` in a thread of the client, after everything submitted before.

        The function sees the caller's context variables and JAX settings (`jax.enable_x64`, `jax.set_mesh`).
        """
        process().controller.check_open(self._state)
        context, settings = contextvars.copy_context(), JaxSettings.of_this_thread()
        context.run(current_client.set, self._state)

        def work() -> _T:
            with settings.entered():
                return function(*args, **kwargs)

        with self._state.lock:
            if self._closing:
                raise closed(self._state, "a client that is being closed")
            if self._worker is None:
                self._worker = ThreadPool(1, self._thread_name)
            return self._worker.submit(context.run, work)

    def suspend(self, folder: str | Path | None = None) -> int:
        """Frees all device memory of the client after its runs complete. Returns the bytes freed, over all devices.

        Its arrays move to host memory, or to files in `folder`, and return with `resume`. Until then they can be
        neither read nor used (PWC0515). Other clients continue.
        """
        return suspend(process().controller, self._state, None if folder is None else Path(folder))

    def resume(self) -> None:
        """Moves the client's arrays back to their devices, once there is room. Raises the same errors as a run."""
        resume(process().controller, self._state)

    def close(self) -> None:
        """Closes the client after its submitted calls complete. Frees its arrays, even if handles to them exist."""
        with self._state.lock:
            self._closing = True
            worker, self._worker = self._worker, None
        if worker is not None:
            worker.shutdown(wait=not threading.current_thread().name.startswith(self._thread_name))
        process().controller.close(self._state)
