"""Records the transfers of a host process: each offer and pull, and on SIGUSR2 the byte counts of its TCP sockets.

Python imports a module named `sitecustomize` at startup. A test puts this folder on the PYTHONPATH of hosts only.
"""

import json
import math
import os
import signal
import socket
import struct
import sys
import threading
from typing import Any

FILE = "PATHWAYS_TEST_COUNTS"
"""Name of the environment variable with the folder of the records."""
_TCP_INFO = struct.Struct("<120xQQ")
"""Two fields of Linux's `struct tcp_info`: bytes acknowledged by the peer, and bytes received."""
_unasked: list[int] = []
"""Bytes of each eager message. They go over Unix sockets, for which the kernel has no byte counts."""


def _write(**row: Any) -> None:
    with open(os.path.join(os.environ[FILE], str(os.getpid())), "a") as file:
        file.write(json.dumps(row) + "\n")


def _count() -> None:
    from pathways.runtime.host.between.eager_server import Outbox
    from pathways.runtime.host.between.inbox import NUMBER, VALUE
    from pathways.runtime.host.between.link import Inbound, Outbound
    from pathways.runtime.wire.frames import HEADER

    links: Any = Outbound
    ends: Any = Inbound
    offer, fetch, send = links.offer, ends.fetch, Outbox.send

    def counted_offer(self: Any, transport: int, number: int, arrays: Any, devices: Any) -> Any:
        sizes = [s.data.nbytes for a in arrays for s in a.addressable_shards]  # one on each device
        _write(kind="offer", name=number, bytes=sum(sizes), pieces=len(sizes))
        return offer(self, transport, number, arrays, devices)

    def counted_send(self: Any, number: int, data: bytes, kind: int = VALUE, *, anew: int = -1) -> None:
        _unasked.append(len(data) + HEADER.size + NUMBER.size)
        send(self, number, data, kind, anew=anew)

    def counted_fetch(self: Any, number: int, values: Any) -> Any:
        sizes = [size for struct in values.structs for size in _shards(struct)]
        _write(kind="pull", name=number, bytes=sum(sizes), pieces=len(sizes))
        return fetch(self, number, values)

    links.offer, ends.fetch, Outbox.send = counted_offer, counted_fetch, counted_send


def _shards(wanted: Any) -> list[int]:
    """Returns the bytes of each shard of a pulled array."""
    shape = wanted.sharding.shard_shape(wanted.shape)
    return [math.prod(shape) * wanted.dtype.itemsize] * len(wanted.sharding.device_set)


def _listen() -> None:
    """Waits for SIGUSR2 in a thread of its own. A handler would run in the main thread, which may be busy then."""
    while True:
        signal.sigwait({signal.SIGUSR2})
        _tell_sockets()


def _tell_sockets() -> None:
    sent = came = 0
    for number in os.listdir("/proc/self/fd"):
        try:
            with socket.socket(fileno=os.dup(int(number))) as sock:
                if sock.family in (socket.AF_INET, socket.AF_INET6):
                    out, into = _TCP_INFO.unpack(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size))
                    sent, came = sent + out, came + into
        except OSError:  # not a socket, or a listening socket
            continue
    _write(kind="tcp", sent=sent, came=came, unasked=sum(_unasked))


if FILE in os.environ and any("runtime.host.serve" in a for a in sys.orig_argv):
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})  # first: threads that imports start inherit it
    _count()
    threading.Thread(target=_listen, daemon=True).start()
