"""Lets the client use all host processes of one island as one. A message goes to all of them, and an operation
completes when all have completed it. `Attached` creates it.

If one host is lost, all hosts of the island are replaced: the others have threads in collectives that never end.
"""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pathways.dialect.diagnostic_json import read_diagnostic
from pathways.dialect.diagnostics import Diagnostic
from pathways.runtime.client.remote.ended_arrays import EndedArrays, Sink
from pathways.runtime.client.remote.remote_host import RemoteHost, ToHost
from pathways.runtime.client.remote_array import RemoteRun
from pathways.runtime.journal import note
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.errors import HostLost
from pathways.runtime.wire.frames import Bytes, ConnectionEnded
from pathways.runtime.wire.ids import ClientIds

LOSS_REASON_TIMEOUT_S = 30.0
"""Time limit for the controller to report why a connection to a host has ended."""


class RemoteIsland:
    """An island in other processes, in one epoch. `on_lost` is called once, after waiting threads are woken."""

    def __init__(
        self,
        name: str,
        ways: Mapping[str, ToHost],
        on_lost: "Callable[[RemoteIsland], None]",
        on_end: Callable[[int], None] = lambda run: None,
        *,
        numbers: ClientIds,
        ordered: Sink,
        epoch: int = 0,
    ) -> None:
        """`ways` maps host names to connections, in the order of ranks. Messages that must be ordered with runs go to
        `ordered`. `on_end` is called each time a host has completed a run. `numbers` are the client's ids."""
        self.island, self.epoch = name, epoch
        self.lost: Diagnostic | None = None
        self._on_lost, self._on_end = on_lost, on_end
        self._numbers, self._ordered = numbers, ordered
        self._ended_arrays = EndedArrays()
        """Freed arrays and unloaded plans that were not sent to `ordered` yet."""
        self._runs: dict[int, RemoteRun | _Ends] = {}
        """Runs that have not completed on all hosts."""
        self._lock = threading.Lock()
        """Guards `_runs` against a concurrent loss of the island."""
        self._over: tuple[float, str] | None = None
        """The time at which a host's stream ended, and the reason."""
        self.members = tuple(RemoteHost(host, way, self) for host, way in ways.items())
        for member in self.members:
            member.begin()

    def order(self, *messages: m.Message) -> None:
        """Sends messages to all hosts, after earlier runs and after notices of freed arrays."""
        if self.lost is None:
            with contextlib.suppress(ConnectionEnded):  # the owner of the controller connection is notified itself
                self._ordered.post(*self._ended_arrays.take(), *messages)

    def put(self, message: m.PutArray) -> None:
        """Sends an argument of a plan to all hosts."""
        for member in self.members:
            member.put(message)

    def flush(self) -> None:
        """Waits until all hosts have received their arguments."""
        for member in self.members:
            member.flush()

    def wait_for_room(self) -> None:
        """Waits while a host has much unread data."""
        for member in self.members:
            member.wait_for_room()

    def ask(self, make: Callable[[int], m.Message]) -> m.Answer:
        """Sends a request to all hosts; returns the first host's answer, valid for all. Raises as `RemoteHost.ask`."""
        return self.request(make)()

    def request(self, make: Callable[[int], m.Message]) -> Callable[[], m.Answer]:
        """Sends a request like `ask`, but does not wait: the returned function waits."""
        wait = self._request_each(make)
        return lambda: wait()[0]

    def ask_each(self, make: Callable[[int], m.Message]) -> Sequence[m.Answer]:
        """Sends a request to all hosts in parallel; returns their answers by rank. Raises as `RemoteHost.ask`."""
        return self._request_each(make)()

    def _request_each(self, make: Callable[[int], m.Message]) -> Callable[[], Sequence[m.Answer]]:
        waits = [member.request(make) for member in self.members]
        return lambda: [wait() for wait in waits]

    def expect(self, number: int, run: RemoteRun) -> bool:
        """Registers a run that is about to start. If the island is lost, fails the run and returns False."""
        with self._lock:
            if (lost := self.lost) is None:
                self._runs[number] = run if len(self.members) == 1 else _Ends(run, len(self.members))
        if lost is not None:
            run.end({}, lost)
        return lost is None

    @property
    def under_way(self) -> int:
        """Returns the number of runs in progress on the island."""
        return len(self._runs)

    def refuse(self, number: int, cause: Diagnostic) -> None:
        """Fails a run that no host will receive."""
        if (run := self._runs.pop(number, None)) is not None:
            run.end({}, cause)

    def end_run(self, outcome: m.Done | m.Failed) -> None:
        """Records that a host has completed its partition of a run."""
        causes: dict[int, Diagnostic] = {}
        found = None
        if isinstance(outcome, m.Failed):
            causes = {int(number): read_diagnostic(text) for number, text in outcome.causes.items()}
            found = (outcome.step, read_diagnostic(outcome.found)) if outcome.found else None
        run = self._runs.get(outcome.run)
        if run is not None and run.end(causes, found=found):
            self._runs.pop(outcome.run, None)
        self._on_end(outcome.run)

    def fetch(self, number: int, shard: int) -> tuple[tuple[int, ...], Bytes]:
        """Copies an array or one shard from the hosts. Each of several hosts sends a disjoint part of the array."""
        answers = self.ask_each(lambda request: m.FetchArray(request, number, shard))
        if len(answers) == 1:
            return tuple(json.loads(answers[0].value)), answers[0].blob
        return _joined([(json.loads(answer.value), answer.blob) for answer in answers if answer.value])

    def copy(self, number: int, shard: int) -> int:
        """Copies an array or one shard on its hosts; returns the id of the copy."""
        target = self._numbers.take()
        self.order(m.CopyArray(number, target, shard))
        return target

    def free(self, number: int) -> None:
        """Frees an array that no run will name again. Any thread and the garbage collector may call it."""
        self._ended_arrays.add(number)

    def unload(self, plan: int) -> None:
        """Unloads a plan that will not run again. Any thread and the garbage collector may call it."""
        self._ended_arrays.add_plan(plan)

    def take_ended(self) -> list[m.Message]:
        """Returns notices of freed arrays and unloaded plans, to be sent with a run."""
        return self._ended_arrays.take_with_run()

    def free_now(self) -> None:
        """Sends notices of freed arrays, if no other message carries them."""
        if self.lost is None and (ended := self._ended_arrays.take()):
            with contextlib.suppress(ConnectionEnded):
                self._ordered.post(*ended)

    def note_end(self, reason: str) -> None:
        """Records that a host's stream has ended. The controller will report the reason."""
        self._over = self._over or (time.monotonic(), reason)

    def lose_late(self, now: float) -> None:
        """Marks the island as lost if a stream ended long ago and the controller reported no reason."""
        if self._over is not None and now > self._over[0] + LOSS_REASON_TIMEOUT_S:
            self.lose(self._over[1])

    def lose(self, reason: str, cause: Diagnostic | None = None) -> None:
        """Fails all runs and requests on the island: a host was lost, hangs (`cause`) or sent an invalid message."""
        with self._lock:
            if self.lost is not None:
                return
            self.lost = cause or HostLost(island=self.island, reason=reason)
            runs = list(self._runs.values())
            self._runs.clear()
        note("host", self.island, f"was lost: {self.lost.text(self.lost.have)}")
        for run in runs:
            run.end({}, self.lost)
        for member in self.members:
            member.end()
        self._on_lost(self)


class _Ends:
    """Combines the completions of one run on several hosts."""

    def __init__(self, run: RemoteRun, left: int) -> None:
        self._run = run
        self._left = left
        self._causes: dict[int, Diagnostic] = {}
        self._found: list[tuple[int, Diagnostic]] = []
        self._lock = threading.Lock()

    def end(
        self,
        causes: Mapping[int, Diagnostic],
        everything: Diagnostic | None = None,
        found: tuple[int, Diagnostic] | None = None,
    ) -> bool:
        """Records completion on one host, or failure of all (`everything`); returns whether the run is complete."""
        with self._lock:
            self._left -= 1
            for result, cause in causes.items():
                self._causes.setdefault(result, cause)
            if found is not None:
                self._found.append(found)
            over = not self._left or everything is not None
        if over:
            first = min(self._found, key=lambda one: one[0], default=None)
            self._run.end(self._causes, everything, first)
        return over


def _joined(parts: Sequence[tuple[Any, Bytes]]) -> tuple[tuple[int, ...], Bytes]:
    """Returns the shape and values of an array, joined from the boxes that each host has sent."""
    shape, size = tuple(parts[0][0]["shape"]), parts[0][0]["itemsize"]
    whole: np.ndarray[Any, Any] = np.empty(shape, f"V{size}")
    for header, raw in parts:
        start = 0
        for box in header["boxes"]:
            lengths = [q - p for p, q in box]
            count = int(np.prod(lengths, dtype=np.int64)) * size
            piece = np.frombuffer(raw[start : start + count], whole.dtype).reshape(lengths)
            whole[tuple(slice(p, q) for p, q in box)] = piece
            start += count
    return shape, whole.reshape(-1).view(np.uint8).data
