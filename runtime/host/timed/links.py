"""Sends arrays between timed hosts: a message without values, after the time that the network takes. It replaces the
two transports of `between/link.py`, and uses the same streams.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pathways.runtime.host.between.data_plane import ArrayGroup
from pathways.runtime.host.between.eager_server import EagerServer, Outbox
from pathways.runtime.host.between.eager_values import EagerOffer, EagerPlane, EagerSource, Parcel, Sender, Sent
from pathways.runtime.host.between.inbox import VALUE, EagerAddress, Inbox
from pathways.runtime.host.between.link import Inbound, Invitation, Outbound
from pathways.runtime.host.timed.devices import NOW, TimedArray, TimedDevice
from pathways.runtime.host.timed.figures import Figures
from pathways.runtime.host.timed.moments import Timer, now
from pathways.runtime.host.timed.ports import Ports

MAX_BYTES = 1 << 62
"""The limit of pushed values, so that all are pushed: a message of a timed host has no values."""


@dataclass(eq=False)
class Network:
    """The network between the islands, as seen from one of them."""

    figures: Figures
    ports: Ports
    timer: Timer

    def send(self, island: str, bytes_: int, devices: int, work: Callable[[], None]) -> None:
        """Calls `work` when as many bytes, which leave now from some devices, have reached another host."""
        figures, names = self.figures, self.figures.names
        if island == figures.island:
            end = now() + bytes_ / (figures.ici_rate * max(1, devices)) + figures.ici_seconds
        else:
            here, there = names.index(figures.island), names.index(island)
            end = self.ports.take(here, there, now(), bytes_ / figures.network_rate) + figures.network_seconds
        self.timer.at(end, work)


@dataclass(frozen=True, eq=False)
class TimedParcel(Parcel):
    """Arrays that are sent when they are there, as a message that arrives when the network has carried them."""

    network: Network
    island: str

    def send(self) -> None:
        try:
            for array in self.arrays:
                array.block_until_ready()
            shards = [shard for array in self.arrays for shard in array.shards]
            count, devices = sum(shard.type.bytes for shard in shards), {shard.sharding.devices for shard in shards}
            send = partial(self.outbox.send, self.number, b"", anew=self.anew)
            self.network.send(self.island, count, len(devices), send)
        except Exception as error:  # the other end must be notified of any error
            self.outbox.fail(self.number, str(error), anew=self.anew)


class TimedPlane(EagerPlane):
    """Sends arrays to one other timed host."""

    def __init__(self, sender: Callable[[Sequence[Any]], Sender], network: Network, island: str) -> None:
        super().__init__(sender)
        self._network, self._island = network, island

    def offer(self, number: int, arrays: Sequence[Any], devices: Sequence[Any]) -> EagerOffer:
        outbox = self._outbox
        assert outbox is not None
        parcel = TimedParcel(outbox, outbox.anew, number, arrays, self._network, self._island)
        return EagerOffer(self._sender(devices), parcel)


class TimedGroup(ArrayGroup):
    """Arrays that a timed host receives."""

    def put(self, data: memoryview) -> list[TimedArray]:
        """Makes the arrays of a message, which are there now."""
        return [TimedArray(t, s, [NOW] * len(s.here)) for t, s in zip(self.types, self.shardings, strict=True)]


class TimedSource(EagerSource):
    """Receives the arrays of another timed host."""

    def fetch(self, number: int, values: ArrayGroup) -> list[Sent]:
        return super().fetch(number, TimedGroup(values.types, values.shardings))


class TimedOutbound(Outbound):
    """The link to another timed host. A value is pushed, whatever its size."""

    def __init__(
        self, network: Network, island: str, device: TimedDevice, ip: str, server: EagerServer,
        max_bytes: int, sender: Callable[[Sequence[Any]], Sender],
    ) -> None:  # fmt: skip
        super().__init__(device, ip, server, max_bytes, sender)
        self.planes = (TimedPlane(sender, network, island),)

    def connect(self, invitation: Invitation, anew: int = 0) -> Inbound:
        inbox = Inbox(invitation.eager_address, invitation.max_eager_bytes, anew)
        return Inbound(inbox, (TimedSource(inbox),))


class NearServer(EagerServer):
    """Links a host with one of the same island, which is in the same process, without sockets and threads."""

    def __init__(self, source: str, target: str) -> None:
        """The names of both hosts. Listens at nothing."""
        self._inbox = near_inbox(source, target)

    def outbox(self) -> Outbox:
        return _NearOutbox(self._inbox)


class _NearOutbox(Outbox):
    """Puts values into the inbox of another host of this process."""

    def __init__(self, inbox: "NearInbox") -> None:
        super().__init__(_NOWHERE, lambda: None)
        self._inbox = inbox

    def send(self, number: int, data: bytes, kind: int = VALUE, *, anew: int = -1) -> None:
        if self._is_over or anew not in (-1, self.anew):
            return
        with self._inbox.lock:
            self._inbox.put(kind, number, memoryview(data))


class NearInbox(Inbox):
    """Receives the values of a host of the same process."""

    def __init__(self) -> None:
        super().__init__(_NOWHERE, MAX_BYTES)

    def begin(self) -> bool:
        self.ready.complete(memoryview(b""), "")
        return True


_NOWHERE = EagerAddress("near", "", "")
_near: dict[tuple[str, str], NearInbox] = {}
_MAKING = threading.Lock()


def near_inbox(source: str, target: str) -> NearInbox:
    """Returns the inbox for values between two hosts of this process."""
    with _MAKING:
        return _near.get((source, target)) or _near.setdefault((source, target), NearInbox())
