"""Makes the messages with which a client asks the controller of a cluster to schedule a run. If enough runs are in
progress, messages are delayed, so that one write sends several. `Attached` uses it.
"""

import contextlib
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from itertools import chain

from pathways.runtime.client.remote.hosts import RunParcel, StartedRun
from pathways.runtime.client.remote.remote_island import RemoteIsland
from pathways.runtime.wire import messages as m
from pathways.runtime.wire.client_messages import WEIGHT

AHEAD, MAX_KEPT = 8, 4
"""While a client has more than AHEAD runs in flight on each island of a run, up to MAX_KEPT submitted runs are kept.
They are sent when the controller sends a message. Waking the controller takes longer than a small run, and the islands
have work meanwhile."""


def submitted(run: StartedRun, inside: int) -> m.Submit:
    """Creates the message that submits a run, without its parcels.

    `inside` is the number of the client in this process.
    """
    weight = 1.0 if run.request is None else run.request.weight
    memory = tuple([n for device, size in run.memory.items() for n in (device.number, size)])
    return m.Submit(run.number, run.plan, inside, int(WEIGHT * weight), memory, b"")


def parcels_of(parcels: Mapping[int, RunParcel]) -> list[tuple[int, int, list[m.Message]]]:
    """Returns the messages of a run for each island, by island number and epoch, including notices of freed arrays."""
    return [
        (number, host.epoch, [*before, *host.take_ended(), message])
        for number, (host, before, message) in parcels.items()
    ]


def are_ahead(hosts: Iterable[RemoteIsland]) -> bool:
    """Whether the islands have enough of this client's work that the next run may be sent a little later."""
    return all(host.under_way > AHEAD for host in hosts)


class HeldBytes:
    """Sums changes of held bytes since the last report. Any thread may add some, also during garbage collection."""

    def __init__(self) -> None:
        self._added: deque[tuple[tuple[str, int], int, int]] = deque()

    def add(self, client: str, run: int, device: int, size: int) -> None:
        self._added.append(((client, run), device, size))

    def take(self) -> dict[tuple[str, int], tuple[int, ...]]:
        """Returns pairs of device number and bytes, by inside client and run, and resets the sums."""
        if not self._added:
            return {}
        held: dict[tuple[str, int], Counter[int]] = {}
        with contextlib.suppress(IndexError):
            while True:
                of, device, size = self._added.popleft()
                held.setdefault(of, Counter())[device] += size
        pairs = {of: [(device, size) for device, size in sizes.items() if size] for of, sizes in held.items()}
        return {of: tuple(chain.from_iterable(found)) for of, found in pairs.items() if found}
