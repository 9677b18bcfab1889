"""Runs a Python function of this process (`jax.pure_callback` and similar) when a computation on a host in another
process calls it. Each call has its own thread, and the result is sent back. `RemoteHost` calls it.

The event-loop thread, which calls it, must not wait for a callback.
"""

import json
import math
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pathways.dialect.dtypes import numpy_dtype
from pathways.dialect.host_callbacks import find
from pathways.runtime.host.devices.callbacks import Inside, describe_exception, running
from pathways.runtime.host.observe.cpu_time import of_thread
from pathways.runtime.threads import started
from pathways.runtime.time_limits import time_limit
from pathways.runtime.wire import messages as m

MAX_PROGRESS_INTERVAL_S = 1.0
"""Maximum interval between progress messages of a call. At least four are sent before a host cancels the call."""


@dataclass(frozen=True, eq=False)
class _GoingOn:
    """Sends progress messages for a call that has not returned."""

    message: m.CallBack
    post: Callable[[m.Message], None]
    native: int
    over: threading.Event

    def report(self) -> None:
        before: float | None = None
        tick = min(MAX_PROGRESS_INTERVAL_S, time_limit("PATHWAYS_HOST_TIMEOUT", "10") / 4)
        while not self.over.wait(tick):
            mark = of_thread(self.native)
            self.post(m.Calling(self.message.call, mark is None or mark != before))
            before = mark


def call_back(message: m.CallBack, post: Callable[[m.Message], None]) -> None:
    """Starts the callback that a host requested, and sends the returned values to the host. Does not wait."""
    thread = threading.Thread(target=_call, args=(message, post), name="pathways-callback", daemon=True)
    if not started(thread):
        post(m.Returned(message.call, "the client process cannot start a thread", b""))


def _call(message: m.CallBack, post: Callable[[m.Message], None]) -> None:
    function, over = find(message.function), threading.Event()
    if function is None:
        post(m.Returned(message.call, "the client process no longer has the function", b""))
        return
    goes_on = _GoingOn(message, post, threading.get_native_id(), over)
    started(threading.Thread(target=goes_on.report, name="pathways-callback-tick", daemon=True))
    try:
        with running(Inside(message.computation, message.computation, threading.get_ident())):
            returned: Any = function(*_arguments(message))
            blob = b"".join(np.asarray(value).tobytes() for value in returned)
        answer = m.Returned(message.call, "", blob)
    except BaseException as error:  # SystemExit too: otherwise a device waits forever
        answer = m.Returned(message.call, describe_exception(error), b"")
        if message.has_no_results:
            note = f"note: a host callback of {message.computation} failed: {answer.cause}"
            print(note, file=sys.stderr, flush=True)
    over.set()
    post(answer)


def _arguments(message: m.CallBack) -> list[Any]:
    """Returns the arguments of a call. They are read-only, as for callbacks of local devices."""
    found: list[Any] = []
    at = 0
    for name, shape in json.loads(message.value):
        dtype = numpy_dtype(name)
        end = at + math.prod(shape) * dtype.itemsize
        found.append(np.frombuffer(message.blob[at:end], dtype).reshape(shape))
        at = end
    return found
