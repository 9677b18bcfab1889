"""Speaks the protocol of a cluster as a client that sends anything: each message with one field replaced."""

import contextlib
import json
import os
import random
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import numpy as np
from jax import lax

import pathways as pw
from pathways.dialect.plan.plan_file import write_plan
from pathways.runtime.control.client_parcels import AFTER_RUN
from pathways.runtime.launch.local_hosts import CONTROLLER
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.connection import Connection
from pathways.runtime.wire.encoding import MESSAGES, frame_bytes, pack_parcels
from pathways.runtime.wire.frames import Bytes, ConnectionEnded
from pathways.runtime.wire.ids import first_id
from pathways.runtime.wire.message import VERSIONS
from support.clusters import PATIENCE
from support.two_islands import f, g

ASKED = 123_456
"""The number of a question that no hostile message has."""
TEXTS = ("", "x", "\x1b]0;owned\x07", "[]", "{}", "null", "[" * 50_000, '{"kind": "raise", "device": []}', "y" * 70_000)
BYTES = (b"", b"\0", b"\xff" * 100, bytes(4096))
DICTIONARIES: tuple[dict[str, str], ...] = ({}, {"island0": ""}, {"a": "b"})


def connect(path: str) -> Connection:
    """Connects to a Unix socket; reads from it time out."""
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(path)
    sock.settimeout(PATIENCE)
    return Connection(sock)


@dataclass
class HostileClient:
    """A client of a cluster that may send anything."""

    address: str
    control: Connection = field(init=False)
    welcome: m.Welcome = field(init=False)
    _introduced: set[int] = field(default_factory=set[int])

    def __post_init__(self) -> None:
        self.control = connect(str(Path(self.address) / CONTROLLER))
        self.control.post(m.ClientHello("hostile", os.getpid(), VERSIONS))
        said = self.control.receive()
        assert isinstance(said, m.Welcome), said
        self.welcome = said

    def ids(self, number: int) -> int:
        """Returns an id of this client's own."""
        return first_id(self.welcome.client) + number

    def host(self, island: str) -> Connection:
        """Connects to the host of an island, with this client's ticket."""
        address = next(iter(json.loads(self.welcome.hosts[island])[1].values()))
        host = connect(address)
        host.post(m.Attach(1, self.welcome.client, self.welcome.ticket))
        assert host.receive() == m.Answer(1)
        return host

    def load(self, host: Connection, plan: int, island: str = "island0", blob: bytes = b"") -> None:
        """Loads a plan, `small_plan` unless another is given, and shows the host's proof."""
        host.post(m.LoadPlan(2, plan, "plan.bin", False, {}, blob or small_plan()))
        answer = host.receive()
        assert isinstance(answer, m.Answer) and not answer.error, answer
        if plan not in self._introduced:
            self._introduced.add(plan)
            self.control.post(m.Introduce(0, plan, "a plan", None, ""))
        self.control.post(m.Loaded(plan, self.number(island), bytes(answer.blob).decode()))

    def epoch(self, island: str) -> int:
        return int(json.loads(self.welcome.hosts[island])[0])

    def number(self, island: str) -> int:
        return list(self.welcome.hosts).index(island)

    def after_runs(self, island: str, message: m.Message) -> m.Relayed:
        """Wraps a message that goes to an island by the controller, behind runs."""
        frame = frame_bytes(message)
        return m.Relayed(self.number(island), self.epoch(island), 0, frame)

    def submitted(self, islands: str, run: m.RunPlan) -> m.Submit:
        """Wraps a run on islands, whose names are separated by spaces."""
        parcels = pack_parcels([(self.number(island), self.epoch(island), [run]) for island in islands.split()])
        return m.Submit(run.run, run.plan, 0, 1 << 20, (), parcels)

    def wrapped(self, island: str, message: m.Message, plan: int, number: int) -> m.Message:
        """Wraps what goes to a host by the controller, a run with the number of a plan and of its own."""
        with contextlib.suppress(OverflowError):  # send() leaves such a message out
            if isinstance(message, AFTER_RUN):
                return self.after_runs(island, message)
            if isinstance(message, m.RunPlan):
                return self.submitted(island, msgspec.structs.replace(message, plan=plan, run=self.ids(1000 + number)))
        return message

    def close(self) -> None:
        self.control.close()


@cache
def small_plan() -> bytes:
    """Compiles a program that adds one to a vector of 8 numbers, for a cluster of three islands."""
    program = pw.program(lambda x: x + 1.0)
    return write_plan(program.lower(np.arange(8, dtype=np.float32)).compile("islands=3,devices=2").plan)


@cache
def plan_of_two_islands(turns: int = 0) -> bytes:
    """Compiles a program without arguments whose value goes from island0 to island1, for a cluster of three islands.

    With `turns` it goes there in a loop on data.
    """
    ones = np.ones((4, 4), np.float32)

    def loop() -> Any:
        return lax.while_loop(lambda c: c[1] < turns, lambda c: (g(f(c[0])) * 0 + c[0] + 1, c[1] + 1), (ones, 0))

    program = pw.program(loop if turns else lambda: g(f(ones)))
    return write_plan(program.lower().compile("islands=3,devices=2").plan)


def values_of(hint: Any, own: int) -> Iterator[Any]:
    """Lists hostile values for a field of this type. `own`: an id of the client."""
    if hint is int:
        yield from (-1, 0, 1, 9, own, own + (1 << 48), (1 << 62) + 1, (1 << 63) - 1, -(1 << 63))
    elif hint is str:
        yield from TEXTS
    elif hint in (bytes, Bytes):
        yield from BYTES
    elif hint == tuple[int, ...]:
        yield from ((), (-1,), (0, 1 << 60), (0, -(1 << 60)), (own, own + (1 << 48)), (own,) * 3000)
    elif hint == dict[str, str]:
        yield from DICTIONARIES
    elif hint == dict[int, tuple[int, ...]]:
        yield from ({}, {0: ()}, {-1: (own,)}, {1 << 62: ((1 << 63) - 1, -1)}, dict.fromkeys(range(3000), (own,) * 9))
    elif hint == dict[int, tuple[str, frozenset[str]]] | None:
        yield from (None, {}, {0: ("cond", frozenset({"island0"}))}, {-1: ("x", frozenset({"nobody"}))})
        yield dict.fromkeys(range(3000), ("while", frozenset(TEXTS[:3])))
    else:
        assert hint is bool, hint
        yield from (False, True)


def hostile_messages(own: int, client: int, rng: random.Random, other_fields: int = 0) -> Iterator[m.Message]:
    """Makes every kind of message, with every field replaced by each hostile value, and so many others at random."""
    for cls in MESSAGES:
        hints = get_type_hints(cls)
        plain: dict[str, Any] = {name: next(iter(values_of(hint, own))) for name, hint in hints.items()}
        for name in {"array", "plan", "run", "results", "source", "target", "transfers"} & hints.keys():
            plain[name] = own
        plain |= {name: client for name in {"client"} & hints.keys()}
        for name, hint in hints.items():
            for value in values_of(hint, own):
                also = rng.sample(sorted(hints), min(other_fields, len(hints)))
                others = {other: rng.choice(list(values_of(hints[other], own))) for other in also}
                yield cls(**(plain | others | {name: value}))


def send(connection: Connection, message: m.Message) -> bool:
    """Sends a message if it can be encoded; returns whether the connection still takes messages."""
    with contextlib.suppress(OverflowError):
        try:
            connection.post(message)
        except ConnectionEnded:
            return False
    return True


def answers(connection: Connection, question: m.Message) -> bool:
    """Asks a question numbered `ASKED`; returns whether it is answered, which is so if the connection is still open."""
    try:
        connection.post(question)
        while True:
            said = connection.receive()
            if isinstance(said, m.Answer) and said.request == ASKED:
                return True
    except ConnectionEnded:
        return False
