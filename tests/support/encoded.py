"""Runs a host in this process that receives its runs as encoded messages, as between two processes."""

import contextlib
import queue
import threading
from collections.abc import Sequence
from typing import Any

from pathways.api.process import Process
from pathways.dialect.diagnostic_json import read_diagnostic
from pathways.runtime.client.controller import Controller
from pathways.runtime.client.remote.hosts import Hosts, RunParcel, StartedRun
from pathways.runtime.client.remote.remote_island import RemoteIsland
from pathways.runtime.client.remote_array import Parts, RemoteRun
from pathways.runtime.control.relay import Relay
from pathways.runtime.host.host import Host
from pathways.runtime.host.load.peer_hosts import PeerHosts
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.encoding import decode, encode, max_bytes
from pathways.runtime.wire.frames import ConnectionEnded
from pathways.runtime.wire.loop import Loop
from pathways.runtime.wire.messages import Message
from pathways.runtime.wire.peer import OnEnd, Receive

NAME = "this process"
THREADS = (
    "encoded_read",
    "encoded_serve",
    "pathways-controls",
    "pathways-loop",
    "pathways-fetch-0",
    "pathways-load-0",
    "pathways-snapshots-0",
    f"pathways-{NAME}",
)
DESCRIPTORS = ("anon_inode:[eventpoll]", "socket", "socket")
"""The threads of the host, and the descriptors of its loop. They are there until this process ends."""


class EncodedEnd:
    """One end of a stream within this process; messages are encoded and decoded."""

    def __init__(self, inbox: "queue.SimpleQueue[Any]", outbox: "queue.SimpleQueue[Any]") -> None:
        self._inbox, self._outbox = inbox, outbox

    def post(self, *messages: Message) -> None:
        for kind, payload, blob in map(encode, messages):
            assert len(payload) + len(blob) <= max_bytes(kind)
            self._outbox.put((kind, payload + blob))

    def receive(self) -> tuple[int, bytes]:
        """Waits for the next frame. Raises ConnectionEnded."""
        found = self._inbox.get()
        if found is None:
            raise ConnectionEnded("the stream has ended")
        return found


class ClientEnd(EncodedEnd):
    """The client's end, which does what else the controller does: it passes on what the host decides of a run."""

    sent_no_message = False

    def __init__(self, inbox: "queue.SimpleQueue[Any]", outbox: "queue.SimpleQueue[Any]") -> None:
        super().__init__(inbox, outbox)
        self.relays: dict[int, Relay] = {}
        self.island: RemoteIsland | None = None

    def begin(self, receive: Receive, on_end: OnEnd) -> None:
        threading.Thread(target=self._read, args=(receive, on_end), name=f"pathways-{NAME}", daemon=True).start()

    def wait_for_room(self) -> None:
        """Returns at once, because the queues are unbounded."""

    def close(self) -> None:
        self._outbox.put(None)
        self._inbox.put(None)

    def send(self, message: m.Decided | m.Undecided) -> None:
        self.post(message)

    def _read(self, receive: Receive, on_end: OnEnd) -> None:
        here: Any = self
        try:
            while True:
                kind, payload = self.receive()
                if self._is_for_client(decode(kind, payload)):
                    receive(here, kind, payload)
        except ConnectionEnded as error:
            on_end(here, str(error))

    def _is_for_client(self, message: Message) -> bool:
        """Does what the controller does; returns whether the client takes the message, too."""
        match message:
            case m.Decided() | m.Undecided() | m.Reached():
                if (relay := self.relays.get(message.run)) is not None:
                    relay.deliver(NAME, message)
            case m.Beat():
                if self.island is not None:
                    self.island.free_now()
            case m.Unusable():
                assert self.island is not None
                self.island.lose("", read_diagnostic(message.cause))
            case m.Missing():
                pass
            case _:
                if isinstance(message, m.Done | m.Failed):
                    self.relays.pop(message.run, None)
                return True
        return False


class EncodedHosts(Hosts):
    """Presents the devices of this process as one host that owns all islands."""

    def __init__(self, platform: str) -> None:
        super().__init__(platform)
        down: queue.SimpleQueue[Any] = queue.SimpleQueue()
        up: queue.SimpleQueue[Any] = queue.SimpleQueue()
        there = EncodedEnd(down, up)
        self._here = here = ClientEnd(up, down)
        nowhere: Any = None
        loop = Loop()
        host = Host(NAME, self, self.islands_for, PeerHosts(nowhere, loop), there.post)
        host.expect(m.Expect(1, "", "", ""))  # as if another client used it: nothing starts a lost host again here
        host.calls.begin(0, there.post)
        host.start(loop)
        loop.start()
        todo: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        for work in (_read, _serve):
            threading.Thread(target=work, args=(there, host, todo), name=f"encoded{work.__name__}", daemon=True).start()
        self._island = RemoteIsland(NAME, {NAME: here}, lambda _: None, numbers=self.numbers, ordered=here)
        here.island = self.hosts[NAME] = self._island

    def host_of(self, island: str) -> str:
        return NAME

    def host(self, name: str) -> RemoteIsland:
        return self.hosts[name]

    def start(self, run: StartedRun, parcels: Sequence[RunParcel]) -> list[RemoteRun]:
        ((host, before, message),) = parcels
        relay = None if run.branches is None else Relay(run.number, {NAME: self._here}, run.branches)
        part = RemoteRun() if relay is None or not run.has_loops else Parts(relay.cancel).add()
        with self.telling:
            if relay is not None:
                self._here.relays[run.number] = relay
            if host.expect(message.run, part):
                self._here.post(*before, *host.take_ended(), message)
        if relay is not None:
            relay.begin()
        return [part]


def _read(there: EncodedEnd, host: Host, todo: "queue.SimpleQueue[Message | None]") -> None:
    with contextlib.suppress(ConnectionEnded):
        while True:
            message = decode(*there.receive())
            if host.notice(message):
                todo.put(message)
    todo.put(None)


def _serve(there: EncodedEnd, host: Host, todo: "queue.SimpleQueue[Message | None]") -> None:
    while (message := todo.get()) is not None:
        host.receive(message)


def encoded_process(platform: str) -> Process:
    """Creates a process whose runs are sent to its host as encoded messages."""
    return Process(platform, Controller(EncodedHosts(platform)))
