"""The hosts of a cluster: started, joined, looked after, fenced when they are gone, and started anew.

All of it in the thread of the controller's loop: what is asked of a host is answered to a function.
"""

import itertools
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pathways.dialect.diagnostic_json import read_diagnostic, write_diagnostic
from pathways.dialect.diagnostics import Diagnostic, PathwaysError
from pathways.dialect.topology import Island
from pathways.runtime.control.epochs import Epoch
from pathways.runtime.control.loop import Loop, Peer
from pathways.runtime.control.silence import Silence, host_timeout
from pathways.runtime.journal import note
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.credentials import Caller
from pathways.runtime.wire.encoding import encode
from pathways.runtime.wire.errors import HostLost
from pathways.runtime.wire.frames import frame_of
from pathways.runtime.wire.versions import difference

MOST_STARTS = 5
"""So many hosts that end before a run of theirs does are enough."""
LOOK = 0.2
"""Seconds between two looks at processes, and at when hosts were last heard of."""
AGAIN = 1.0
"""Seconds after which hosts that could not be joined are joined once more."""
TOGETHER = 0.1
"""Seconds for which hosts that have come wait for others that come, too."""
START = 120.0
"""Seconds that a host may take to start."""


class Started(Protocol):
    """The process of a host, or what stands for it where another machine has it."""

    @property
    def pid(self) -> int:
        """The number of its process; 0 where that is not known."""
        ...

    @property
    def comes_by_itself(self) -> bool:
        """Whether it was not started here: it may come at any time, and as often as it likes."""
        ...

    def is_it(self, caller: Caller) -> bool:
        """Whether who says that it is this host is."""
        ...

    def ended(self) -> str:
        """Why it has ended, with its last words; empty while it runs."""
        ...

    def kill(self) -> None:
        """Ends it now, also where it is frozen."""
        ...


class HostLauncher(Protocol):
    """Starts hosts (runtime/launch/)."""

    def start(self, island: Island, epoch: int) -> Started:
        """Starts the host of an island; it will come by itself. Raises OSError where it cannot be started."""
        ...


@dataclass(eq=False)
class Member:
    """A host of the cluster, one after another."""

    number: int
    island: Island
    epoch: Epoch = field(default_factory=Epoch)
    process: Started | None = None
    peer: Peer | None = None
    """Where it is heard, once it has said hello."""
    address: str = ""
    """Where clients reach it."""
    lost: Diagnostic | None = None
    """Why the last one is gone; None while one is there, or comes for the first time."""
    began: float = 0.0
    worked: bool = False
    """Whether any run has ended there."""
    arrays: int = 0
    """How many arrays it had when it last said so."""
    idle: int = 0
    """How many in a row have ended before any run of theirs did."""
    asked: dict[int, Callable[[m.Answer | Diagnostic], None]] = field(
        default_factory=dict[int, "Callable[[m.Answer | Diagnostic], None]"]
    )

    @property
    def name(self) -> str:
        return self.island.name

    @property
    def is_up(self) -> bool:
        return self.epoch.state == "up"

    def post(self, message: m.Message) -> None:
        """Sends a message; nothing where it is not there."""
        if self.peer is not None:
            for data in frame_of(*encode(message)):
                self.peer.post(bytes(data))


class Members:
    """All hosts of a cluster. `on_came` and `on_gone` hear of each that is there, or is not there any more."""

    def __init__(
        self,
        loop: Loop,
        launcher: HostLauncher,
        islands: Sequence[Island],
        on_came: Callable[[Member], None],
        on_gone: Callable[[Member, int, Diagnostic], None],
    ) -> None:
        self._loop, self._launcher = loop, launcher
        self._on_came, self._on_gone = on_came, on_gone
        self.all = [Member(number, island) for number, island in enumerate(islands)]
        self.by_name = {member.name: member for member in self.all}
        self._requests = itertools.count()
        self._joining = 0
        self._silence = Silence(host_timeout())
        self._closed = False

    def begin(self) -> None:
        """Starts all hosts."""
        self._loop.every(LOOK, self._look)
        for member in self.all:
            self._start(member)

    def _start(self, member: Member) -> None:
        member.began = time.monotonic()
        member.worked = False
        try:
            member.process = self._launcher.start(member.island, member.epoch.number)
        except OSError as error:
            self._give_up(member, HostLost(island=member.name, reason=str(error)))

    def spec_for(self, name: str) -> dict[str, Any]:
        """What a host must know that comes by itself. Raises PWC0910 where none is waited for."""
        member = self.by_name.get(name)
        if member is None or member.process is None or not member.process.comes_by_itself:
            raise PathwaysError(HostLost(island=name, reason="this cluster waits for no host of that name"))
        if member.peer is not None:
            raise PathwaysError(HostLost(island=name, reason="it has a host already"))
        return {"devices": member.island.size}

    def hello(self, peer: Peer, hello: m.Hello, caller: Caller) -> None:
        """Takes the process that says it is a host. Raises PWC0910 where it is none of ours, or of another version."""
        member = self.by_name.get(hello.island)
        if member is None or member.process is None or not member.process.is_it(caller):
            raise PathwaysError(HostLost(island=hello.island, reason=f"{caller} is not its host"))
        if member.peer is not None:
            raise PathwaysError(HostLost(island=hello.island, reason="it has a host already"))
        if other := difference(hello.versions):
            cause = HostLost(island=member.name, reason=f"it is of another version: {other}")
            if not member.process.comes_by_itself:
                self.lose(member, cause)
            raise PathwaysError(cause)
        member.peer, member.address = peer, hello.address
        self._join_soon()

    def ask(
        self, member: Member, make: Callable[[int], m.Message], answered: Callable[[m.Answer | Diagnostic], None]
    ) -> None:
        """Sends a request; `answered` gets the answer, or why there is none."""
        number = next(self._requests)
        member.asked[number] = answered
        member.post(make(number))

    def _join_soon(self) -> None:
        """Joins when no other host has come for a moment: each time all of them are asked and told."""
        self._joining += 1
        joining = self._joining
        waits = any(member.peer is None and member.process is not None for member in self.all)
        self._loop.after(TOGETHER if waits else 0.0, lambda: self._join() if joining == self._joining else None)

    def _join(self) -> None:
        """Tells all hosts that are there where the data of the others comes from, then lets new ones in."""
        self._joining += 1
        joining, there = self._joining, {member.name: member for member in self.all if member.peer is not None}
        servers: dict[str, Mapping[str, str]] = {}
        told: set[str] = set()

        def found(name: str, answer: m.Answer | Diagnostic) -> None:
            if joining != self._joining or self._must_ask_again(answer):
                return  # another has come or gone, and all are asked again
            assert isinstance(answer, m.Answer)
            servers[name] = json.loads(answer.value)
            if len(servers) == len(there):
                for target in there:
                    addresses = {source: servers[source][target] for source in there if source != target}
                    self.ask(
                        there[target],
                        lambda n, addresses=addresses: m.Connect(n, addresses),
                        lambda a, target=target: done(target, a),
                    )

        def done(name: str, answer: m.Answer | Diagnostic) -> None:
            if joining != self._joining or self._must_ask_again(answer):
                return
            told.add(name)
            if len(told) == len(there):
                for member in there.values():
                    if not member.is_up:
                        self._came(member)

        for name, member in there.items():
            wanted = {other: "" for other in there if other != name}
            self.ask(member, lambda n, wanted=wanted: m.Connect(n, wanted), lambda a, name=name: found(name, a))

    def _must_ask_again(self, answer: m.Answer | Diagnostic) -> bool:
        """Whether a host could not say where its data are, or take where others' are: all are asked again, soon."""
        if isinstance(answer, m.Answer) and answer.error:
            print(f"note: {read_diagnostic(answer.error)}", file=sys.stderr, flush=True)
            self._loop.after(AGAIN, self._join_soon)
        return not isinstance(answer, m.Answer) or bool(answer.error)

    def _came(self, member: Member) -> None:
        member.epoch.settle(member.epoch.number, "join")
        member.lost = None
        note("host", member.name, f"joins, number {member.epoch.number}")
        self._on_came(member)

    def hear(self, member: Member, answer: m.Answer) -> None:
        """Takes what was asked of a host."""
        if (answered := member.asked.pop(answer.request, None)) is not None:
            answered(answer)

    def ended(self, member: Member, peer: Peer, reason: str) -> None:
        """Hears that a host's stream has ended."""
        if member.peer is peer:
            said = member.process.ended() if member.process is not None else ""
            self.lose(member, HostLost(island=member.name, reason=f"its process has ended: {said or reason}"))

    def hangs(self, member: Member, message: m.Hangs) -> None:
        self.lose(member, read_diagnostic(message.cause))

    def lose(self, member: Member, cause: Diagnostic) -> None:
        """Kills what is left of a host, tells all others, and starts another in its place."""
        if self._closed:
            return
        epoch, peer = member.epoch.number, member.peer
        member.epoch.go()
        member.lost, member.peer, member.address = cause, None, ""
        note("host", member.name, f"is gone: {cause.text(cause.have)}")
        print(f"note: {cause.text(cause.title)}: {cause.text(cause.have)}", file=sys.stderr, flush=True)
        if peer is not None:
            peer.post(b"".join(frame_of(*encode(m.RunRefused(0, write_diagnostic(cause))))))  # if it still hears
            peer.end("the host is gone")
        if member.process is not None:
            member.process.kill()
        asked, member.asked = list(member.asked.values()), {}
        for answered in asked:
            answered(cause)
        self.fence(member, cause)
        self._on_gone(member, epoch, cause)
        member.idle = 0 if member.worked else member.idle + 1
        if member.idle >= MOST_STARTS and (member.process is None or not member.process.comes_by_itself):
            self._give_up(member, cause)
        else:
            self._start(member)
        if peer is not None:
            self._join_soon()  # those who were being joined with it are joined without

    def fence(self, member: Member, cause: Diagnostic) -> None:
        """Tells all other hosts that one is gone, so that nothing waits for it."""
        for other in self.all:
            if other is not member:
                other.post(m.Fence(member.name, write_diagnostic(cause)))

    def _give_up(self, member: Member, cause: Diagnostic) -> None:
        member.epoch.settle(member.epoch.number, "stay away")
        member.lost, member.process = cause, None
        print(f"note: the host of {member.name} ends again and again, and is not started any more", file=sys.stderr)
        self._on_gone(member, member.epoch.number, cause)

    def _look(self) -> None:
        """Loses hosts that have ended before they came, take too long to come, or are not heard of."""
        now = time.monotonic()
        for member in self.all:
            if member.peer is None and member.process is not None:
                if said := member.process.ended():
                    self.lose(member, HostLost(island=member.name, reason=f"it has not started: {said}"))
                elif now - member.began > START and not member.process.comes_by_itself:
                    reason = f"it did not start in {START:g} seconds"
                    self.lose(member, HostLost(island=member.name, reason=reason))
        heard = {member.name: member.peer.heard for member in self.all if member.peer is not None}
        for name, seconds in self._silence.judge(now, heard).items():
            reason = f"nothing was heard of it for {seconds:.1f} seconds"
            self.lose(self.by_name[name], HostLost(island=name, reason=reason))

    def close(self) -> None:
        """Ends all hosts."""
        self._closed = True
        for member in self.all:
            if member.peer is not None:
                member.peer.end("the cluster is stopped")
            if member.process is not None:
                member.process.kill()


def spec_of(members: Iterable[Member]) -> dict[str, str]:
    """What a client must know of each host: its epoch, where it is, and why it will not come; for `Welcome`."""
    found: dict[str, str] = {}
    for each in members:
        gone = write_diagnostic(each.lost) if each.epoch.state == "away" and each.lost is not None else ""
        found[each.name] = json.dumps([each.epoch.number, each.address if each.is_up else "", gone])
    return found
