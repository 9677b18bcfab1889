"""The hosts of an island, one or several, as one: what is sent goes to all, and what ends has ended on all.

When one is gone all are: the others have threads in collectives that will never end, and are replaced with it.
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
from pathways.runtime.wire.frames import ConnectionEnded
from pathways.runtime.wire.ids import ClientIds

LOSS_REASON_TIMEOUT_S = 30.0
"""Limits the time in which the controller says why a connection to a host has ended."""


class RemoteIsland:
    """An island in other processes, in one epoch. `on_lost` is called once, behind those who wait for its hosts."""

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
        """`ways` are by name of the host, in the order of ranks. What must keep its order among runs goes to
        `ordered`. `on_end` hears of each host that has ended a run. `numbers` are those of the client."""
        self.island, self.epoch = name, epoch
        self.lost: Diagnostic | None = None
        self._on_lost, self._on_end = on_lost, on_end
        self._numbers, self._ordered = numbers, ordered
        self._ended_arrays = EndedArrays()
        """What `ordered` has not been told of."""
        self._runs: dict[int, RemoteRun | _Ends] = {}
        """What has not ended on all hosts."""
        self._lock = threading.Lock()
        """Guards runs against the loss of the island."""
        self._over: tuple[float, str] | None = None
        """Since when the stream of a host has ended, and why."""
        self.members = tuple(RemoteHost(host, way, self) for host, way in ways.items())
        for member in self.members:
            member.begin()

    def order(self, *messages: m.Message) -> None:
        """Sends messages to all hosts, behind the runs that were started before, and the ends of arrays."""
        if self.lost is None:
            with contextlib.suppress(ConnectionEnded):  # who has the way to the controller hears of that itself
                self._ordered.post(*self._ended_arrays.take(), *messages)

    def put(self, message: m.PutArray) -> None:
        """Sends an argument of a plan."""
        for member in self.members:
            member.put(message)

    def flush(self) -> None:
        """Waits until all hosts have the arguments that were sent to them."""
        for member in self.members:
            member.flush()

    def wait_for_room(self) -> None:
        """Waits while a host does not take what was sent to it."""
        for member in self.members:
            member.wait_for_room()

    def ask(self, make: Callable[[int], m.Message]) -> m.Answer:
        """Asks all hosts; gives the answer of the first, which is theirs, too. Raises as `RemoteHost.ask`."""
        return self.request(make)()

    def request(self, make: Callable[[int], m.Message]) -> Callable[[], m.Answer]:
        """As `ask`, but does not wait: what it gives does."""
        wait = self._request_each(make)
        return lambda: wait()[0]

    def ask_each(self, make: Callable[[int], m.Message]) -> Sequence[m.Answer]:
        """Asks all hosts at once; gives their answers, by rank. Raises as `RemoteHost.ask`."""
        return self._request_each(make)()

    def _request_each(self, make: Callable[[int], m.Message]) -> Callable[[], Sequence[m.Answer]]:
        waits = [member.request(make) for member in self.members]
        return lambda: [wait() for wait in waits]

    def expect(self, number: int, run: RemoteRun) -> bool:
        """Notes a run that is about to be started; fails it, and returns False, where the island is lost."""
        with self._lock:
            if (lost := self.lost) is None:
                self._runs[number] = run if len(self.members) == 1 else _Ends(run, len(self.members))
        if lost is not None:
            run.end({}, lost)
        return lost is None

    @property
    def under_way(self) -> int:
        """How many runs have not ended there."""
        return len(self._runs)

    def refuse(self, number: int, cause: Diagnostic) -> None:
        """Ends a run that no host will ever hear of."""
        if (run := self._runs.pop(number, None)) is not None:
            run.end({}, cause)

    def end_run(self, said: m.Done | m.Failed) -> None:
        """Notes that a host has ended its part of a run."""
        causes: dict[int, Diagnostic] = {}
        found = None
        if isinstance(said, m.Failed):
            causes = {int(number): read_diagnostic(text) for number, text in said.causes.items()}
            found = (said.step, read_diagnostic(said.found)) if said.found else None
        run = self._runs.get(said.run)
        if run is not None and run.end(causes, found=found):
            self._runs.pop(said.run, None)
        self._on_end(said.run)

    def fetch(self, number: int, shard: int) -> tuple[tuple[int, ...], bytes]:
        """Copies an array, or one of its shards, from the hosts: of several each sends what no other does."""
        answers = self.ask_each(lambda request: m.FetchArray(request, number, shard))
        if len(answers) == 1:
            return tuple(json.loads(answers[0].value)), answers[0].blob
        return _joined([(json.loads(answer.value), answer.blob) for answer in answers if answer.value])

    def copy(self, number: int) -> int:
        """Copies an array on its hosts; returns the number of the copy."""
        target = self._numbers.take()
        self.order(m.CopyArray(number, target))
        return target

    def free(self, number: int) -> None:
        """Says that no run will name an array again; may be called anywhere, also by the garbage collector."""
        self._ended_arrays.add(number)

    def unload(self, plan: int) -> None:
        """Says that no run of a plan will come; may be called anywhere, as `free`."""
        self._ended_arrays.add_plan(plan)

    def take_ended(self) -> list[m.Message]:
        """Takes messages that tell the hosts of ended arrays, to be sent with a run."""
        return self._ended_arrays.take_with_run()

    def free_now(self) -> None:
        """Sends the ends of arrays, where nothing else is sent."""
        if self.lost is None and (ended := self._ended_arrays.take()):
            with contextlib.suppress(ConnectionEnded):
                self._ordered.post(*ended)

    def note_end(self, reason: str) -> None:
        """Notes that the stream of a host has ended: the controller says why, in a moment."""
        self._over = self._over or (time.monotonic(), reason)

    def lose_late(self, now: float) -> None:
        """Loses the island if a stream has ended long ago, and the controller says nothing."""
        if self._over is not None and now > self._over[0] + LOSS_REASON_TIMEOUT_S:
            self.lose(self._over[1])

    def lose(self, reason: str, cause: Diagnostic | None = None) -> None:
        """Fails all runs and requests on the island: a host has ended, hangs (`cause`) or sent an invalid message."""
        with self._lock:
            if self.lost is not None:
                return
            self.lost = cause or HostLost(island=self.island, reason=reason)
            runs = list(self._runs.values())
            self._runs.clear()
        note("host", self.island, f"is gone: {self.lost.text(self.lost.have)}")
        for run in runs:
            run.end({}, self.lost)
        for member in self.members:
            member.end()
        self._on_lost(self)


class _Ends:
    """The ends of one run on several hosts, as one."""

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
        """Notes the end on one host, or on all for one cause; returns whether it was the last."""
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


def _joined(parts: Sequence[tuple[Any, bytes]]) -> tuple[tuple[int, ...], bytes]:
    """The shape and the values of an array of which each host has sent boxes."""
    shape, size = tuple(parts[0][0]["shape"]), parts[0][0]["itemsize"]
    whole: np.ndarray[Any, Any] = np.empty(shape, f"V{size}")
    for said, raw in parts:
        start = 0
        for box in said["boxes"]:
            lengths = [q - p for p, q in box]
            count = int(np.prod(lengths, dtype=np.int64)) * size
            piece = np.frombuffer(raw[start : start + count], whole.dtype).reshape(lengths)
            whole[tuple(slice(p, q) for p, q in box)] = piece
            start += count
    return shape, whole.tobytes()
