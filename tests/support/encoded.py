"""Runs a host in this process that receives its runs as encoded messages, as between two processes."""

import contextlib
import queue
import threading
import time
from typing import Any

from pathways.api.process import Process
from pathways.runtime.client.controller import Controller
from pathways.runtime.client.hosts import Hosts
from pathways.runtime.client.remote_gang import IslandHost
from pathways.runtime.client.remote_host import RemoteHost
from pathways.runtime.host.host import Host
from pathways.runtime.host.load.neighbors import Neighbors
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

    def close(self) -> None:
        self._outbox.put(None)
        self._inbox.put(None)


class EncodedHosts(Hosts):
    """Presents the devices of this process as one host that owns all islands."""

    def __init__(self, platform: str) -> None:
        super().__init__(platform)
        down: queue.SimpleQueue[Any] = queue.SimpleQueue()
        up: queue.SimpleQueue[Any] = queue.SimpleQueue()
        there: Any = EncodedConnection(down, up)
        here: Any = EncodedConnection(up, down)
        nowhere: Any = None
        host = Host(NAME, self, self.islands_for, Neighbors(nowhere), there.post)
        host.start()
        todo: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        for work in (_read, _serve):
            threading.Thread(target=work, args=(there, host, todo), name=f"encoded{work.__name__}", daemon=True).start()
        self.hosts[NAME] = RemoteHost(NAME, here, lambda _: None, numbers=self.numbers)

    def host_of(self, island: str) -> str:
        return NAME

    def host(self, name: str) -> IslandHost:
        return self.hosts[name]

    def fence(self, host: IslandHost) -> None:
        """Does nothing, because there are no other hosts."""


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
