"""In a host process of a test: writes down what is offered and pulled, and on SIGUSR2 what its TCP sockets have had.

Python imports a module of this name at its start; a test puts this folder on the path of hosts alone.
"""

import json
import math
import os
import signal
import socket
import struct
import sys
from typing import Any

FILE = "PATHWAYS_TEST_COUNTS"
"""The environment variable for the folder to write to."""
_TCP_INFO = struct.Struct("<120xQQ")
"""Of Linux: bytes that the other end has acknowledged, and bytes that have come."""
_unasked: list[int] = []
"""The bytes of each value that was sent unasked: by Unix sockets, of which the kernel does not say that."""


def _write(**row: Any) -> None:
    with open(os.path.join(os.environ[FILE], str(os.getpid())), "a") as file:
        file.write(json.dumps(row) + "\n")


def _count() -> None:
    from pathways.runtime.host.devices import transfer_server as ours
    from pathways.runtime.host.devices.eager_server import EagerWay
    from pathways.runtime.host.devices.mailbox import NUMBER, VALUE
    from pathways.runtime.wire.frames import HEADER

    offer, parcel, pull = ours.TransferServer.offer, ours.TransferServer.parcel, ours.TransferSource.pull
    send = EagerWay.send

    def count(name: int, arrays: Any) -> None:
        sizes = [s.data.nbytes for a in arrays for s in a.addressable_shards]  # one on each device
        _write(kind="offer", name=name, bytes=sum(sizes), pieces=len(sizes))

    def counted_offer(self: Any, name: int, arrays: Any) -> None:
        count(name, arrays)
        offer(self, name, arrays)

    def counted_parcel(self: Any, name: int, arrays: Any) -> Any:
        count(name, arrays)
        return parcel(self, name, arrays)

    def counted_send(self: Any, number: int, data: bytes, kind: int = VALUE, *, anew: int = -1) -> None:
        _unasked.append(len(data) + HEADER.size + NUMBER.size)
        send(self, number, data, kind, anew=anew)

    def counted_pull(self: Any, name: int, wanted: Any) -> Any:
        sizes = [size for struct in wanted.structs for size in _shards(struct)]
        _write(kind="pull", name=name, bytes=sum(sizes), pieces=len(sizes))
        return pull(self, name, wanted)

    ours.TransferServer.offer, ours.TransferServer.parcel = counted_offer, counted_parcel
    ours.TransferSource.pull, EagerWay.send = counted_pull, counted_send


def _shards(wanted: Any) -> list[int]:
    """The bytes of each shard of an array that is pulled."""
    shape = wanted.sharding.shard_shape(wanted.shape)
    return [math.prod(shape) * wanted.dtype.itemsize] * len(wanted.sharding.device_set)


def _tell_sockets(*_: Any) -> None:
    sent = came = 0
    for number in os.listdir("/proc/self/fd"):
        try:
            with socket.socket(fileno=os.dup(int(number))) as sock:
                if sock.family in (socket.AF_INET, socket.AF_INET6):
                    out, into = _TCP_INFO.unpack(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size))
                    sent, came = sent + out, came + into
        except OSError:  # no socket, or one that listens
            continue
    _write(kind="tcp", sent=sent, came=came, unasked=sum(_unasked))


if FILE in os.environ and any("runtime.host.serve" in a for a in sys.orig_argv):
    _count()
    signal.signal(signal.SIGUSR2, _tell_sockets)
