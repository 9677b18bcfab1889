"""The hosts of one island, as one: what is sent goes to all of them, in one order, and what ends has ended on all.

When one is gone all are: the others have threads in collectives that will never end, and are replaced with it.
"""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from pathways.dialect.diagnostics import Diagnostic, PathwaysError
from pathways.runtime.client.client_ids import ClientIds
from pathways.runtime.client.remote_host import RemoteHost
from pathways.runtime.control.gang_roll import hangs, roll_of
from pathways.runtime.control.relay import Relay
from pathways.runtime.errors import Hang
from pathways.runtime.host.devices.remote_array import RemoteRun
from pathways.runtime.threads import start_thread
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.connection import Connection


class RemoteGang:
    """The far ends of the connections to all hosts of an island, by rank. As a RemoteHost, which one of them is."""

    def __init__(
        self,
        island: str,
        connections: Mapping[str, Connection],
        on_lost: "Callable[[RemoteGang], None]",
        on_losing: "Callable[[RemoteGang], None]" = lambda _: None,
        *,
        numbers: ClientIds,
        epoch: int = 0,
    ) -> None:
        """`connections` are by name of the host."""
        self.island = island
        self.epoch = epoch
        self._on_lost, self._on_losing = on_lost, on_losing
        self._numbers = numbers
        self._first: list[RemoteHost] = []
        """The host that was the first to go."""
        self._order = threading.RLock()
        """Held while a message goes to all of them: they see all messages in one order."""
        self._ready = threading.Event()
        self.members = tuple(self._member(name, connection) for name, connection in connections.items())
        self._ready.set()

    def _member(self, name: str, connection: Connection) -> RemoteHost:
        """One of the hosts, which tells the island of its end."""
        return RemoteHost(
            name, connection, self._member_lost, self._member_losing, self._member_hangs,
            numbers=self._numbers, epoch=self.epoch,
        )  # fmt: skip

    @property
    def lost(self) -> Diagnostic | None:
        """Why one of them is gone, and so all are; None while they are there."""
        return self._first[0].lost if self._first else None

    @property
    def arrays(self) -> int:
        return max(member.arrays for member in self.members)

    @property
    def under_way(self) -> int:
        """How many runs have not ended on some of them."""
        return max(member.under_way for member in self.members)

    @property
    def worked(self) -> bool:
        return any(member.worked for member in self.members)

    @property
    def faults(self) -> int:
        return max(member.faults for member in self.members)

    def post(self, message: m.Message) -> None:
        with self._order:
            for member in self.members:
                member.post(message)

    def ask(self, make: Callable[[int], m.Message]) -> m.Answer:
        """Asks all of them; gives the answer of the first, which is theirs, too."""
        return ask_members(self, make)[0]

    def order(self, *messages: m.Message) -> None:
        """Sends messages to all of them, behind the runs that were started before."""
        with self._order:
            for member in self.members:
                member.order(*messages)

    def put(self, message: m.PutArray) -> None:
        with self._order:
            for member in self.members:
                member.put(message)

    def flush(self) -> None:
        """Waits until all have the arguments that were sent to them, where runs could overtake them."""
        for member in self.members:
            member.flush()

    def run(
        self, message: m.RunPlan, run: RemoteRun, relay: Relay | None = None, before: Sequence[m.Message] = ()
    ) -> None:
        """Starts a run on all of them; it ends when it has ended on the last."""
        ends = _Ends(run, len(self.members))
        with self._order:
            for member in self.members:
                member.run(message, ends.of_member(), relay, before)

    def expect(self, number: int, run: RemoteRun) -> bool:
        """Notes a run that is about to be started; fails it, and returns False, where one of them is gone."""
        ends = _Ends(run, len(self.members))
        return all([member.expect(number, ends.of_member()) for member in self.members])

    def refuse(self, number: int, cause: Diagnostic) -> None:
        """Ends a run that none of them will ever hear of."""
        for member in self.members:
            member.refuse(number, cause)

    def abandon(self) -> None:
        for member in self.members:
            member.abandon()

    def wait_for_room(self) -> None:
        for member in self.members:
            member.wait_for_room()

    def fetch(self, number: int, shard: int) -> tuple[tuple[int, ...], bytes]:
        """Copies an array from the hosts that have its shards, each of which sends what no other does."""
        answers = ask_members(self, lambda request: m.FetchArray(request, number, shard))
        parts = [(json.loads(answer.value), answer.blob) for answer in answers if answer.value]
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

    def copy(self, number: int) -> int:
        target = self._numbers.take()
        self.order(m.CopyArray(number, target))
        return target

    def free(self, number: int) -> None:
        for member in self.members:
            member.free(number)

    def unload(self, plan: int) -> None:
        for member in self.members:
            member.unload(plan)

    def take_ended(self) -> list[m.Message]:
        """What tells all of them of arrays that have ended, for who sends it where `order` would: each hears itself."""
        return []

    def free_now(self) -> None:
        """Sends the ends of arrays, where nothing else is sent: each of them does, whenever it gives a sign of life."""

    def lose(self, reason: str, cause: Diagnostic | None = None) -> None:
        self.members[0].lose(reason, cause)

    def _member_losing(self, member: RemoteHost) -> None:
        if not self._first:
            self._first.append(member)
            self._on_losing(self)

    def _member_lost(self, member: RemoteHost) -> None:
        self._ready.wait()
        if self._first[0] is member:
            for other in self.members:
                other.lose("", member.lost)
            self._on_lost(self)

    def _member_hangs(self, member: RemoteHost, cause: Diagnostic) -> None:
        """Asks the others, in a thread of its own: the one that reads what a host says must go on."""
        start_thread("pathways-roll-call", self._call_roll, member, cause)

    def _call_roll(self, member: RemoteHost, cause: Diagnostic) -> None:
        """Gives the island up where nothing computes on any of its hosts: else one may be what the other waits for."""
        try:
            answers = [json.loads(answer.value) for answer in ask_members(self, m.CallRoll)]
        except PathwaysError:  # one of them is gone, and so are all
            return
        names = [one.island for one in self.members]
        if isinstance(cause, Hang) and hangs(float(cause.seconds), [a["idle"] for a in answers]):
            calls = roll_of(dict(zip(names, (a["calls"] for a in answers), strict=True)))
            self.lose("", replace(cause, calls=calls))


IslandHost: TypeAlias = RemoteHost | RemoteGang
"""What has an island: one host, or several that are as one."""


class _Ends:
    """The ends of one run on several hosts, as one."""

    def __init__(self, run: RemoteRun, left: int) -> None:
        self._run = run
        self._left = left
        self._causes: dict[int, Diagnostic] = {}
        self._found: list[tuple[int, Diagnostic]] = []
        self._lock = threading.Lock()

    def of_member(self) -> RemoteRun:
        return _MemberRun(self._note)

    def _note(
        self, causes: Mapping[int, Diagnostic], everything: Diagnostic | None, found: tuple[int, Diagnostic] | None
    ) -> None:
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


class _MemberRun(RemoteRun):
    """A run as one of several hosts executes it."""

    __slots__ = ("_note",)

    def __init__(self, note: Callable[..., None]) -> None:
        super().__init__()
        self._note = note

    def end(
        self,
        causes: dict[int, Diagnostic],
        everything: Diagnostic | None = None,
        found: tuple[int, Diagnostic] | None = None,
    ) -> None:
        self._note(causes, everything, found)


def ask_members(host: IslandHost, make: Callable[[int], m.Message]) -> Sequence[m.Answer]:
    """Asks all processes of a host; gives their answers, by rank. Raises as `RemoteHost.ask`."""
    waits = [member.request(make) for member in host.members]
    return [wait() for wait in waits]
