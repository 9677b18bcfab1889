"""Lets a computation on this host call a Python function in a client's process (`jax.pure_callback` and similar). The
calling thread of XLA blocks here until the client's answer arrives. `Host` uses it.

Each client's functions are called in its own process, over its own connection; an answer counts only from there. If the
client is lost, or a call makes no progress, the calling computation fails, so that no device waits.
"""

import itertools
import json
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.dtypes import ArrayType, numpy_dtype
from pathways.dialect.host_callbacks import calls_back, hold, register_callbacks
from pathways.dialect.plan.nouns import Computation, Plan
from pathways.runtime.errors import UnknownCallback
from pathways.runtime.host.devices.callbacks import RaisedElsewhere, result_types
from pathways.runtime.time_limits import MAX_POLL_GAP_S, time_limit
from pathways.runtime.wire import messages as m

Post: TypeAlias = Callable[[m.Message], None]
POLL_INTERVAL_S = 0.5
"""Seconds between two checks of a call whether its client still reports progress."""


@dataclass(eq=False)
class _Waiting:
    """A call that has not returned."""

    done: threading.Event = field(default_factory=threading.Event)
    answer: m.Returned | None = None
    last_received: float = field(default_factory=time.monotonic)
    """The time at which the client last reported that the call is active."""
    moved: float = field(default_factory=time.monotonic)
    """The time at which the client last reported that the call computes."""


class ClientCalls:
    """The calls of all clients of a host that have not returned. Raises PWC0707 for an invalid time limit."""

    def __init__(self) -> None:
        self._timeout, self._still = time_limit("PATHWAYS_HOST_TIMEOUT", "10"), _hang_limit()
        self._lock = threading.Lock()
        """Guards the clients, and the calls that wait for them."""
        self._posts: dict[int, Post] = {}
        """Sends messages to each connected client."""
        self._waiting: dict[tuple[int, int], _Waiting] = {}
        """By client and number."""
        self._numbers = itertools.count()
        self.polls = 0
        """Changes while a call waits. The call checks its own progress, so that the watchdog need not."""

    def begin(self, client: int, post: Post) -> None:
        """Stores the post of a client. Fails the calls of its earlier connection if the client has reconnected."""
        self.end(client)
        with self._lock:
            self._posts[client] = post

    def end(self, client: int, post: Post | None = None) -> None:
        """Fails the calls of a lost client. With `post`, does so only if the client has not reconnected."""
        with self._lock:
            if post is not None and self._posts.get(client) != post:
                return
            self._posts.pop(client, None)
            ended = [self._waiting.pop(key) for key in list(self._waiting) if key[0] == client]
        for waiting in ended:
            waiting.done.set()

    def deliver(self, client: int, message: m.Calling | m.Returned) -> None:
        """Handles a client's message about a call. Ignores calls that this client was not sent."""
        with self._lock:
            waiting = self._waiting.get((client, message.call))
        if waiting is None:
            return
        waiting.last_received = time.monotonic()
        if isinstance(message, m.Returned):
            waiting.answer = message
            waiting.done.set()
        elif message.computes:
            waiting.moved = waiting.last_received

    def call(self, client: int, make: Callable[[int], m.CallBack]) -> bytes:
        """Has a client call a function; returns the bytes of its result. Raises RaisedElsewhere."""
        waiting, number = _Waiting(), next(self._numbers)
        with self._lock:
            post = self._posts.get(client)
            if post is not None:
                self._waiting[client, number] = waiting
        if post is None:
            raise RaisedElsewhere("the client process of the callback is lost")
        try:
            post(make(number))
            self._wait(waiting)
        finally:
            with self._lock:
                self._waiting.pop((client, number), None)
        if waiting.answer is None:
            raise RaisedElsewhere("the client process of the callback is lost")
        if waiting.answer.cause:
            raise RaisedElsewhere(waiting.answer.cause)
        return waiting.answer.blob

    def _wait(self, waiting: _Waiting) -> None:
        """Waits until a call returns. Raises RaisedElsewhere after a heartbeat timeout, or without progress."""
        now = time.monotonic()
        while not waiting.done.wait(POLL_INTERVAL_S):
            self.polls += 1
            before, now = now, time.monotonic()
            if now - before > MAX_POLL_GAP_S:  # this process was stopped: the gap does not count
                waiting.last_received = waiting.moved = now
            if now - waiting.last_received > self._timeout:
                raise RaisedElsewhere(
                    f"heartbeat timeout: no message from the client for {self._timeout:g} seconds: it is frozen, or "
                    "the callback holds the GIL (PATHWAYS_HOST_TIMEOUT on the host sets the limit)"
                )
            if now - waiting.moved > self._still:
                raise RaisedElsewhere(
                    f"the callback has not returned, and has computed nothing for {self._still:g} seconds "
                    "(PATHWAYS_HANG_TIMEOUT on the host sets the limit)"
                )


def _hang_limit() -> float:
    """Returns the seconds without progress after which a run may be called hung. Raises PWC0707."""
    return time_limit("PATHWAYS_HANG_TIMEOUT", "120", may_be_zero=True) or math.inf


@dataclass(frozen=True, eq=False)
class ClientFunction:
    """A function of a client's process, as code on this host calls it: a callback that returns `results`."""

    calls: ClientCalls
    client: int
    number: int
    computation: str
    has_no_results: bool
    results: Sequence[ArrayType]

    def progress(self) -> object:
        return self.calls.polls

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        arrays = [np.asarray(a, order="C") for a in args]
        types = json.dumps([(str(a.dtype), a.shape) for a in arrays])
        blob = b"".join(a.tobytes() for a in arrays)
        raw = self.calls.call(
            self.client,
            lambda call: m.CallBack(call, self.number, self.computation, self.has_no_results, types, blob),
        )
        if len(raw) != (size := sum(_size(t) for t in self.results)):
            raise RaisedElsewhere(f"the callback returned {len(raw):,} bytes instead of {size:,}")
        found: list[Any] = []
        at = 0
        for type_ in self.results:
            found.append(np.frombuffer(raw[at : at + _size(type_)], numpy_dtype(type_.dtype)).reshape(type_.shape))
            at += _size(type_)
        return tuple(found)


def _size(type_: ArrayType) -> int:
    """Returns the bytes of an array in memory, in which an element takes whole bytes."""
    return math.prod(type_.shape) * numpy_dtype(type_.dtype).itemsize


class _Owner:
    """Holds functions until their plan holds them."""


def with_functions(plan: Plan, functions: Mapping[int, Sequence[int]], client: int, calls: ClientCalls) -> Plan:
    """Binds the computations of a plan to the functions of a client that they call: numbers by computation.

    Raises PWC0510 if a computation calls a function that has no number: a call without a function kills the process.
    """
    if not functions and not any(calls_back(c.module) or calls_back(c.local) for c in plan.computations):
        return plan
    owner = _Owner()
    made = [_calling(c, functions.get(at, ()), client, calls, owner) for at, c in enumerate(plan.computations)]
    bound = replace(plan, computations=tuple(made))
    for computation in made:
        hold(bound, computation.callbacks)
    return bound


def _calling(
    computation: Computation, numbers: Sequence[int], client: int, calls: ClientCalls, owner: _Owner
) -> Computation:
    """Returns the computation with functions of a client as its callbacks."""
    types = result_types(computation.module) if calls_back(computation.module) else {}
    if calls_back(computation.local) or any(not 0 <= index < len(numbers) for index in types):
        raise PathwaysError(UnknownCallback(computation=computation.name))
    has_no_results = not computation.outputs
    functions = [
        ClientFunction(calls, client, number, computation.name, has_no_results, types.get(index, ()))
        for index, number in enumerate(numbers)
    ]
    return replace(computation, callbacks=register_callbacks(functions, owner)) if functions else computation
