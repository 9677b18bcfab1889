"""Runs a host in this process that receives its runs as encoded messages, as between two processes."""

import contextlib
import queue
import threading
import time
from collections.abc import Sequence
from typing import Any

from pathways.api.process import Process
from pathways.dialect.diagnostic_json import read_diagnostic
from pathways.runtime.client.controller import Controller
from pathways.runtime.client.hosts import Hosts, RunParcel, StartedRun
from pathways.runtime.client.remote_island import RemoteIsland
from pathways.runtime.control.relay import Relay
from pathways.runtime.host.devices.remote_array import Parts, RemoteRun
from pathways.runtime.host.host import Host
from pathways.runtime.host.load.neighbors import Neighbors
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.encoding import decode, encode, most_bytes
from pathways.runtime.wire.frames import ConnectionEnded
from pathways.runtime.wire.messages import Message

NAME = "this process"
THREADS = (
    "encoded_read",
    "encoded_serve",
    "pathways-beat",
    "pathways-serve_controls",
    "pathways-fetch-0",
    "pathways-load-0",
    "pathways-snapshots-0",
    f"pathways-{NAME}",
)
"""The threads of the host. They run until this process ends."""


class EncodedConnection:
    """One end of a connection within this process; messages are encoded and decoded."""

    def __init__(self, inbox: "queue.SimpleQueue[Any]", outbox: "queue.SimpleQueue[Any]") -> None:
        self._inbox, self._outbox = inbox, outbox

    @property
    def heard(self) -> float:
        return time.monotonic()

    def post(self, *messages: Message) -> None:
        for kind, payload, blob in map(encode, messages):
            assert len(payload) + len(blob) <= most_bytes(kind)
            self._outbox.put((kind, payload + blob))

    post_soon = post

    def wait_for_room(self) -> None:
        """Returns at once, because the queues are unbounded."""

    def receive(self) -> Message:
        found = self._inbox.get()
        if found is None:
            raise ConnectionEnded("the stream has ended")
        return decode(*found)

    def flush(self) -> None:
        """Does nothing: all is sent at once."""

    def close(self) -> None:
        self._outbox.put(None)
        self._inbox.put(None)


class ClientEnd(EncodedConnection):
    """The client's end, which does what else the controller does: it passes on what the host decides of a run."""

    def __init__(self, inbox: "queue.SimpleQueue[Any]", outbox: "queue.SimpleQueue[Any]") -> None:
        super().__init__(inbox, outbox)
        self.relays: dict[int, Relay] = {}
        self.island: RemoteIsland | None = None

    def tell(self, message: m.Decided | m.Undecided) -> None:
        self.post(message)

    def receive(self) -> Message:
        while True:
            message = super().receive()
            match message:
                case m.Decided() | m.Undecided() | m.Reached():
                    if (relay := self.relays.get(message.run)) is not None:
                        relay.hear(NAME, message)
                case m.Beat():
                    if self.island is not None:
                        self.island.free_now()
                case m.Hangs():
                    assert self.island is not None
                    self.island.lose("", read_diagnostic(message.cause))
                case m.Missing():
                    pass
                case _:
                    if isinstance(message, m.Done | m.Failed):
                        self.relays.pop(message.run, None)
                    return message


class EncodedHosts(Hosts):
    """Presents the devices of this process as one host that owns all islands."""

    def __init__(self, platform: str) -> None:
        super().__init__(platform)
        down: queue.SimpleQueue[Any] = queue.SimpleQueue()
        up: queue.SimpleQueue[Any] = queue.SimpleQueue()
        there: Any = EncodedConnection(down, up)
        self._here = here = ClientEnd(up, down)
        connection: Any = here
        nowhere: Any = None
        host = Host(NAME, self, self.islands_for, Neighbors(nowhere), there.post)
        host.calls.begin(0, there.post)
        host.start()
        todo: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        for work in (_read, _serve):
            threading.Thread(target=work, args=(there, host, todo), name=f"encoded{work.__name__}", daemon=True).start()
        self._island = RemoteIsland(NAME, {NAME: connection}, lambda _: None, numbers=self.numbers, ordered=here)
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


def _read(connection: EncodedConnection, host: Host, todo: "queue.SimpleQueue[Message | None]") -> None:
    with contextlib.suppress(ConnectionEnded):
        while True:
            message = connection.receive()
            if host.notice(message):
                todo.put(message)
    todo.put(None)


def _serve(connection: EncodedConnection, host: Host, todo: "queue.SimpleQueue[Message | None]") -> None:
    while (message := todo.get()) is not None:
        host.receive(message)


def encoded_process(platform: str) -> Process:
    """Creates a process whose runs are sent to its host as encoded messages."""
    return Process(platform, Controller(EncodedHosts(platform)))
