"""Both directions between this host and one other: which transport carries what, and what a loss of the other drops.

The other host connects to the port of the eager transport (`eager_server.py`), and is told there how the others are
reached. A new transport is a `DataPlane` and a `DataSource`, a limit in `transport_for`, and a row in `Outbound.planes`
and in `Outbound.connect`.
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
"""The environment variable for the most bytes of a value that a host sends without being asked."""
_EAGER_LIMIT, MOST_EAGER = "65536", 1 << 20
"""What it is where it is not set; and the most that it may be, since the other end holds what it did not ask for."""


EAGER, PULLED = range(2)
"""Transports, by their position in `Outbound.planes`."""


def eager_limit() -> int:
    """Reads the most bytes of a value that this process sends unasked. Raises PWC0707 for a setting that is none."""
    text = os.environ.get(EAGER_LIMIT, _EAGER_LIMIT)
    if text.isdecimal() and int(text) <= MOST_EAGER:
        return int(text)
    rule, example = f"bytes, at most {MOST_EAGER:,}, 0 for none", f"{EAGER_LIMIT}={_EAGER_LIMIT}"
    raise PathwaysError(BadSetting(source=EAGER_LIMIT, value=text, rule=rule, example=example))


def transport_for(values: ArrayGroup, max_eager_bytes: int) -> int:
    """Chooses the transport that carries values from a host, by its limit: the number of a row of both lists."""
    return EAGER if values.bytes <= max_eager_bytes else PULLED


@dataclass(frozen=True)
class Invitation:
    """Tells a host how to take what another sends unasked: where it connects, and the most bytes of a value."""

    eager_address: EagerAddress
    max_eager_bytes: int

    def __str__(self) -> str:
        return f"{self.max_eager_bytes} {self.eager_address}"

    @classmethod
    def read(cls, text: str) -> "Invitation":
        most, eager_address = text.split(maxsplit=1)
        return cls(EagerAddress.read(eager_address), int(most))


class Outbound:
    """What goes to one other host. A transport is named by its number."""

    def __init__(
        self,
        device: pjrt.Device,
        ip: str,
        server: EagerServer,
        max_eager_bytes: int,
        sender: Callable[[Sequence[pjrt.Device]], Sender],
    ) -> None:
        """`max_eager_bytes`: of the largest value that is sent unasked; `sender` finds what waits for arrays."""
        self._server, self._max_eager_bytes = server, max_eager_bytes
        self._pulled = TransferServer(device, ip)
        self.planes: Sequence[DataPlane] = (EagerPlane(sender), self._pulled)
        self._open: set[int] = set()
        """The transports that a plan needs: the other host is told how to reach them."""
        self._outbox: Outbox | None = None
        self._losses = 0
        """Counts the losses of the other that have not ended: runs sent before them may still be enqueued."""
        self._lock = threading.Lock()
        """Guards those: plans are loaded while hosts come and go."""

    def invite(self) -> Invitation:
        """Returns what the other must know: the same, until it is lost."""
        with self._lock:
            if self._outbox is None:
                self._outbox = self._server.outbox()
                for plane in self.planes:
                    plane.begin(self._outbox)
                for number in self._open:
                    self._outbox.say_where(number, self.planes[number].where)
            return Invitation(self._outbox.eager_address, self._max_eager_bytes)

    def prepare(self, values: ArrayGroup) -> int:
        """Chooses the transport of values, when a plan is loaded, and gets it ready."""
        number = transport_for(values, self._max_eager_bytes)
        with self._lock:
            if number not in self._open:
                self.planes[number].open()
                self._open.add(number)
                if self._outbox is not None:
                    self._outbox.say_where(number, self.planes[number].where)
        return number

    def offer(
        self, transport: int, number: int, arrays: Sequence[pjrt.DeviceArray], devices: Sequence[pjrt.Device]
    ) -> Unsent | None:
        """Offers arrays (`DataPlane.offer`); does nothing where the host that was to have them is gone."""
        with self._lock:
            if self._losses or self._outbox is None:
                return None
            return self.planes[transport].offer(number, arrays, devices)

    def fail(self, transport: int, number: int, why: str, values: ArrayGroup) -> None:
        """Says why there is nothing under a number (`DataPlane.fail`)."""
        with self._lock:
            if not self._losses and self._outbox is not None:
                self.planes[transport].fail(number, why, values)

    def connect(self, invitation: Invitation, anew: int = 0) -> "Inbound":
        """Connects with the other, as invited by it. `anew`: how often both were told to connect anew."""
        inbox = Inbox(invitation.eager_address, invitation.max_eager_bytes, anew)
        return Inbound(inbox, (EagerSource(inbox), PulledSource(self._pulled, inbox.where(PULLED))))

    def lose(self) -> None:
        """Drops what is offered, and ends what is sent: the other is gone.

        Until `end_loss` runs that were sent before the loss send and offer nothing. `end_loss` must not drop offers:
        that would drop those for the host in the other's place, too.
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
        """Drops what has not come to the other, and goes on when it connects anew."""
        with self._lock:
            for plane in self.planes:
                plane.drop(is_lost=False)
            if self._outbox is not None:
                self._outbox.begin_anew(anew)


class Inbound:
    """What comes from one other host, until it is lost or connects anew."""

    def __init__(self, inbox: Inbox, sources: Sequence[DataSource]) -> None:
        self._max_eager_bytes, self._sources = inbox.most, sources
        self.ready = inbox.ready
        """Whether both ends have begun."""
        self.lost: Diagnostic | None = None
        """Why the host is gone."""

    def fetch(self, number: int, values: ArrayGroup) -> Sequence[Any]:
        """Asks for arrays (`DataSource.fetch`). Raises one of FAILURES where it is closed."""
        return self._sources[transport_for(values, self._max_eager_bytes)].fetch(number, values)

    def close(self) -> None:
        """Ends all that has not come with an error."""
        for source in self._sources:
            source.close()
