"""Connects this host process with one other host, in both directions. It chooses the transport for each value, and
drops pending values when the other host is lost. `load/peer_hosts.py` has one link for each other host.

The other host connects to the port of the eager transport (`eager_server.py`), which sends the addresses of the other
transports. A new transport is a `DataPlane` and a `DataSource`, a limit in `transport_for`, and a row in
`Outbound.planes` and in `Outbound.connect`.
"""

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pathways.dialect.diagnostics import Diagnostic, PathwaysError
from pathways.dialect.errors import BadSetting
from pathways.runtime.host.between.data_plane import ArrayGroup, DataPlane, DataSource, Unsent
from pathways.runtime.host.between.eager_server import EagerServer, Outbox
from pathways.runtime.host.between.eager_values import EagerPlane, EagerSource, Sender
from pathways.runtime.host.between.inbox import EagerAddress, Inbox
from pathways.runtime.host.between.transfer_server import PulledSource, TransferServer
from pathways.runtime.host.devices import pjrt

EAGER_LIMIT = "PATHWAYS_EAGER_LIMIT"
"""The environment variable for the maximum size in bytes of a value that a host pushes."""
_DEFAULT_EAGER_BYTES, MAX_EAGER_BYTES = "65536", 1 << 20
"""Its default and its maximum. It has a maximum because the receiver stores values that it has not requested."""


EAGER, PULLED = range(2)
"""Transports, by their position in `Outbound.planes`."""


def eager_limit() -> int:
    """Reads the maximum size of a value that this process pushes. Raises PWC0707 for an invalid setting."""
    text = os.environ.get(EAGER_LIMIT, _DEFAULT_EAGER_BYTES)
    if text.isdecimal() and int(text) <= MAX_EAGER_BYTES:
        return int(text)
    rule, example = f"bytes, at most {MAX_EAGER_BYTES:,}; 0 for off", f"{EAGER_LIMIT}={_DEFAULT_EAGER_BYTES}"
    raise PathwaysError(BadSetting(source=EAGER_LIMIT, value=text, rule=rule, example=example))


def transport_for(values: ArrayGroup, max_eager_bytes: int) -> int:
    """Returns the index of the transport that carries values from a host, by the size limit of that host."""
    return EAGER if values.bytes <= max_eager_bytes else PULLED


@dataclass(frozen=True)
class Invitation:
    """Tells a host how to receive pushed values: the address to connect to, and the maximum size of a value."""

    eager_address: EagerAddress
    max_eager_bytes: int

    def __str__(self) -> str:
        return f"{self.max_eager_bytes} {self.eager_address}"

    @classmethod
    def read(cls, text: str) -> "Invitation":
        max_bytes, eager_address = text.split(maxsplit=1)
        return cls(EagerAddress.read(eager_address), int(max_bytes))


class Outbound:
    """Sends values to one other host. A transport is named by its index."""

    def __init__(
        self,
        device: pjrt.Device,
        ip: str,
        server: EagerServer,
        max_eager_bytes: int,
        sender: Callable[[Sequence[pjrt.Device]], Sender],
    ) -> None:
        """`max_eager_bytes`: the size of the largest pushed value. `sender` returns the sender for given devices."""
        self._server, self._max_eager_bytes = server, max_eager_bytes
        self._pulled = TransferServer(device, ip)
        self.planes: Sequence[DataPlane] = (EagerPlane(sender), self._pulled)
        self._open: set[int] = set()
        """The transports that plans need. The other host is sent their addresses."""
        self._outbox: Outbox | None = None
        self._losses = 0
        """Counts the losses of the other host that have not ended: runs sent before them may still be enqueued."""
        self._lock = threading.Lock()
        """Guards the fields above: plans are loaded while hosts connect and are lost."""

    def invite(self) -> Invitation:
        """Returns the invitation for the other host, which is the same until that host is lost."""
        with self._lock:
            if self._outbox is None:
                self._outbox = self._server.outbox()
                for plane in self.planes:
                    plane.begin(self._outbox)
                for number in self._open:
                    self._outbox.publish_address(number, self.planes[number].where)
            return Invitation(self._outbox.eager_address, self._max_eager_bytes)

    def prepare(self, values: ArrayGroup) -> int:
        """Chooses the transport of values when a plan is loaded, and opens it."""
        number = transport_for(values, self._max_eager_bytes)
        with self._lock:
            if number not in self._open:
                self.planes[number].open()
                self._open.add(number)
                if self._outbox is not None:
                    self._outbox.publish_address(number, self.planes[number].where)
        return number

    def offer(
        self, transport: int, number: int, arrays: Sequence[pjrt.DeviceArray], devices: Sequence[pjrt.Device]
    ) -> Unsent | None:
        """Offers arrays (`DataPlane.offer`). Does nothing if the host that should receive them is lost."""
        with self._lock:
            if self._losses or self._outbox is None:
                return None
            return self.planes[transport].offer(number, arrays, devices)

    def fail(self, transport: int, number: int, why: str, values: ArrayGroup) -> None:
        """Offers a failure in place of arrays (`DataPlane.fail`)."""
        with self._lock:
            if not self._losses and self._outbox is not None:
                self.planes[transport].fail(number, why, values)

    def connect(self, invitation: Invitation, anew: int = 0) -> "Inbound":
        """Connects to the other host, as its invitation says. `anew`: the reconnect count of the two hosts."""
        inbox = Inbox(invitation.eager_address, invitation.max_eager_bytes, anew)
        return Inbound(inbox, (EagerSource(inbox), PulledSource(self._pulled, inbox.where(PULLED))))

    def lose(self) -> None:
        """Drops all offers, and closes the outbox: the other host is lost.

        Until `end_loss`, runs that were sent before the loss send and offer nothing. `end_loss` must not drop offers:
        it would also drop offers for the host that replaces the lost one.
        """
        with self._lock:
            self._losses += 1
            outbox, self._outbox = self._outbox, None
            for plane in self.planes:
                plane.drop(is_lost=True)
        if outbox is not None:
            outbox.close()

    def end_loss(self) -> None:
        """Ends one loss; after the last, values are offered and sent again."""
        with self._lock:
            assert self._losses
            self._losses -= 1

    def begin_anew(self, anew: int) -> None:
        """Drops all values that the other host has not received, and continues when it reconnects."""
        with self._lock:
            for plane in self.planes:
                plane.drop(is_lost=False)
            if self._outbox is not None:
                self._outbox.begin_anew(anew)


class Inbound:
    """Receives values from one other host, until that host is lost or reconnects."""

    def __init__(self, inbox: Inbox, sources: Sequence[DataSource]) -> None:
        self._max_eager_bytes, self._sources = inbox.max_bytes, sources
        self.ready = inbox.ready
        """Received when both ends are ready."""
        self.lost: Diagnostic | None = None
        """The cause of the loss of the host; None if it is not lost."""

    def fetch(self, number: int, values: ArrayGroup) -> Sequence[Any]:
        """Requests arrays (`DataSource.fetch`). Raises one of FAILURES if the source is closed."""
        return self._sources[transport_for(values, self._max_eager_bytes)].fetch(number, values)

    def close(self) -> None:
        """Fails all values that were not received."""
        for source in self._sources:
            source.close()
