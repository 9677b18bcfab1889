"""Receives the small values that another host process sends, and keeps them until a run on this host needs them. It is
the receiving end of `eager_server.py`.

This is the eager protocol of message passing; larger values are pulled (`transfer_server.py`). The receiver connects
with the key that it was sent, and sends its reconnect count. The sender (`eager_server.py`) uses the connection once
its own count is the same. So no value from before a reconnection arrives after it.
"""

import contextlib
import selectors
import socket
import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from pathways.runtime.monitor import Gate
from pathways.runtime.threads import started
from pathways.runtime.wire.addresses import end_socket, read_address, undelayed
from pathways.runtime.wire.frames import HEADER, frame_of

_KINDS = READY, VALUE, FAILURE, WHERE = range(4)
"""Kinds of frames: both ends are ready; a value; the failure of a value; the address of another transport. Each frame
begins with a number: that of the value, or of the transport."""
HELLO = 4
"""The kind of the frame that the receiver sends first."""
KEY_BYTES = 16
KEY_AND_TIME = struct.Struct(f"<{2 * KEY_BYTES}sQ")
"""Layout of the `HELLO` frame: the receiver's key, and the reconnect count of the two hosts."""
NUMBER = struct.Struct("<Q")
CONNECT_TIMEOUT_S = 10.0
"""Limits the time to connect, and the time in which a process must show a key."""
RECONNECT_INTERVAL_S = 0.2
"""Seconds between two attempts to connect."""
MAX_FAILURE_BYTES = 1 << 20
"""Maximum size of the text of a failure, in bytes."""
MAX_WHERE_BYTES = 256
"""Maximum size of the address of a transport."""
MAX_TRANSPORTS = 8
"""Maximum number of transports."""
_MAX_BYTES = {READY: 0, FAILURE: MAX_FAILURE_BYTES, WHERE: MAX_WHERE_BYTES}
"""Maximum number of bytes after that number, by kind of frame. The limit for values is that of the sender."""
_READ_BYTES = 1 << 16
"""Maximum size of one read. Values are small, so that one read receives many of them."""


@dataclass(frozen=True)
class EagerAddress:
    """The address at which a host accepts the receiver with a key: HOST:PORT, and on Linux an abstract Unix socket.

    On one machine a hop through that socket takes a tenth less time. Its name is empty on other systems.
    """

    address: str
    name: str
    key: str

    def __str__(self) -> str:
        return f"{self.address} {self.name or '-'} {self.key}"

    @classmethod
    def read(cls, text: str) -> "EagerAddress":
        address, name, key = text.split()
        return cls(address, "" if name == "-" else name, key)

    def connected(self, hello: bytes | memoryview) -> socket.socket:
        """Connects, and sends the first frame. Raises OSError if nothing listens there."""
        with contextlib.ExitStack() as failed:
            sock = self._near() or socket.create_connection(read_address(self.address) or ("", 0), CONNECT_TIMEOUT_S)
            failed.callback(sock.close)
            undelayed(sock)
            sock.settimeout(None)
            sock.sendall(hello)
            failed.pop_all()
        return sock

    def _near(self) -> socket.socket | None:
        if not self.name:
            return None
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.connect(abstract(self.name))
        except OSError:  # the host is on another machine
            sock.close()
            return None
        return sock


def abstract(name: str) -> str:
    """Returns the address of an abstract Unix socket, which has no file."""
    return f"\0{name}"


class EagerMessage:
    """One pushed value as bytes, received or not yet received, or the failure in its place."""

    __slots__ = ("_data", "_failure", "_gates", "_is_there", "inbox")

    def __init__(self, inbox: "Inbox") -> None:
        self.inbox = inbox
        self._is_there = False
        self._data: memoryview = memoryview(b"")
        self._failure = ""
        self._gates: set[Gate] = set()

    @property
    def has_helper(self) -> bool:
        """Whether a thread reads the socket while others wait at gates."""
        return self.inbox.has_helper

    def is_ready(self) -> bool:
        if not self._is_there:
            self.inbox.poll()
        return self._is_there

    def is_there(self) -> bool:
        """Whether it has been received, without reading the socket."""
        return self._is_there

    def add(self, gate: Gate) -> None:
        """Opens a gate when the value or its failure is received; at once if it was."""
        with self.inbox.lock:
            if not self._is_there:
                self._gates.add(gate)
                self.inbox.wait_at_gates(1)
                return
        gate.open()

    def discard(self, gate: Gate) -> None:
        with self.inbox.lock:
            if gate in self._gates:
                self._gates.remove(gate)
                self.inbox.wait_at_gates(-1)

    def block_until_ready(self) -> None:
        """Waits for the value. Reads the socket meanwhile if no other thread does. Raises as `read`."""
        if not self._is_there and not wait_for_first([self]):
            gate = Gate()
            self.add(gate)
            gate.pass_through()
        self.read()

    def read(self) -> memoryview:
        """Returns the bytes of a received value. Raises RuntimeError, as PJRT does, if the value failed."""
        if self._failure:
            raise RuntimeError(self._failure)
        return self._data

    def complete(self, data: memoryview, failure: str) -> None:
        """Stores the value or its failure, and opens the gates. The caller holds the lock of the inbox."""
        self._data, self._failure, self._is_there = data, failure, True
        gates, self._gates = self._gates, set()
        self.inbox.wait_at_gates(-len(gates))
        for gate in gates:
            gate.open()


def wait_for_first(messages: Sequence[EagerMessage]) -> bool:
    """Waits until one of these is received, and reads the sockets itself: another thread's wakeup costs a tenth hop.

    Returns False at once if another thread reads one of the sockets, or one is not connected.
    """
    boxes = list(dict.fromkeys(message.inbox for message in messages))
    with contextlib.ExitStack() as reading:
        for box in boxes:
            if not box.begin_to_read():
                return False
            reading.callback(box.reading.release)
        while not any(message.is_there() for message in messages):
            if any(box.is_cut for box in boxes):
                return False
            if len(boxes) == 1:
                boxes[0].take()
            else:
                _take_any(boxes)
    return True


def _take_any(boxes: "Sequence[Inbox]") -> None:
    """Waits until one of these sockets has data, and reads it."""
    with selectors.DefaultSelector() as selector:
        for box in boxes:
            selector.register(box, selectors.EVENT_READ, box)
        for key, _ in selector.select():
            key.data.take(socket.MSG_DONTWAIT)


class Inbox:
    """Receives the values that another host pushes to this one.

    A thread that waits only for values of this inbox reads the socket itself. For threads that also wait for other
    things, the thread of the inbox reads. That thread also connects, and reconnects when the connection is lost.
    """

    def __init__(self, eager_address: EagerAddress, max_bytes: int, anew: int = 0) -> None:
        """`most`: the bytes of the largest value that the other host pushes."""
        self._entrance, self.max_bytes, self._anew = eager_address, max_bytes, anew
        self.lock = threading.Lock()
        """Guards the messages; no thread waits while it has this lock."""
        self.reading = threading.Lock()
        """Held by the thread that reads the socket. Threads other than that of the inbox never wait for this lock."""
        self._messages: dict[int, EagerMessage] = {}
        """Messages that are received but not yet expected, or expected but not yet received."""
        self._at_gates = 0
        """The number of waits at gates."""
        self._over = ""
        """The reason for which the inbox was closed; empty while it is open."""
        self._sock: socket.socket | None = None
        """Set and cleared only by the thread of the inbox."""
        self.is_cut = False
        """Whether the connection is lost."""
        self._rest = b""
        """The read bytes of an incomplete frame."""
        self._closed, self._wanted = threading.Event(), threading.Event()
        self.ready = EagerMessage(self)
        """Received when both hosts are ready."""
        self._where: dict[int, EagerMessage] = {}
        """By transport: the message with its address, which is sent when a plan needs the transport."""
        self.has_helper = self.begin()
        if not self.has_helper:
            self._end("the connecting thread could not be started", for_good=True)

    def begin(self) -> bool:
        """Starts to connect; returns False if no thread can be started."""
        return started(threading.Thread(target=self._work, name="pathways-eager", daemon=True))

    def expect(self, number: int) -> EagerMessage:
        """Returns the value of a number, received or not. Each number is expected once."""
        with self.lock:
            message = self._messages.pop(number, None)
            if message is None:
                message = EagerMessage(self)
                if self._over:
                    message.complete(memoryview(b""), self._over)
                else:
                    self._messages[number] = message
            return message

    def where(self, transport: int) -> EagerMessage:
        """Returns the message with the address of a transport, received or not."""
        with self.lock:
            return self._where_to(transport)

    def _where_to(self, transport: int) -> EagerMessage:
        if transport not in self._where:
            self._where[transport] = message = EagerMessage(self)
            if self._over:
                message.complete(memoryview(b""), self._over)
        return self._where[transport]

    def close(self) -> None:
        """Fails all values that were not received, and ends the connection."""
        self._closed.set()
        self._end("the connection was closed", for_good=True)
        if (sock := self._sock) is not None:
            end_socket(sock)

    def fileno(self) -> int:
        """Returns the descriptor of the socket; -1 without a connection."""
        return -1 if self._sock is None else self._sock.fileno()

    def begin_to_read(self) -> bool:
        """Takes the lock `reading` if it is free and there is a connection; returns whether it did."""
        if not self.reading.acquire(blocking=False):
            return False
        if self._sock is None or self.is_cut:
            self.reading.release()
            return False
        return True

    def poll(self) -> None:
        """Reads without waiting, unless another thread reads."""
        if self.begin_to_read():
            try:
                self.take(socket.MSG_DONTWAIT)
            finally:
                self.reading.release()

    def take(self, flags: int = 0) -> None:
        """Reads once, for a caller that has the lock `reading`; waits for data unless the flags say otherwise."""
        if self._sock is None:
            return
        try:
            data = self._sock.recv(_READ_BYTES, flags)
        except BlockingIOError:
            return
        except OSError as error:
            self._end(f"the connection has ended: {error}")
            return
        if not data:
            self._end("the connection has ended")
            return
        try:
            self._parse(self._rest + data if self._rest else data)
        except (ValueError, struct.error) as error:
            self._end(f"invalid data was received: {error}")

    def wait_at_gates(self, more: int) -> None:
        """Adds to the number of waits at gates. The caller holds the lock."""
        self._at_gates += more
        if more > 0:
            self._wanted.set()

    def _parse(self, data: bytes) -> None:
        """Stores the values of whole frames. Raises ValueError or struct.error for malformed frames."""
        begin = 0
        with self.lock:
            while len(data) - begin >= HEADER.size:
                size, kind = HEADER.unpack_from(data, begin)
                if kind not in _KINDS or size > _MAX_BYTES.get(kind, self.max_bytes) + NUMBER.size:
                    raise ValueError(f"{size:,} bytes of kind {kind}")
                body, end = begin + HEADER.size, begin + HEADER.size + size
                if end > len(data):
                    break
                (number,) = NUMBER.unpack_from(data, body)
                self.put(kind, number, memoryview(data)[body + NUMBER.size : end])
                begin = end
        self._rest = data[begin:]

    def put(self, kind: int, number: int, data: memoryview) -> None:
        """Stores a frame. The caller holds the lock. Raises ValueError for an invalid one."""
        if kind == WHERE and number >= MAX_TRANSPORTS:
            raise ValueError(f"transport {number}")
        own = self.ready if kind == READY else self._where_to(number) if kind == WHERE else None
        message = own or self._messages.get(number)
        if message is None:
            self._messages[number] = message = EagerMessage(self)
        elif message.is_there():  # sent twice: the first one counts
            return
        elif own is None:
            del self._messages[number]
        failure = bytes(data).decode(errors="replace") or "no reason given" if kind == FAILURE else ""
        message.complete(data, failure)

    def _end(self, why: str, *, for_good: bool = False) -> None:
        """Fails the expected values: the connection is lost. The next connection may bring values expected later."""
        with self.lock:
            if for_good:
                self._over = self._over or why
            self.is_cut = True
            missing = {n: message for n, message in self._messages.items() if not message.is_there()}
            for number in missing:
                del self._messages[number]
            for message in (*missing.values(), *([self.ready, *self._where.values()] if for_good else [])):
                if not message.is_there():
                    message.complete(memoryview(b""), why)
            self._wanted.set()

    def _work(self) -> None:
        while not self._closed.is_set():
            if self._connect():
                self._read_for_others()
            self._closed.wait(RECONNECT_INTERVAL_S)

    def _read_for_others(self) -> None:
        """Reads while others wait at gates, until the connection is lost."""
        while not self.is_cut:
            self._wanted.wait()
            self._wanted.clear()
            with self.reading:
                while self._at_gates and not self.is_cut:
                    self.take()
        with self.reading:
            sock, self._sock, self._rest = self._sock, None, b""
            if sock is not None:
                sock.close()

    def _connect(self) -> bool:
        try:
            (hello,) = frame_of(HELLO, KEY_AND_TIME.pack(self._entrance.key.encode(), self._anew))
            sock = self._entrance.connected(hello)
        except OSError:
            return False
        with self.lock:
            self.is_cut = self._closed.is_set()
            self._wanted.set()  # threads may already wait at gates
        self._sock = sock
        return True
