"""Bytes of small values from another host, which sends them as soon as they are there: they are not asked for.

That is the eager protocol of message passing; larger values are pulled (`transfer_server.py`). The host that is to
receive connects, with a key that it was given, and says at which time the two were told to connect anew. It is let in
when that is so for the one that sends, too (`eager_server.py`): nothing of before comes after.
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
"""Kinds of frames: both ends have begun; a value; why there is none; how another transport is reached. Each begins with
a number, that of the value or of the transport."""
HELLO = 4
"""The kind of the frame that the receiver sends first."""
KEY_BYTES = 16
KEY_AND_TIME = struct.Struct(f"<{2 * KEY_BYTES}sQ")
"""What that frame holds: its key, and the time at which it connects anew."""
NUMBER = struct.Struct("<Q")
CONNECT_TIMEOUT_S = 10.0
"""Limits the time to connect, and to show the key."""
AGAIN = 0.2
"""Seconds between two attempts to connect."""
MOST_TEXT = 1 << 20
"""The most bytes of what is said of a failure."""
MAX_WHERE_BYTES = 256
"""The most bytes of what is said of how a transport is reached."""
MAX_TRANSPORTS = 8
"""The most transports that are told of."""
_MOST = {READY: 0, FAILURE: MOST_TEXT, WHERE: MAX_WHERE_BYTES}
"""The most bytes behind that number, by the kind; of values, as is told."""
_READ = 1 << 16
"""The most bytes that are taken at once: values are small, and many come by one call."""


@dataclass(frozen=True)
class Entrance:
    """Where a host lets in the one that has a key: HOST:PORT, and on its own machine, where the system has such, the
    name of an abstract Unix socket, by which a hop takes a tenth less; empty where there is none."""

    address: str
    name: str
    key: str

    def __str__(self) -> str:
        return f"{self.address} {self.name or '-'} {self.key}"

    @classmethod
    def read(cls, text: str) -> "Entrance":
        address, name, key = text.split()
        return cls(address, "" if name == "-" else name, key)

    def connected(self, hello: bytes | memoryview) -> socket.socket:
        """Connects, and says who comes. Raises OSError where it is not there."""
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
        except OSError:  # it is on another machine
            sock.close()
            return None
        return sock


def abstract(name: str) -> str:
    """The address of an abstract socket, which no file stands for."""
    return f"\0{name}"


class Letter:
    """A value on its way from another host, as bytes; or the failure that takes its place."""

    __slots__ = ("_data", "_failure", "_gates", "_is_there", "mailbox")

    def __init__(self, mailbox: "Mailbox") -> None:
        self.mailbox = mailbox
        self._is_there = False
        self._data: memoryview = memoryview(b"")
        self._failure = ""
        self._gates: set[Gate] = set()

    @property
    def has_helper(self) -> bool:
        """Whether a thread reads what comes while others wait at gates."""
        return self.mailbox.has_helper

    def is_ready(self) -> bool:
        if not self._is_there:
            self.mailbox.look()
        return self._is_there

    def is_there(self) -> bool:
        """As `is_ready`, of what has been read."""
        return self._is_there

    def add(self, gate: Gate) -> None:
        """Has a gate opened when it is there, good or bad; at once where it is."""
        with self.mailbox.lock:
            if not self._is_there:
                self._gates.add(gate)
                self.mailbox.wait_at_gates(1)
                return
        gate.open()

    def discard(self, gate: Gate) -> None:
        with self.mailbox.lock:
            if gate in self._gates:
                self._gates.remove(gate)
                self.mailbox.wait_at_gates(-1)

    def block_until_ready(self) -> None:
        """Waits, and reads what comes meanwhile where no other thread does. Raises as `read`."""
        if not self._is_there and not wait_for_first([self]):
            gate = Gate()
            self.add(gate)
            gate.pass_through()
        self.read()

    def read(self) -> memoryview:
        """The bytes of one that is there. Raises RuntimeError, as PJRT does, where it has failed."""
        if self._failure:
            raise RuntimeError(self._failure)
        return self._data

    def come(self, data: memoryview, failure: str) -> None:
        """Notes that it is there. The caller has the lock of the mailbox."""
        self._data, self._failure, self._is_there = data, failure, True
        gates, self._gates = self._gates, set()
        self.mailbox.wait_at_gates(-len(gates))
        for gate in gates:
            gate.open()


def wait_for_first(letters: Sequence[Letter]) -> bool:
    """Waits until one of these is there, and reads what comes. Returns False, at once, where another thread does, or
    nothing can be read yet: to be woken by another takes a tenth of a hop."""
    boxes = list(dict.fromkeys(letter.mailbox for letter in letters))
    with contextlib.ExitStack() as reading:
        for box in boxes:
            if not box.begin_to_read():
                return False
            reading.callback(box.reading.release)
        while not any(letter.is_there() for letter in letters):
            if any(box.is_cut for box in boxes):
                return False
            if len(boxes) == 1:
                boxes[0].take()
            else:
                _take_any(boxes)
    return True


def _take_any(boxes: "Sequence[Mailbox]") -> None:
    """Waits until something has come to one of these, and takes it."""
    with selectors.DefaultSelector() as selector:
        for box in boxes:
            selector.register(box, selectors.EVENT_READ, box)
        for key, _ in selector.select():
            key.data.take(socket.MSG_DONTWAIT)


class Mailbox:
    """What another host sends to this one. Who waits for a value reads what comes; who waits for other things, too,
    has a thread do that. It connects first, again and again until it can."""

    def __init__(self, entrance: Entrance, most: int, anew: int = 0) -> None:
        """`most`: the bytes of the largest value that comes this way."""
        self._entrance, self.most, self._anew = entrance, most, anew
        self.lock = threading.Lock()
        """Guards its letters, and what is known of each; nothing is waited for inside."""
        self.reading = threading.Lock()
        """Who has it reads the socket; taken by others than the thread only where it is free."""
        self._letters: dict[int, Letter] = {}
        """Those that came and were not asked for, and those that were asked for and have not come."""
        self._at_gates = 0
        """How many wait for those without reading."""
        self._over = ""
        """Why nothing comes any more."""
        self._sock: socket.socket | None = None
        """Set and unset by the thread alone, the latter when it reads."""
        self.is_cut = False
        """Whether that has ended."""
        self._rest = b""
        """What was taken, and is of a frame to come."""
        self._closed, self._wanted = threading.Event(), threading.Event()
        self.ready = Letter(self)
        """Whether both ends have begun."""
        self._where: dict[int, Letter] = {}
        """How other transports are reached, by number: said once a plan needs one."""
        self.has_helper = started(threading.Thread(target=self._work, name="pathways-eager", daemon=True))
        if not self.has_helper:
            self._end("no thread could be started that connects", for_good=True)

    def expect(self, number: int) -> Letter:
        """The value of a number, which is there or will be; asked for once."""
        with self.lock:
            letter = self._letters.pop(number, None)
            if letter is None:
                letter = Letter(self)
                if self._over:
                    letter.come(memoryview(b""), self._over)
                else:
                    self._letters[number] = letter
            return letter

    def where(self, transport: int) -> Letter:
        """Returns how a transport is reached, which is there or will be."""
        with self.lock:
            return self._where_to(transport)

    def _where_to(self, transport: int) -> Letter:
        if transport not in self._where:
            self._where[transport] = letter = Letter(self)
            if self._over:
                letter.come(memoryview(b""), self._over)
        return self._where[transport]

    def close(self) -> None:
        """Ends all that has not come with an error."""
        self._closed.set()
        self._end("the connection was closed", for_good=True)
        if (sock := self._sock) is not None:
            end_socket(sock)

    def fileno(self) -> int:
        """Of what can be read while it has not ended."""
        return -1 if self._sock is None else self._sock.fileno()

    def begin_to_read(self) -> bool:
        """Takes the role of the one that reads, which `reading` gives back; returns False where it is not to be had."""
        if not self.reading.acquire(blocking=False):
            return False
        if self._sock is None or self.is_cut:
            self.reading.release()
            return False
        return True

    def look(self) -> None:
        """Takes what has come, without waiting, unless another thread does."""
        if self.begin_to_read():
            try:
                self.take(socket.MSG_DONTWAIT)
            finally:
                self.reading.release()

    def take(self, flags: int = 0) -> None:
        """Takes what has come, for one that has the role; waits for it unless the flags say otherwise."""
        if self._sock is None:
            return
        try:
            data = self._sock.recv(_READ, flags)
        except BlockingIOError:
            return
        except OSError as error:
            self._end(f"the connection has ended: {error}")
            return
        if not data:
            self._end("the connection has ended")
            return
        try:
            self._hear(self._rest + data if self._rest else data)
        except (ValueError, struct.error) as error:
            self._end(f"what came is no value: {error}")

    def wait_at_gates(self, more: int) -> None:
        """Notes that so many more wait without reading. The caller has the lock."""
        self._at_gates += more
        if more > 0:
            self._wanted.set()

    def _hear(self, data: bytes) -> None:
        """Puts values where they are waited for. Raises ValueError or struct.error for what is none."""
        begin = 0
        with self.lock:
            while len(data) - begin >= HEADER.size:
                size, kind = HEADER.unpack_from(data, begin)
                if kind not in _KINDS or size > _MOST.get(kind, self.most) + NUMBER.size:
                    raise ValueError(f"{size:,} bytes of kind {kind}")
                body, end = begin + HEADER.size, begin + HEADER.size + size
                if end > len(data):
                    break
                (number,) = NUMBER.unpack_from(data, body)
                self._put(kind, number, memoryview(data)[body + NUMBER.size : end])
                begin = end
        self._rest = data[begin:]

    def _put(self, kind: int, number: int, data: memoryview) -> None:
        if kind == WHERE and number >= MAX_TRANSPORTS:
            raise ValueError(f"transport {number}")
        own = self.ready if kind == READY else self._where_to(number) if kind == WHERE else None
        letter = own or self._letters.get(number)
        if letter is None:
            self._letters[number] = letter = Letter(self)
        elif letter.is_there():  # said twice: the first counts
            return
        elif own is None:
            del self._letters[number]
        failure = bytes(data).decode(errors="replace") or "no reason given" if kind == FAILURE else ""
        letter.come(data, failure)

    def _end(self, why: str, *, for_good: bool = False) -> None:
        """Fails what is waited for: the connection has ended. Values that are asked for later may come by the next."""
        with self.lock:
            if for_good:
                self._over = self._over or why
            self.is_cut = True
            missing = {n: letter for n, letter in self._letters.items() if not letter.is_there()}
            for number in missing:
                del self._letters[number]
            for letter in (*missing.values(), *([self.ready, *self._where.values()] if for_good else [])):
                if not letter.is_there():
                    letter.come(memoryview(b""), why)
            self._wanted.set()

    def _work(self) -> None:
        while not self._closed.is_set():
            if self._connect():
                self._read_for_others()
            self._closed.wait(AGAIN)

    def _read_for_others(self) -> None:
        """Reads whenever others wait at gates, until the connection has ended."""
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
            self._wanted.set()  # some may wait already
        self._sock = sock
        return True
